package observe

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/jobs"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// node reads what the node has reported and done.
func (s *facts) node(v *view.View, d *appsv1.Deployment, seen *Seen) {
	note := s.Note
	s.Close, s.CloseProblem = jobs.CloseState(seen.Jobs.Close, note.UUID, d.Generation, note.Unclosed.Tries(), v.Now)
	s.CloseUncounted, s.CloseRetryAt = jobs.Failing(seen.Jobs.Close, s.Close, note.Unclosed)
	report, told := reportOf(v, s.ID, *note)
	tries := 1
	if note.Attempt != nil {
		tries = note.Attempt.Number
	}
	if said := jobs.Said(v.Pods, seen.Jobs.Make); report == nil && said == "" {
		// Nothing speaks against the disk: the run was cut off, or its report written over.
		tries = min(tries, jobs.UnreportedTries)
	}
	s.Make, s.MakeProblem = jobs.State(seen.Jobs.Make, note.UUID, tries, v.Now)
	if s.Make == plan.Failed {
		at, _, _ := kube.JobEnd(seen.Jobs.Make)
		s.RetryAt = at.Add(jobs.Pause(tries))
	}
	s.Zap, s.ZapProblem = jobs.State(seen.Jobs.Zap, note.UUID, note.Unzapped.Tries(), v.Now)
	s.ZapUncounted, s.ZapRetryAt = jobs.Failing(seen.Jobs.Zap, s.Zap, note.Unzapped)
	s.Hung, s.HungHint = jobs.Hung(v.Pods, v.Now, note.UUID)
	for _, x := range []struct {
		app   string
		state *plan.JobState
	}{{spec.CloseApp, &s.Close}, {spec.MakeApp, &s.Make}, {spec.ZapApp, &s.Zap}} {
		if *x.state == plan.NoJob && jobs.Lingers(v.Pods, x.app, note.UUID) {
			*x.state = plan.Ending
		}
	}
	if _, ok, ended := kube.JobEnd(seen.Jobs.Make); report == nil && ended && !ok {
		s.MakeProblem = strings.TrimSuffix(told+"; "+s.MakeProblem, "; ")
	}
	for _, p := range []struct {
		state plan.JobState
		said  string
		into  *string
	}{{s.Close, jobs.Said(v.Pods, seen.Jobs.Close), &s.CloseProblem}, {s.Make, jobs.Said(v.Pods, seen.Jobs.Make), &s.MakeProblem}, {s.Zap, jobs.Said(v.Pods, seen.Jobs.Zap), &s.ZapProblem}} {
		if p.said != "" && (p.state == plan.Failed || p.state == plan.Retry) {
			*p.into = p.said
		}
	}
	switch n := v.Nodes[note.Node]; {
	case n == nil:
		s.NodeProblem = "node " + note.Node + " does not exist"
	case !view.Ready(n):
		s.NodeProblem = "node " + note.Node + " is not ready"
	}
	for _, r := range v.Records {
		if r.ID == s.ID && r.UUID == s.UUID && r.UUID != note.UUID {
			s.Found, s.FoundOn = true, foundOn(r, *note)
		}
		if r.Node == note.Node {
			seen.New.Others = append(seen.New.Others, r.Result)
		}
	}
	s.verdict(report, note.Attempt)
	if at, _, _ := kube.JobEnd(seen.Jobs.Make); s.Make == plan.Succeeded && s.Found && !s.Proven && v.Now.Sub(at) > jobs.ReportWait {
		s.Make = plan.Retry // its report was written over, as by another OSD's Job that ended with it
	}
	s.set(v)
	s.Taken = taken(v, *note)
	slots := pending.Of(v.All)[note.Node]
	seen.New.Pending = slots
	for _, p := range slots {
		if p.With != "" && (p.OSD == s.ID || s.With == "" && note.Set != nil && note.Set.Has(p.OSD, p.UUID)) {
			s.With = p.With
		}
	}
	seen.New.Named = s.With != ""
	if seen.New.Named && note.Set != nil && note.Set.Kind == plan.OnDisk {
		s.Need = 0 // the user has seen how large it is
	}
	s.behind(v, seen.New.Named)
	if joined := joinedTo(v, *note); len(joined) > 0 && note.Record.DB != nil {
		if first := pending.First(*note, joined); first.Record.DB != nil && first.Record.DB.VG != note.Record.DB.VG {
			seen.Joins = first.Record.DB.VG
		}
	}
	cm := v.Maps[spec.StatusMap(note.Node)]
	seen.New.Report = cm
	if r := report; r != nil && r.Result != request.Done {
		seen.Replaced = r
		s.Volumes = volumes(r, note.Record.DB)
		if s.Make == plan.Failed || s.Make == plan.Retry {
			s.MakeProblem = fmt.Sprintf("%s: %s", r.Reason, r.Message)
		}
	}
	if cm == nil || seen.Jobs.Busy || pending.Hash(slots) == "" || cm.Labels[pending.SlotsLabel] != pending.Hash(slots) {
		return // the node has not been asked about these slots yet
	}
	if devices, err := reports.Devices(cm); err == nil {
		s.Disks = provision.Identities(devices)
	}
	found, err := reports.Swaps(cm)
	if err != nil {
		s.Question = err.Error()
		return
	}
	s.Question = found.Questions[s.ID]
	if m, ok := found.Matches[s.ID]; ok && m.OSD == s.ID && m.Device != "" {
		if seen.New.Named || m.Serial == "" || m.Serial != note.Pull().Serial {
			s.Match = &m
		}
	}
}

