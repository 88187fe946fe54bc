// Package plan decides what stands in the drivers' configuration of a namespace:
// which records config.json has, and with which content, and which pairs of
// profiles cluster-mapping.json has.
//
// It is pure: the objects of the namespace and the present files in, the wanted
// files out. One call decides for all profiles of a namespace, so a change of
// many objects is one write, and the change of a replication's winner is one
// too.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	replication "github.com/castellan-storage/castellan/internal/replication/plan"
)

// Namespace is what there is in one namespace.
type Namespace struct {
	Profiles     []csiv1.ClientProfile
	Connections  []csiv1.CephConnection
	Replications []csiv1.ClientProfileReplication
	// Drivers is the number of Drivers, which mount the files.
	Drivers int
}

// Config is config.json as it is to be.
type Config struct {
	// Text is the file.
	Text string
	// Ours are the cluster ids of the records that belong to client profiles, sorted.
	// It is kept beside the file, so that the record of a profile that was deleted
	// past its finalizer can be told from one that a person wrote.
	Ours []string
	// Orphans are records to be removed whose profile is not there any more. That it
	// is really gone must be confirmed before the write.
	Orphans []string
}

// Decide gives config.json as it is to be. text is the present file, ours what
// Config.Ours was when it was written. A file that cannot be read is an error
// that wraps clusterconfig.ErrBroken.
//
// The record of a profile is there from the time when the profile holds its
// finalizer until its deletion has begun and nothing refers to it any more. While
// its CephConnection is missing, the record stays as it is.
func Decide(ns Namespace, text string, ours []string) (Config, error) {
	file, err := clusterconfig.Parse(text)
	if err != nil {
		return Config{}, err
	}
	replications := map[string][]csiv1.ClientProfileReplication{}
	for _, r := range ns.Replications {
		replications[r.Spec.LocalClientProfile] = append(replications[r.Spec.LocalClientProfile], r)
	}
	present, recorded := map[string]bool{}, map[string]bool{}
	for _, id := range file.IDs() {
		recorded[id] = true
	}
	connections := make(map[string]*csiv1.CephConnection, len(ns.Connections))
	for i := range ns.Connections {
		connections[ns.Connections[i].Name] = &ns.Connections[i]
	}
	var c Config
	for _, p := range inOrder(ns.Profiles) {
		present[p.Name] = true
		switch {
		case !slices.Contains(p.Finalizers, csiv1.ClientProfileFinalizer):
			continue
		case Leaving(&p, replications[p.Name]):
			file.Remove(p.Name)
			continue
		}
		if connection := connections[p.Spec.CephConnectionRef.Name]; connection != nil {
			record := Record(&p, connection, replications[p.Name])
			if err := file.Set(record); err != nil {
				return Config{}, fmt.Errorf("writing the record of client profile %q: %w", p.Name, err)
			}
		} else if !recorded[p.Name] {
			continue
		}
		c.Ours = append(c.Ours, p.Name)
	}
	for _, id := range ours {
		if !present[id] && recorded[id] {
			c.Orphans = append(c.Orphans, id)
			file.Remove(id)
		}
	}
	slices.Sort(c.Ours)
	c.Text = file.String()
	return c, nil
}

// Leaving tells whether the record of a profile has to go: the profile is being
// deleted, and no replication refers to it.
func Leaving(p *csiv1.ClientProfile, replications []csiv1.ClientProfileReplication) bool {
	return !p.DeletionTimestamp.IsZero() && len(replication.Referrers(p.Name, replications)) == 0
}

// Record gives the record of a profile.
func Record(p *csiv1.ClientProfile, connection *csiv1.CephConnection, replications []csiv1.ClientProfileReplication) clusterconfig.Record {
	return clusterconfig.Build(p, connection, replication.Decide(p.Name, p, replications).Winner)
}

// inOrder gives profiles by age, so that new records come to the end of the file.
func inOrder(profiles []csiv1.ClientProfile) []csiv1.ClientProfile {
	sorted := slices.Clone(profiles)
	slices.SortFunc(sorted, func(a, b csiv1.ClientProfile) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}
