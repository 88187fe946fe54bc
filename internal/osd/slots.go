package osd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// doubt is after what time a Job that has prepared a disk, and is still there, has
// not led to an OSD: then the node is looked at again.
const doubt = 15 * time.Second

// slotReasons are reasons to look at a node again while a slot of it waits for a
// disk: a watch has seen a change, or an attempt has ended. Each is remembered by a
// label on the report that came of it, so that it counts once.
type slotReasons struct {
	Slots, After, Attempt string
}

// String is the reason as part of a request's hash.
func (r slotReasons) String() string { return "/" + r.After + "/" + r.Attempt }

// label notes on the report what it answers.
func (r slotReasons) label(req request.Provision) {
	for k, v := range map[string]string{pending.SlotsLabel: r.Slots, pending.AfterLabel: r.After, pending.RetryLabel: r.Attempt} {
		if v != "" && len(req.Pending) > 0 {
			req.Labels[k] = v
		}
	}
}

// slots reads which OSDs wait for a disk, and why their nodes should be looked at.
func (c *Provisioner) slots(ctx context.Context, cl *cephv1.CephCluster, stored access.Cluster, seen *ProvisionSeen) error {
	deps, err := kube.List(ctx, c.Cache, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the OSDs' Deployments: %w", err)
	}
	seen.Slots = pending.Of(deps.Items)
	seen.Hosts = map[string]bool{}
	for i := range deps.Items {
		seen.Hosts[spec.HostOf(&deps.Items[i])] = true
	}
	seen.Unsaid = unsaid(ctx, stored, deps.Items, ids(slices.Concat(slices.Collect(maps.Values(seen.Slots))...)))
	seen.Asks, seen.Making = map[string]slotReasons{}, map[string]bool{}
	jobs, err := kube.List(ctx, c.Cache, &batchv1.JobList{}, client.InNamespace(cl.Namespace))
	if err != nil {
		return fmt.Errorf("listing the Jobs of replacements: %w", err)
	}
	watches, attempts := map[string]string{}, map[string][]string{}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		host := j.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]
		switch at := endTime(j); {
		case j.Labels["app"] == spec.WatchApp && !at.IsZero():
			watches[j.Name] = string(j.UID)
		case j.Labels["app"] != spec.MakeApp:
		case at.IsZero():
			seen.Making[host] = true
		case j.Status.Succeeded == 0 || seen.Now.Sub(at) > doubt:
			attempts[host] = append(attempts[host], string(j.UID))
		}
	}
	for _, n := range seen.Resolved.Nodes {
		rep := seen.Reports[n.Name]
		r := slotReasons{Slots: pending.Hash(seen.Slots[n.Name]), After: rep.Labels[pending.AfterLabel], Attempt: rep.Labels[pending.RetryLabel]}
		if uid := watches[spec.WatchName(n.Name)]; uid != "" {
			r.After = uid
		}
		if a := attempts[n.Host]; len(a) > 0 {
			slices.Sort(a)
			r.Attempt = naming.Hash(strings.Join(a, " "))
		}
		seen.Asks[n.Name] = r
	}
	return nil
}

// ids are the OSDs of slots.
func ids(slots []swap.Pending) []int {
	var out []int
	for _, p := range slots {
		out = append(out, p.OSD)
	}
	return out
}

// unsaid are, by hostname label, OSDs that are replaced and have no disk any more, while
// their Deployments do not say which slot is free: the note or a mark was taken away by
// hand. A node that looked at its disks now would make an OSD of somebody else's disk.
// known are the OSDs whose slots the node is told.
func unsaid(ctx context.Context, stored access.Cluster, deps []appsv1.Deployment, known []int) map[string]string {
	out := map[string]string{}
	var m *cephosd.Map
	for i := range deps {
		d := &deps[i]
		id, err := spec.IDOf(d)
		if err != nil || slices.Contains(known, id) || !concerned(d.Annotations) {
			continue
		}
		if m == nil {
			got, why := osdMap(ctx, stored)
			if why != "" {
				out[spec.HostOf(d)] = fmt.Sprintf("osd.%d is being replaced, and Ceph cannot tell how far that is: %s", id, why)
				continue
			}
			m = &got
		}
		rec, recorded := reports.OnDeployment(d)
		if o, exists := m.Find(id); !exists || o.Destroyed() || recorded && o.UUID != rec.UUID {
			out[spec.HostOf(d)] = fmt.Sprintf("osd.%d has given up its disk, and its Deployment does not say at the moment which disk is to take its place", id)
		}
	}
	return out
}

// osdMap asks for it; or why there is no answer.
func osdMap(ctx context.Context, stored access.Cluster) (m cephosd.Map, why string) {
	if stored.Ceph == nil {
		return m, "the cluster has no mons yet"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := cephosd.New(stored.Ceph).Dump(ctx)
	if err != nil {
		return m, err.Error()
	}
	return m, ""
}

// concerned: a replacement was asked for, or goes on.
func concerned(annotations map[string]string) bool {
	return annotations[spec.ReplaceAnnotation] != "" || annotations[spec.MetadataAnnotation] != "" || spec.Replacing(annotations)
}

// allSaid is the check that a node is told of every slot that is free: by what the
// Deployments and Ceph say at that moment.
type allSaid struct {
	host  string
	known []int
}

// String implements kit.Check.
func (a allSaid) String() string { return "every free slot of host " + a.host + " is known" }

// Confirm implements kit.Confirmer.
func (c *Provisioner) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	a, ok := check.(allSaid)
	if !ok {
		return nil, fmt.Errorf("no check %T is known", check)
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return nil, err
	}
	deps, err := kube.List(ctx, c.Access.Live, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return nil, fmt.Errorf("listing the OSDs' Deployments: %w", err)
	}
	mine := slices.DeleteFunc(deps.Items, func(d appsv1.Deployment) bool { return spec.HostOf(&d) != a.host })
	if w := unsaid(ctx, stored, mine, a.known)[a.host]; w != "" {
		return &kit.Wait{Reason: "ReplacingDisks", Message: w, For: time.Second}, nil
	}
	return nil, nil
}