// reportOf is what the node has said of the last attempt of an OSD. Where it is nil, why says
// what is there instead: a node keeps one report, of whatever run was the last on it.
func reportOf(v *view.View, id int, note plan.Note) (r *request.Replaced, why string) {
	r = reports.Replaced(v.Maps[spec.StatusMap(note.Node)])
	const cut = "its Job has ended without a report of this attempt"
	switch a := note.Attempt; {
	case r == nil || a == nil:
		return nil, cut
	case r.OSD != id || r.OldUUID != note.UUID:
		return nil, fmt.Sprintf("%s: the one that node %s has is of osd.%d (uuid %s)", cut, note.Node, r.OSD, r.OldUUID)
	case r.Attempt != 0 && r.Attempt != a.Number:
		return nil, fmt.Sprintf("%s, number %d: the one that node %s has is of number %d", cut, a.Number, note.Node, r.Attempt)
	case r.Device != note.DataDevice():
		return nil, fmt.Sprintf("%s: the one that node %s has is of the disk %s", cut, note.Node, r.Device)
	}
	return r, ""
}

// Unproven is the uuid of an OSD that a node has not called whole after it tried to make it.
// A look at the node's disks finds it by its tags all the same: one whose mkfs was cut off, or
// an encrypted one that would be lost with the next restart. "none" for no such uuid.
func Unproven(r *request.Replaced) string {
	if r == nil || r.Result == request.Done || r.Reason == request.SiblingChanged || r.SlotUUID == "" {
		return "none"
	}
	return r.SlotUUID
}

// verdict is what the node has said of the new OSD, now or when it was noted.
func (s *facts) verdict(r *request.Replaced, a *plan.Attempt) {
	no := Unproven(r) == s.UUID
	s.Unproven = no && a != nil && a.Unproven != s.UUID
	if no || a != nil && a.Unproven == s.UUID {
		s.Found = false
	}
	s.Proven = a != nil && a.Proven != "" && a.Proven == s.UUID
	if r == nil {
		return
	}
	if r.Result == request.Done && r.UUID == s.UUID || r.Reason == request.SiblingChanged && r.SlotUUID == s.UUID {
		s.Proven = true
	}
	s.Fault = fault(*r)
}

// fault reports whether an attempt has failed through its disk after it had changed something
// in Ceph: what kept it from beginning is not counted against the disk, nor that the node or
// Ceph could not be looked at, nor what is wrong with the volumes of others.
func fault(r request.Replaced) bool {
	if r.Result != request.Failed || r.Slot != request.SlotNew && r.Slot != request.SlotGone {
		return false
	}
	switch r.Reason {
	case request.NodeUnreadable, request.SiblingChanged, request.MappingOpen, request.DBMissing, request.DBForeign, request.SlotLive, request.SlotClaimed:
		return false
	}
	return true
}

// foundOn is the disk that carries a new OSD: that of its database, where that is what is
// replaced.
func foundOn(r osdplan.Record, note plan.Note) *swap.Match {
	part := plan.Note{Record: r.Result, Set: note.Set}.Pull()
	device := part.Path
	switch {
	case part.ByID != "":
		device = part.ByID
	case part.ByPath != "":
		device = part.ByPath
	case part.Disk != "":
		device = "/dev/" + part.Disk
	}
	return &swap.Match{OSD: r.ID, Device: device, Serial: part.Serial, Proof: "it carries the OSD"}
}

// taken says which other OSDs are on a disk that is in the slot of the one to pull now. What
// is on the disk to pull itself does not count, nor what is not in Ceph any more.
func taken(v *view.View, note plan.Note) string {
	pull := note.Pull()
	if pull.ByPath == "" {
		return ""
	}
	var disk prepare.Part
	var names []string
	for _, r := range v.Records {
		if r.Node != note.Node || r.ID == note.Record.ID || !lives(v, r) {
			continue
		}
		for _, p := range []*prepare.Part{&r.Data, r.DB, r.WAL} {
			name := fmt.Sprintf("osd.%d", r.ID)
			if p == nil || p.ByPath != pull.ByPath || check.SameDisk(*p, pull) || slices.Contains(names, name) {
				continue
			}
			disk, names = *p, append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("in the slot %s is %s by now, with %s on it", strings.TrimPrefix(pull.ByPath, "/dev/disk/by-path/"), diskName(disk), strings.Join(names, ", "))
}

func diskName(p prepare.Part) string {
	if p.Serial != "" {
		return "the disk with serial " + p.Serial
	}
	return "another disk"
}

// volumes says how a failed attempt has left the volumes that it did not want to change.
func volumes(r *request.Replaced, db *prepare.Part) string {
	var parts []string
	if len(r.Remade) > 0 {
		parts = append(parts, "made again with the same size, since the rollback had removed them: "+strings.Join(r.Remade, ", "))
	} else if r.DB != nil && db != nil && r.DB.UUID != "" && r.DB.UUID == db.LVUUID {
		parts = append(parts, fmt.Sprintf("its database volume %s/%s is kept", r.DB.VG, r.DB.Name))
	}
	var same []string
	for _, sib := range r.Siblings {
		switch name := fmt.Sprintf("osd.%d", sib.OSD); {
		case sib.Changed != "":
			parts = append(parts, fmt.Sprintf("WARNING: the volume %s/%s of %s is not as it was: %s", sib.VG, sib.LV, name, sib.Changed))
		case !slices.Contains(same, name):
			same = append(same, name)
		}
	}
	if len(same) > 0 {
		parts = append(parts, "the volumes of "+strings.Join(same, ", ")+" beside it were checked and are as they were")
	}
	return strings.Join(parts, "; ")
}
