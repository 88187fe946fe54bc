// Package plan decides which ClientProfileReplication is in effect for a client
// profile, and why every other one is not. Both controllers that need to know
// (of ClientProfileReplications, and of the drivers' configuration) ask this one
// function, so they can never disagree.
//
// The decision comes from specs and metadata alone. A phase that is stored in a
// status is never read: it may speak of an older spec, or of two at a time. The
// package is pure; it must not read, write, or remember anything.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/handle"
)

// Reasons of a Verdict, one word each for programs.
const (
	ReasonAccepted        = "Accepted"
	ReasonConflict        = "Conflict"
	ReasonProfileNotFound = "ClientProfileNotFound"
	ReasonProfileDeleting = "ClientProfileDeleting"
	ReasonDeleting        = "Deleting"
	ReasonInvalid         = "InvalidSpec"
)

// Verdict is what became of one ClientProfileReplication.
type Verdict struct {
	// Phase is Ready or Rejected.
	Phase string
	// Reason is one of the constants above.
	Reason string
	// Message is for people, in the words of the design.
	Message string
	// Field is the path of the field that is wrong, for ReasonInvalid.
	Field string
}

// Accepted tells whether this is the one in effect.
func (v Verdict) Accepted() bool { return v.Reason == ReasonAccepted }

// Decision is the answer for one profile.
type Decision struct {
	// Winner is the replication in effect, or nil.
	Winner *csiv1.ClientProfileReplication
	// Verdicts has one entry for every replication of the profile, by name.
	Verdicts map[string]Verdict
}

// Decide judges the replications of one namespace that refer to the profile of
// that name; others in all are not looked at. profile is nil if there is none.
//
// The oldest wins, by creation time and then by name. One that is being deleted
// does not win, nor does one that could only lead to wrong handles, nor one that
// was made after the deletion of its profile began.
func Decide(name string, profile *csiv1.ClientProfile, all []csiv1.ClientProfileReplication) Decision {
	d := Decision{Verdicts: map[string]Verdict{}}
	var candidates []*csiv1.ClientProfileReplication
	for i := range all {
		r := &all[i]
		if r.Spec.LocalClientProfile != name {
			continue
		}
		v, ok := alone(r, name, profile)
		if ok {
			candidates = append(candidates, r)
			continue
		}
		d.Verdicts[r.Name] = v
	}
	if len(candidates) == 0 {
		return d
	}
	d.Winner = slices.MinFunc(candidates, older).DeepCopy()
	for _, r := range candidates {
		d.Verdicts[r.Name] = rejected(ReasonConflict,
			"another ClientProfileReplication '%s' is already active for localClientProfile '%s'", d.Winner.Name, name)
	}
	d.Verdicts[d.Winner.Name] = Verdict{Phase: csiv1.ClientProfileReplicationPhaseReady, Reason: ReasonAccepted, Message: "accepted"}
	return d
}

// older orders by creation time, then by name. Two objects of the same second are
// common: both halves of a manifest are applied at once.
func older(a, b *csiv1.ClientProfileReplication) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// alone judges a replication without its rivals. ok means that it may win.
func alone(r *csiv1.ClientProfileReplication, name string, profile *csiv1.ClientProfile) (v Verdict, ok bool) {
	switch {
	case profile == nil:
		return rejected(ReasonProfileNotFound, "ClientProfile '%s' not found", name), false
	case !r.DeletionTimestamp.IsZero():
		return rejected(ReasonDeleting, "this ClientProfileReplication is being deleted"), false
	case begunBefore(profile.DeletionTimestamp, r.CreationTimestamp):
		return rejected(ReasonProfileDeleting, "ClientProfile '%s' is being deleted", name), false
	}
	if field, problem := Validate(&r.Spec); problem != "" {
		v := rejected(ReasonInvalid, "%s: %s", field, problem)
		v.Field = field
		return v, false
	}
	return Verdict{}, true
}

