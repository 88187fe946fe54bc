package jobs

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// Inputs are what a new Job of a replacement is built from, beside the state.
type Inputs struct {
	Cluster podspec.Cluster
	// Generation of the OSD's Deployment.
	Generation int64
	// MonHost is the mons' addresses as ceph.conf has them.
	MonHost   string
	AllowLoop bool
	// Report is the status ConfigMap of the node, nil where it has none.
	Report *corev1.ConfigMap
	// Others are the OSDs that the node has reported.
	Others []prepare.Result
	// Pending are all slots of the node that wait for a disk.
	Pending []swap.Pending
	// Named: the user has named the new disk.
	Named bool
}

// Build makes the Job of a step; nil for steps that make none. An error is that of encoding
// what the node is told.
func Build(k plan.Kind, cl *cephv1.CephCluster, in Inputs, s plan.State) (*batchv1.Job, error) {
	if k != plan.Close && k != plan.Make && k != plan.Prove && k != plan.Zap {
		return nil, nil
	}
	note, id := s.Note, s.ID
	user := podspec.UserOf(&cl.Spec, cephv1.KeyOSDPrepare, cephv1.ResourcesKeyPrepareOSD)
	user.Placement.Tolerations = append(user.Placement.Tolerations, cl.Spec.Placement[cephv1.KeyOSD].Tolerations...)
	n := spec.NodeJob{Host: note.Host, UUID: note.UUID, User: user}
	switch k {
	case plan.Close:
		n.Name, n.App, n.Command, n.Retries, n.Deadline = spec.CloseName(id), spec.CloseApp, "close", 1, closeDeadline
		n.Request = request.Close{OSD: id, UUID: note.UUID, LVs: note.LVs()}
	case plan.Zap:
		n.Name, n.App, n.Command, n.Retries, n.Deadline = spec.ZapName(id), spec.ZapApp, "zap", 1, closeDeadline
		n.Request = request.Zap{OSD: id, UUID: note.UUID, LVs: note.Left()}
	case plan.Make, plan.Prove:
		n.Name, n.App, n.Command, n.Deadline = spec.MakeName(id), spec.MakeApp, "replace", makeDeadline
		n.Writes, n.Reports = true, true
		n.Request = in.replaceRequest(s)
	}
	job, err := spec.NodeJobOf(in.Cluster, n)
	if err != nil {
		return nil, fmt.Errorf("building the Job %s: %w", n.Name, err)
	}
	job.Annotations = map[string]string{generationAnnotation: strconv.FormatInt(in.Generation, 10)}
	return job, nil
}

// replaceRequest is what the node is told: what was recorded of the old OSD, not what
// today's spec would make of a new one.
func (in Inputs) replaceRequest(s plan.State) request.Replace {
	note := s.Note
	r := request.Replace{
		Namespace: in.Cluster.Namespace, Node: note.Node, ConfigMap: spec.StatusMap(note.Node), FSID: in.Cluster.FSID, MonHost: in.MonHost,
		OSD: s.ID, OldUUID: note.UUID, Attempt: s.Note.Attempt.Number, Device: s.Note.Attempt.Device, Serial: s.Note.Attempt.Serial,
		Mode: note.Record.Mode, Encrypted: note.Record.Encrypted, DB: plan.LV(note.Record.DB), WAL: plan.LV(note.Record.WAL),
		DeviceClass: note.Before.Class, AllowLoop: in.AllowLoop,
	}
	if !in.Named {
		// Ceph weighs the OSD by the size it had. A disk that is smaller would be overfilled;
		// makers differ by less than a hundredth.
		r.MinSize = note.Record.Data.Size - note.Record.Data.Size/100
	}
	share(&r, *note, s)
	if in.Report != nil {
		r.Labels = pending.Labels(in.Report.Labels)
	}
	for _, p := range in.Pending {
		if p.OSD != s.ID {
			r.Pending = append(r.Pending, p)
		}
	}
	r.Siblings = siblings(*note, in.Others)
	return r
}

// share makes the request one of several for one disk.
func share(r *request.Replace, note plan.Note, s plan.State) {
	switch {
	case note.Set == nil:
	case note.Set.Kind == plan.OnMetadata:
		// The disk of the data stays: only a volume that is proven to be the destroyed OSD's
		// gives way on it.
		r.DBDevice, r.DBSerial = note.Attempt.Device, note.Attempt.Serial
		r.Device, r.Serial, r.MinSize = note.DataDevice(), note.Record.Data.Serial, 0
		r.Data = plan.LV(&note.Record.Data)
		for _, lv := range []*request.LV{r.DB, r.WAL} {
			if lv != nil && note.Attempt.VG != "" {
				lv.VG = note.Attempt.VG
			}
		}
	default:
		r.Set = note.Attempt.Set
		if r.MinSize > 0 {
			r.MinSize = s.Need
		}
	}
}

// siblings are the OSDs whose volumes share a volume group with the database or WAL, and
// survive with it.
func siblings(note plan.Note, others []prepare.Result) []request.Sibling {
	rec, groups := note.Record, map[string]bool{}
	if note.Set != nil && note.Set.Kind == plan.OnMetadata {
		return nil
	}
	for _, p := range []*prepare.Part{rec.DB, rec.WAL} {
		if v := plan.LV(p); v != nil {
			groups[v.VG] = true
		}
	}
	var out []request.Sibling
	for _, o := range others {
		sib := request.Sibling{OSD: o.ID, UUID: o.UUID}
		for _, p := range []*prepare.Part{&o.Data, o.DB, o.WAL} {
			if v := plan.LV(p); v != nil && groups[v.VG] {
				sib.LVs = append(sib.LVs, *v)
			}
		}
		if o.ID != rec.ID && len(sib.LVs) > 0 {
			out = append(out, sib)
		}
	}
	return out
}