// begunBefore tells whether a deletion began before something was created.
func begunBefore(deletion *metav1.Time, created metav1.Time) bool {
	return !deletion.IsZero() && deletion.Time.Before(created.Time)
}

func rejected(reason, format string, args ...any) Verdict {
	return Verdict{Phase: csiv1.ClientProfileReplicationPhaseRejected, Reason: reason, Message: "rejected: " + fmt.Sprintf(format, args...)}
}

// Validate gives the first field of a spec with which no usable handle could be
// composed, and what is wrong with it. Empty strings mean that there is none.
// The schema refuses most of this; objects stored under an older schema, and
// lists with one pool twice, come to here.
func Validate(spec *csiv1.ClientProfileReplicationSpec) (field, problem string) {
	switch n := len(spec.RemoteClientProfile); {
	case n == 0:
		return "spec.remoteClientProfile", "must not be empty; write the name of the client profile in the destination cluster"
	case n > handle.MaxClusterID:
		return "spec.remoteClientProfile", fmt.Sprintf("has %d bytes, a volume handle can hold %d; use a shorter profile name in the destination cluster", n, handle.MaxClusterID)
	}
	if spec.RBD == nil {
		return "", ""
	}
	seen := map[string]int{}
	for i, p := range spec.RBD.PoolMapping {
		at := "spec.rbd.poolMapping[" + strconv.Itoa(i) + "]"
		if p.Name == "" {
			return at + ".name", "must not be empty; write the name of the mirrored pool"
		}
		if first, twice := seen[p.Name]; twice {
			return at + ".name", fmt.Sprintf("pool '%s' is listed twice, first as poolMapping[%d]; list it once", p.Name, first)
		}
		seen[p.Name] = i
		if !IsPoolID(p.RemoteID) {
			return at + ".remoteID", fmt.Sprintf("'%s' is no pool id; write a decimal number from 1 to %d, as `ceph osd pool ls detail` prints it", p.RemoteID, math.MaxInt64)
		}
	}
	return "", ""
}

// IsPoolID tells whether s is the id of a pool as Ceph prints it: digits without a
// leading zero, from 1 to 2^63-1.
func IsPoolID(s string) bool {
	if s == "" || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return false
	}
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

// Warnings says what is legal in a spec and almost surely not meant.
func Warnings(spec *csiv1.ClientProfileReplicationSpec) []string {
	if spec.RBD == nil {
		return nil
	}
	var list []string
	first := map[string]string{}
	for _, p := range spec.RBD.PoolMapping {
		if other, shared := first[p.RemoteID]; shared {
			list = append(list, fmt.Sprintf("pools '%s' and '%s' both lead to remote pool %s", other, p.Name, p.RemoteID))
			continue
		}
		first[p.RemoteID] = p.Name
	}
	return list
}

// AbsentPools says which mapped pools the local cluster does not have. exists tells.
func AbsentPools(spec *csiv1.ClientProfileReplicationSpec, exists func(pool string) bool) []string {
	if spec.RBD == nil {
		return nil
	}
	var list []string
	for _, p := range spec.RBD.PoolMapping {
		if !exists(p.Name) {
			list = append(list, fmt.Sprintf("pool '%s' does not exist in the local cluster; if it was renamed, its volumes are looked for under their local pool id in the destination", p.Name))
		}
	}
	return list
}

// Referrers gives the names of all replications that refer to a profile, whatever
// became of them: each of them keeps the profile from being deleted, also while
// it is being deleted itself.
func Referrers(name string, all []csiv1.ClientProfileReplication) []string {
	var names []string
	for _, r := range all {
		if r.Spec.LocalClientProfile == name {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// BlockedMessage says why a profile cannot be deleted, in the words of the design.
func BlockedMessage(referrers []string) string {
	return "cannot delete: ClientProfileReplication CRs still reference this profile: [" + strings.Join(referrers, ", ") + "]"
}
