package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
)

const (
	oldUUID = "11111111-0000-4000-8000-000000000000"
	newUUID = "22222222-0000-4000-8000-000000000000"
	zero    = "00000000-0000-0000-0000-000000000000"
)

func note(change ...func(*plan.Note)) *plan.Note {
	n := plan.Note{
		UUID: oldUUID, Node: "n1", Host: "n1",
		Record: prepare.Result{ID: 5, UUID: oldUUID, Mode: "lvm", Data: prepare.Part{Path: "/dev/sdb", Serial: "OLD", LV: "block", VG: "data"}},
		Before: plan.Before{In: true, Reweight: 1, CrushWeight: 1, Replicas: 1},
	}
	for _, c := range change {
		c(&n)
	}
	return &n
}

func encrypted(n *plan.Note) { n.Record.Encrypted = true }
func drained(n *plan.Note)   { n.Drain = &plan.Drain{PGs: 10, Bytes: 1 << 30} }
func withDB(n *plan.Note)    { n.Record.DB = &prepare.Part{VG: "fast", LV: "db", LVUUID: "db-1"} }
func tried(n *plan.Note)     { n.Attempt = &plan.Attempt{Number: 1, Device: "/dev/sdx", Serial: "NEW"} }
func failed(n *plan.Note)    { tried(n); n.Attempt.Failed = "mkfs failed" }
func lost(n *plan.Note)      { failed(n); n.SlotLost = true }
func worn(n *plan.Note)      { failed(n); n.Attempt.Faults, n.Attempt.With = 5, "/dev/disk/by-id/new" }
func unproven(n *plan.Note)  { failed(n); n.Attempt.Unproven = newUUID }
func recognized(n *plan.Note) {
	tried(n)
	n.Attempt.Recognized = true
}
func replaced(n *plan.Note) { n.Replaced = newUUID }
func wasOut(n *plan.Note)   { n.Before.In, n.Before.Reweight = false, 0 }

func settled(n *plan.Note) { n.CancelRefused, n.Disks = true, []string{"x"} }

// noted walks through notes, each also as that of an encrypted OSD with a database,
// and through none.
func noted(changes ...func(*plan.Note)) field {
	all := []*plan.Note{nil, note(), note(encrypted, withDB)}
	for _, c := range changes {
		all = append(all, note(c), note(c, encrypted, withDB))
	}
	return set(all, func(s *plan.State, v *plan.Note) {
		if s.Note = v; s.NoteProblem != "" {
			s.Note = nil
		}
	})
}

// check holds an action against the invariants D1 to D6 of a replacement. It is
// written without looking at Next: it only knows what must be true for an effect.
func check(s plan.State, a plan.Action) error {
	if a.Kind == plan.None {
		return nil
	}
	old := s.Exists && !s.Destroyed && s.Note != nil && s.UUID == s.Note.UUID
	need := func(ok bool, what string) error {
		if !ok {
			return fmt.Errorf("%s although not: %s", a.Kind, what)
		}
		return nil
	}
	all := func(errs ...error) error {
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	quiet := map[plan.Kind]bool{plan.None: true, plan.Wait: true}
	if quiet[a.Kind] {
		if a.Kind == plan.Wait && (a.Message == "" || a.Reason == "" || a.Phase == "") {
			return fmt.Errorf("a wait that says nothing: %+v", a)
		}
		return nil
	}
	if err := need(s.Answered || a.Kind == plan.Unrefuse, "Ceph answers"); err != nil {
		return err // what is not known changes nothing
	}
	if a.Kind != plan.Refuse && a.Kind != plan.Unrefuse && a.Kind != plan.Accept && a.Kind != plan.Adopt {
		if err := need(s.Note != nil && s.NoteProblem == "", "what is replaced is noted"); err != nil {
			return err
		}
	}
	switch a.Kind {
	case plan.Accept:
		return all(need(s.Asked, "asked"), need(s.Refusal == nil && s.Unchecked == "", "checked"), need(!s.Fenced, "left alone by its user"), need(s.FreshProblem == "", "the disk is recorded"))
	case plan.Out:
		return all(need(old, "the OSD is the noted one"), need(s.Asked && s.InProgress && s.Fenced, "requested, marked and fenced"), need(s.Turn == "" || s.Loss && deadSet(s), "its turn"), need(s.Note.Drain != nil, "the start is noted"),
			need(gathered(s), "all of the set are claimed and asked for"))
	case plan.Stop:
		return all(need(old && !s.In, "out"), need(s.Asked, "asked"), need(s.Safety == plan.Safe, "safe to destroy"), need(s.Replicas > 0, "running"),
			need(gathered(s), "all of the set are claimed and asked for"), need(every(s, func(m plan.Mate) bool { return !m.In && m.Safe == plan.Safe }), "the whole set is out and safe"))
	case plan.Bury:
		return all(need(old && !s.In, "out"), need(s.Asked && gathered(s), "asked"), need(s.Replicas > 0, "still wanted"), need(s.Loss && deadSet(s), "accepted, and dead"),
			need(s.Note.Dead != nil && s.LongDead, "dead for long"), need(s.Settled, "all is saved that can be"))
	case plan.Force:
		return all(need(old && !s.In && !s.Up, "out and down"), need(s.Asked && s.InProgress && s.Fenced && gathered(s), "requested, marked and fenced"), need(!s.Ready, "nobody may pull it yet"),
			need(s.Loss && deadSet(s), "accepted, and dead"), need(s.Note.Dead != nil && s.LongDead, "dead for long, by its own"), need(s.Settled, "all is saved that can be"),
			need(s.Replicas == 0 && len(s.Pods) == 0, "no pod"), need(every(s, func(m plan.Mate) bool { return m.Dead && m.Stopped && !m.Running }), "the whole set is dead and stopped"),
			need(!s.Note.Record.Encrypted || s.Close == plan.Succeeded, "mappings proven closed"), need(s.Safety != plan.Safe, "needed"))
	case plan.Enlist:
		i := slices.IndexFunc(s.Mates, func(m plan.Mate) bool { return m.ID == a.Mate })
		return all(need(i >= 0, "of the set"), need(s.Leads && s.Asked && s.Note.Set.Kind == plan.OnMetadata, "asked for on this OSD"), need(!s.Mates[i].Gone && !s.Mates[i].Claimed && s.Mates[i].Why == "", "free to be claimed"), need(len(s.Strangers) == 0, "whole"))
	case plan.Mourn:
		return all(need(old && s.Loss && deadSet(s), "accepted, and dead"), need(s.Replicas > 0, "wanted to run"), need(s.Note.Dead == nil, "not noted"), need(!s.In, "out"))
	case plan.Revive:
		return need(old && s.Note.Dead != nil && (!s.Loss || !deadSet(s)), "alive, or not accepted any more")
	case plan.Weigh:
		return all(need(s.Note.Replaced != "" && s.Exists && s.Up && s.In, "the new OSD"), need(s.Weigh > 0, "another weight"))
	case plan.Down:
		return all(need(old && !s.In && s.Asked, "out and asked"), need(s.Replicas == 0 && len(s.Pods) == 0, "stopped"))
	case plan.Destroy:
		return all(
			need(old, "the OSD is the noted one"), need(s.Asked && s.InProgress && s.Fenced, "requested, marked and fenced"),
			need(!s.Up && !s.In, "down and out"), need(s.Replicas == 0 && len(s.Pods) == 0, "no pod"), need(s.Safety == plan.Safe, "safe to destroy"),
			need(!s.Note.Record.Encrypted || s.Close == plan.Succeeded, "mappings proven closed"), need(!s.Ready, "still in use, so nobody may pull it"),
			need(gathered(s), "all of the set are claimed and asked for"), need(every(s, func(m plan.Mate) bool { return m.Stopped }), "the whole set is stopped"),
		)
	case plan.Close:
		return all(need(old && s.Asked && s.Note.Record.Encrypted, "an encrypted OSD that is replaced"), need(len(s.Pods) == 0 && s.Replicas == 0, "no pod"), need(s.Close == plan.NoJob, "no other Job"))
	case plan.Show:
		return all(need(!s.Exists || s.Destroyed, "destroyed"), need(s.Replicas == 0 && len(s.Pods) == 0, "no pod"), need(s.Close == plan.NoJob, "the closing Job is gone"),
			need(every(s, func(plan.Mate) bool { return false }), "no OSD is left on it"))
	case plan.Claim, plan.Make:
		if slices.ContainsFunc(s.Mates, func(m plan.Mate) bool { return m.Lost }) && (s.Note.Set.Kind == plan.OnDisk || !s.Begun) {
			return fmt.Errorf("%s while another's share is forgotten", a.Kind)
		}
		if spent(s) {
			return fmt.Errorf("%s on a disk that was given up", a.Kind)
		}
		if at := s.Note.Attempt; s.Match == nil && s.Note.Set != nil && at != nil && (s.Note.Set.Kind == plan.OnMetadata || slices.ContainsFunc(s.Mates, func(m plan.Mate) bool { return m.Made })) {
			// The disk that was claimed before, on which others of the set may be.
			s.Match, s.Question = &swap.Match{Device: at.Device, Serial: at.Serial}, ""
		}
		if a.Kind == plan.Make {
			if slices.ContainsFunc(s.Mates, func(m plan.Mate) bool { return m.Claimed && m.Gone && !m.Made && m.Making }) {
				return fmt.Errorf("two are made on one disk at a time")
			}
		}
		return all(need(!s.Exists || s.Destroyed, "a free slot"), need(s.Match != nil, "a proven disk"), need(s.Question == "", "clear"),
			need(s.Make == plan.NoJob, "no other Job"), need(s.Ready && s.InProgress && s.Fenced, "shown to the user"), need(s.Abandon != plan.ConfirmedAbandon, "not given up"),
			need(s.Replicas == 0 && len(s.Pods) == 0, "no pod"), need(s.Exists || s.Note.Attempt != nil, "a slot that was lost by us"),
			need(a.Kind == plan.Claim || s.Note.Attempt != nil && s.Note.Attempt.Device == s.Match.Device && s.Note.Attempt.Serial == s.Match.Serial, "the claimed disk"))
	case plan.Handover:
		return all(need(s.Exists && !s.Destroyed && s.UUID != s.Note.UUID && s.UUID != zero, "a new uuid in Ceph's map"), need(s.Found, "found on a disk"), need(s.Proven, "proven by the node"),
			need(s.Replicas == 0 && len(s.Pods) == 0, "the old pod is gone"), need(s.Make != plan.Running, "the Job has ended"),
			need(s.Note.Set == nil || s.Note.Set.Kind == plan.OnMetadata || !slices.ContainsFunc(s.Mates, func(m plan.Mate) bool { return m.Claimed && !m.Made }), "the whole disk is made"))
	case plan.Failure:
		return all(need(s.Make != plan.Running && s.Make != plan.Ending && s.Make != plan.Stale, "the Job has ended"), need(s.Note.Attempt == nil || s.Note.Attempt.Failed == "" || s.Unproven, "not noted yet"))
	case plan.Complete:
		return all(need(s.Note.Replaced != "", "rebuilt"), need(s.Up && s.In, "up and in"), need(s.Make == plan.NoJob || s.Make == plan.Ending, "no Job is left"))
	case plan.In, plan.Reweight:
		return all(need(old && !s.Asked, "taken back"), need(s.Note.Before.In, "in before"), need(s.Close == plan.NoJob, "no Job closes mappings"))
	case plan.Release:
		return all(need(old && !s.Asked, "taken back"), need(s.Close == plan.NoJob, "no Job closes mappings"), need(!s.Ready, "no marks"), need(s.In || !s.Note.Before.In, "in as before"))
	case plan.Reclaim:
		return all(need(s.Exists && s.New && !s.Up && s.UUID != s.Note.UUID, "never started"), need(s.Safety == plan.Safe || s.Void, "safe, or without data"), need(s.Note.Attempt != nil, "ours"), need(!s.Found || !s.Proven && s.Abandon == plan.ConfirmedAbandon, "on no disk"),
			need(!s.Note.Attempt.Recognized || s.Abandon == plan.ConfirmedAbandon || s.Note.Attempt.Unproven != s.UUID, "made by us"),
			need(s.Make != plan.Running && s.Make != plan.Ending && s.Replicas == 0 && len(s.Pods) == 0, "nobody works on it"),
			need(s.Make == plan.Retry || spent(s) || s.Abandon == plan.ConfirmedAbandon || s.Note.Attempt.Failed != "" && (s.Abandon == plan.ConfirmedAbandon || s.Make == plan.NoJob || s.Make == plan.Failed && s.Question == "" && s.Match != nil && s.Match.Serial != s.Note.Attempt.Serial), "the next try is due, or another disk is proven"))
	case plan.Purge:
		return all(need(s.Exists && s.Destroyed, "destroyed"), need(s.Abandon == plan.ConfirmedAbandon, "confirmed"), need(s.Safety == plan.Safe || s.Void, "safe, or without data"), need(len(s.Pods) == 0 && s.Replicas == 0, "no pod"))
	case plan.Unclosed:
		return all(need(old && s.Asked, "an OSD that is replaced"), need(s.CloseUncounted && (s.Close == plan.Failed || s.Close == plan.Retry), "a failure that is not noted"))
	case plan.Unclose:
		return need((s.Close != plan.Failed && s.Close != plan.Retry || !s.CloseUncounted) || !old || !s.Asked, "the failure is noted")
	case plan.Unzapped:
		return all(need(!s.Exists && s.Abandon == plan.ConfirmedAbandon, "given up"), need(s.ZapUncounted && (s.Zap == plan.Failed || s.Zap == plan.Retry), "a failure that is not noted"))
	case plan.Tell:
		return all(need(a.Told != "" && a.Told != s.Note.Told, "news"), need(!s.Exists || s.Destroyed, "a free slot"), need(a.Told != s.Taken || s.With == "", "nobody has decided"))
	case plan.Find, plan.Prove:
		return all(need(s.Exists && !s.Destroyed && s.UUID != s.Note.UUID, "a new uuid in Ceph's map"), need(s.Found && !s.Proven, "found, and not proven"), need(s.Make == plan.NoJob || a.Kind == plan.Find, "no other Job"),
			need(s.Make != plan.Running && s.Make != plan.Ending, "the Job has ended"), need(s.Replicas == 0 && len(s.Pods) == 0, "no pod"), need((s.Note.Attempt == nil) == (a.Kind == plan.Find), "the disk is noted first"))
	case plan.Unname:
		return all(need(spent(s), "given up"), need(s.With == "" && s.Note.Attempt.With != "", "the name is gone"))
	case plan.Proof:
		return need(s.Found && s.Proven && s.Note.Attempt.Proven != s.UUID, "proven, and not noted")
	case plan.Zap:
		return all(need(!s.Exists, "purged"), need(s.Abandon == plan.ConfirmedAbandon, "confirmed"), need(s.Note.Record.DB != nil || s.Note.Record.WAL != nil || s.Note.Set != nil, "volumes"))
	case plan.Remove:
		return all(need(!s.Exists, "not in Ceph"), need(len(s.Pods) == 0 && s.Replicas == 0, "no pod"), need(s.Abandon == plan.ConfirmedAbandon || s.Note.Attempt == nil, "not lost by us"))
	case plan.Halt:
		return need(!old, "not the running OSD")
	case plan.Fence:
		return need(s.Asked || !old, "asked")
	}
	return nil
}

// spent: the last disk has failed five times, nobody has named it since, and no other is there.
func spent(s plan.State) bool {
	a := s.Note.Attempt
	return a != nil && a.Failed != "" && a.Faults >= 5 && (s.With == "" || s.With == a.With) && (s.Match == nil || s.Match.Serial == a.Serial)
}

// deadSet: nothing of the set runs, on a node that is well.
func deadSet(s plan.State) bool {
	return s.Note.Set != nil && s.Note.Set.Kind == plan.OnMetadata && s.NodeProblem == "" && !s.Up && !s.PodReady && every(s, func(m plan.Mate) bool { return !m.Running })
}

// every says that f holds for all others of the set that Ceph still has.
func every(s plan.State, f func(plan.Mate) bool) bool {
	return !slices.ContainsFunc(s.Mates, func(m plan.Mate) bool { return !m.Gone && !f(m) })
}

func gathered(s plan.State) bool {
	return len(s.Strangers) == 0 && every(s, func(m plan.Mate) bool { return m.Claimed && m.Asked })
}

// field is one field of the state with the values that it is walked through.
type field struct {
	n   int
	put func(s *plan.State, i int)
}

// walk calls f with every state that the fields' values can make.
func walk(fields []field, s *plan.State, f func(*plan.State)) {
	if len(fields) == 0 {
		f(s)
		return
	}
	for i := range fields[0].n {
		fields[0].put(s, i)
		walk(fields[1:], s, f)
	}
}

func set[T any](values []T, put func(*plan.State, T)) field {
	return field{len(values), func(s *plan.State, i int) { put(s, values[i]) }}
}

func either(put func(*plan.State, bool)) field { return set([]bool{false, true}, put) }

func always(put func(*plan.State)) field {
	return field{1, func(s *plan.State, _ int) { put(s) }}
}

type slot int

const (
	gone slot = iota
	free
	oldOSD
	newOSD
)

func osd(kinds ...slot) field {
	return set(kinds, func(s *plan.State, k slot) {
		s.Exists, s.Destroyed, s.UUID = k != gone, k == free, map[slot]string{gone: "", free: zero, oldOSD: oldUUID, newOSD: newUUID}[k]
	})
}

var (
	asked      = either(func(s *plan.State, v bool) { s.Asked = v })
	inProgress = either(func(s *plan.State, v bool) { s.InProgress = v })
	ready      = either(func(s *plan.State, v bool) { s.Ready = v })
	fenced     = either(func(s *plan.State, v bool) { s.Fenced = v })
	up         = either(func(s *plan.State, v bool) { s.Up = v })
	in         = either(func(s *plan.State, v bool) { s.In = v })
	answered   = either(func(s *plan.State, v bool) { s.Answered = v })
	isNew      = either(func(s *plan.State, v bool) { s.New = v })
	found      = set([]int{0, 1, 2, 3}, func(s *plan.State, v int) { s.Found, s.Proven, s.Unproven = v == 1 || v == 2, v == 2, v == 3 })
	whole      = either(func(s *plan.State, v bool) { s.Found, s.Proven = v, v })
	with       = set([]string{"", "/dev/disk/by-id/new", "/dev/disk/by-id/newer"}, func(s *plan.State, v string) { s.With = v })
	usage      = either(func(s *plan.State, v bool) { s.Usage = v })
	stuck      = either(func(s *plan.State, v bool) { s.Stuck = v })
	running    = set([]int32{0, 1}, func(s *plan.State, v int32) { s.Replicas = v })
	podsThere  = set([][]string{nil, {"rook-ceph-osd-5-x"}}, func(s *plan.State, v []string) { s.Pods = v })
	turn       = set([]string{"", "osd.3 first"}, func(s *plan.State, v string) { s.Turn = v })
	node       = set([]string{"", "node n1 is not ready"}, func(s *plan.State, v string) { s.NodeProblem = v })
	question   = set([]string{"", "which?"}, func(s *plan.State, v string) { s.Question = v })
	safety     = set([]plan.Answer{plan.Unknown, plan.Unsafe, plan.Safe}, func(s *plan.State, v plan.Answer) { s.Safety = v })
	unsure     = set([]int{0, 1, 2, 3}, func(s *plan.State, v int) {
		s.Safety, s.Void = []plan.Answer{plan.Unknown, plan.Unsafe, plan.Safe, plan.Unsafe}[v], v == 3
	})
	takenBy   = set([]string{"", "in the slot p1 is the disk with serial Y by now, with osd.6 on it"}, func(s *plan.State, v string) { s.Taken = v })
	abandoned = set([]plan.Abandon{plan.NoAbandon, plan.WrongAbandon, plan.ConfirmedAbandon}, func(s *plan.State, v plan.Abandon) { s.Abandon = v })
	// Failed and Retry also as failures that the note does not count yet.
	closing = set(append(plan.JobStates(), -plan.Failed, -plan.Retry), func(s *plan.State, v plan.JobState) {
		if s.Close, s.CloseUncounted = v, v < 0; v < 0 {
			s.Close = -v
		}
	})
	making  = set(plan.JobStates(), func(s *plan.State, v plan.JobState) { s.Make = v })
	zapping = set(append(plan.JobStates(), -plan.Failed, -plan.Retry), func(s *plan.State, v plan.JobState) {
		if s.Zap, s.ZapUncounted = v, v < 0; v < 0 {
			s.Zap = -v
		}
	})
	matched = set([]*swap.Match{nil, {OSD: 5, Device: "/dev/sdx", Serial: "NEW", Proof: "slot"}, {OSD: 5, Device: "/dev/sdy", Serial: "NEWER", Proof: "slot"}},
		func(s *plan.State, v *swap.Match) { s.Match = v })
	disks = set([][]string{nil, {"serial A"}}, func(s *plan.State, v []string) { s.Disks = v })
)

// TestEveryState walks the states of each part of the flow with all values of every
// field that the part reads, and a second value for each of the others.
func TestEveryState(t *testing.T) {
	count := 0
	kinds, reasons := map[plan.Kind]int{}, told()
	for _, part := range []struct {
		name   string
		fields []field
	}{
		{"outside", []field{
			set([]string{"", "no JSON"}, func(s *plan.State, v string) { s.NoteProblem = v }),
			asked, inProgress, ready, fenced, answered, noted(drained, replaced), osd(gone, free, oldOSD, newOSD), in, up,
			set([]*plan.Refusal{nil, {Reason: "NoRoom", Message: "m"}}, func(s *plan.State, v *plan.Refusal) { s.Refusal = v }),
			set([]string{"", "NoRoom: m", "Other: x"}, func(s *plan.State, v string) { s.RefusedText = v }),
			set([]string{"", "no df"}, func(s *plan.State, v string) { s.Unchecked = v }),
			set([]string{"", "no record"}, func(s *plan.State, v string) { s.FreshProblem = v }),
		}},
		{"old disk", []field{
			asked, inProgress, ready, fenced, answered, noted(drained, wasOut), osd(oldOSD), in, up, safety, stuck, turn, usage, running, podsThere, closing,
			set([]float64{1, 0.5}, func(s *plan.State, v float64) { s.Weight = v }),
		}},
		{"slot", []field{
			always(func(s *plan.State) { s.Answered = true }),
			asked, inProgress, ready, fenced, noted(tried, failed, lost, settled), osd(gone, free), running, podsThere, closing, making, matched, question, disks, takenBy,
		}},
		{"slot, and the disk is given up", []field{
			always(func(s *plan.State) {
				s.Answered, s.Asked, s.InProgress, s.Fenced, s.Ready = true, true, true, true, true
			}),
			abandoned, noted(worn, func(n *plan.Note) { worn(n); n.Attempt.With = "" }), osd(gone, free, newOSD), isNew, unsure, running, making, found, matched, question, with,
		}},
		{"abandon", []field{
			always(func(s *plan.State) {
				s.Answered, s.Asked, s.InProgress, s.Fenced, s.Ready = true, true, true, true, true
			}),
			abandoned, noted(tried, failed, lost), osd(gone, free, oldOSD, newOSD), running, podsThere, closing, making, zapping, unsure, node,
		}},
		{"new disk", []field{
			asked, inProgress, ready, fenced, answered, noted(tried, failed, replaced), osd(gone, free, newOSD), isNew, up, in, unsure, running, podsThere, making, whole, matched,
		}},
		{"new disk, proven or not", []field{
			always(func(s *plan.State) { s.Answered, s.InProgress, s.Fenced, s.Ready = true, true, true, true }),
			asked, noted(failed, unproven, recognized), osd(newOSD), isNew, up, unsure, running, podsThere, making, found, matched, node, abandoned,
		}},
		{"new disk given up", []field{
			always(func(s *plan.State) {
				s.Answered, s.Asked, s.InProgress, s.Fenced, s.Ready, s.Abandon = true, true, true, true, true, plan.ConfirmedAbandon
			}),
			noted(tried, failed), osd(newOSD), isNew, up, in, unsure, running, podsThere, making, found, matched,
		}},
	} {
		begun := count
		walk(part.fields, &plan.State{ID: 5}, func(s *plan.State) {
			count++
			a := plan.Next(*s)
			kinds[a.Kind]++
			if err := check(*s, a); err != nil {
				t.Fatalf("%s: %v\n%+v\nnote %+v", part.name, err, *s, s.Note)
			}
			if a.Kind == plan.Wait && !reasons[a.Reason] && s.Refusal == nil {
				t.Fatalf("%s: no message of TestMessages has the reason of %+v", part.name, a)
			}
		})
		t.Logf("%s: %d states", part.name, count-begun)
	}
	t.Logf("%d states", count)
	for _, k := range []plan.Kind{plan.Refuse, plan.Unrefuse, plan.Accept, plan.Adopt, plan.Fence, plan.Unready, plan.Begin, plan.Out, plan.Stop, plan.Halt, plan.Down, plan.Close,
		plan.Unclose, plan.Destroy, plan.Show, plan.TooLate, plan.Remember, plan.Claim, plan.Make, plan.Failure, plan.Unmake, plan.Lost, plan.Reclaim, plan.Handover, plan.Complete,
		plan.Drop, plan.In, plan.Reweight, plan.Release, plan.Purge, plan.Zap, plan.Unzap, plan.Remove, plan.Unclosed, plan.Unzapped, plan.Tell, plan.Unname, plan.Find, plan.Prove} {
		if kinds[k] == 0 {
			t.Errorf("no state leads to %s", k)
		}
	}
}

// world is the least that a replacement acts on.
type world struct {
	s         plan.State
	age       int // steps of the drain
	destroyed int
}

func newWorld(change ...func(*plan.Note)) *world {
	n := *note(change...)
	return &world{s: plan.State{ID: 5, Answered: true, Exists: true, Up: true, In: true, UUID: oldUUID, Weight: 1, Replicas: 1, Asked: true, Fresh: n, Usage: true, PGs: 10,
		Safety: plan.Unsafe, SafetyWhy: "PGs are mapped to it"}}
}

// do carries out an action. It must be possible to do it twice.
func (w *world) do(a plan.Action) {
	s := &w.s
	n := plan.Note{}
	if s.Note != nil {
		n = *s.Note
	}
	switch a.Kind {
	case plan.Accept, plan.Adopt:
		f := s.Fresh
		s.Note, s.InProgress, s.Fenced = &f, true, true
	case plan.Fence:
		s.InProgress, s.Fenced = true, true
	case plan.Unready:
		s.Ready = false
	case plan.Begin:
		n.Drain = &plan.Drain{Since: time.Unix(0, 0), PGs: 10}
		s.Note = &n
	case plan.Out:
		s.In, s.Weight = false, 0
	case plan.In:
		s.In, s.Weight = true, 1
	case plan.Reweight:
		s.Weight = n.Before.Reweight
	case plan.Stop, plan.Halt:
		s.Replicas = 0
	case plan.Down:
		s.Up = false
	case plan.Close:
		s.Close = plan.Running
	case plan.Unclose:
		s.Close = plan.Ending
	case plan.Unclosed:
		n.Unclosed, s.CloseUncounted = n.Unclosed.Next("job"), false
		s.Note = &n
	case plan.Unzapped:
		n.Unzapped, s.ZapUncounted = n.Unzapped.Next("job"), false
		s.Note = &n
	case plan.Destroy, plan.Reclaim:
		s.Destroyed, s.UUID, s.New, s.Up, s.Found, s.Proven, s.Unproven = true, zero, false, false, false, false, false
		w.destroyed++
	case plan.Show:
		s.Ready, s.InProgress, s.Fenced = true, true, true
	case plan.TooLate:
		n.CancelRefused = true
		s.Note = &n
	case plan.Remember:
		n.Disks = s.Disks
		s.Note = &n
	case plan.Claim:
		number := 1
		if n.Attempt != nil {
			number = n.Attempt.Number + 1
		}
		n.Attempt = &plan.Attempt{Number: number, Device: s.Match.Device, Serial: s.Match.Serial, With: s.With, Faults: n.Attempt.Counts(*s.Match, s.With)}
		s.Note = &n
	case plan.Make, plan.Prove:
		s.Make = plan.Running
	case plan.Failure:
		t := plan.Attempt{Number: 1}
		if n.Attempt != nil {
			t = *n.Attempt
		}
		t.Failed = a.Message
		if s.Fault {
			t.Faults++
		}
		if s.Unproven {
			t.Unproven, s.Unproven = s.UUID, false
		}
		n.Attempt = &t
		s.Note = &n
	case plan.Unname:
		t := *n.Attempt
		t.With = ""
		n.Attempt = &t
		s.Note = &n
	case plan.Tell:
		n.Told = a.Told
		s.Note = &n
	case plan.Unmake:
		s.Make = plan.Ending
	case plan.Lost:
		n.SlotLost = true
		s.Note = &n
	case plan.Handover:
		n.Replaced = s.UUID
		s.Note, s.InProgress, s.Fenced, s.Ready, s.Asked, s.Replicas = &n, false, false, false, false, 1
	case plan.Complete, plan.Drop:
		s.Note = nil
	case plan.Release:
		s.Note, s.InProgress, s.Fenced, s.Ready, s.Replicas = nil, false, false, false, n.Before.Replicas
	case plan.Purge:
		s.Exists, s.Destroyed, s.UUID = false, false, ""
	case plan.Zap:
		s.Zap = plan.Running
	case plan.Unzap:
		s.Zap = plan.NoJob
	}
}

// pass lets the rest of the world move by one step.
func (w *world) pass(r *rand.Rand, failures *int) {
	s := &w.s
	s.Pods = nil
	if s.Replicas > 0 || s.Up && s.UUID == oldUUID {
		s.Pods = []string{"pod"}
		if s.Replicas > 0 && s.Exists && !s.Destroyed {
			s.Up = true
			if s.UUID == newUUID {
				s.In = true
			}
		}
	}
	if s.Replicas == 0 {
		s.Up, s.Pods = false, nil
	}
	if s.In || s.UUID != oldUUID {
		w.age = 0
	}
	s.Safety = plan.Safe
	if s.Exists && !s.Destroyed && s.UUID == oldUUID {
		if !s.In {
			w.age++
		}
		if w.age < 3 {
			s.Safety = plan.Unsafe
		}
	}
	for _, j := range []*plan.JobState{&s.Close, &s.Zap} {
		switch *j {
		case plan.Running:
			*j = plan.Succeeded
			if r.IntN(4) == 0 {
				*j = plan.Failed
				s.CloseUncounted, s.ZapUncounted = s.Close == plan.Failed, s.Zap == plan.Failed
			}
		case plan.Succeeded:
			if r.IntN(4) == 0 {
				*j = plan.Expired
			}
		case plan.Failed:
			*j = plan.Retry
		case plan.Ending:
			*j = plan.NoJob
		}
	}
	switch s.Make {
	case plan.Running:
		s.Fault = false
		switch {
		case s.UUID == newUUID && s.New: // the same Job again, after one that has not told
			if s.Make, s.Proven = plan.Succeeded, s.Found && r.IntN(2) == 0; !s.Found {
				s.Make, s.Unproven = plan.Failed, true
			}
		case *failures > 0 && r.IntN(2) == 0:
			*failures--
			s.Make, s.Fault = plan.Failed, true
			switch r.IntN(3) {
			case 0: // the rollback has taken the id out
				s.Exists, s.Destroyed, s.UUID = false, false, ""
			case 1: // the rollback has failed too
				s.Exists, s.Destroyed, s.UUID, s.New = true, false, newUUID, true
			}
		default:
			s.Make, s.Exists, s.Destroyed, s.UUID, s.New, s.Found = plan.Succeeded, true, false, newUUID, true, true
			s.Proven = r.IntN(2) == 0
		}
	case plan.Failed, plan.Succeeded:
		s.Make = plan.Retry
	case plan.Ending:
		s.Make = plan.NoJob
	}
	s.Disks = []string{"serial OLD"}
	if s.Ready && s.Match == nil && r.IntN(3) == 0 {
		s.Match = &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW", Proof: "the slot"}
	}
	if !s.Ready {
		s.Match = nil
	}
}

// TestTheFlow plays whole replacements: raw and LVM, with and without a database,
// encrypted and not, with failing disks, and the process dying before and after any
// step, which is nothing but another look at the same state. Each must end with the
// OSD up, in, on its new disk, and without a mark.
func TestTheFlow(t *testing.T) {
	for _, kind := range []struct {
		name   string
		change []func(*plan.Note)
	}{{"raw", nil}, {"database", []func(*plan.Note){withDB}}, {"encrypted", []func(*plan.Note){encrypted}}, {"encrypted with database", []func(*plan.Note){encrypted, withDB}}} {
		t.Run(kind.name, func(t *testing.T) {
			for seed := range uint64(2000) {
				r := rand.New(rand.NewPCG(seed, 1))
				w, failures := newWorld(kind.change...), int(seed%3)
				var trail []string
				for step := 0; ; step++ {
					a := plan.Next(w.s)
					if err := check(w.s, a); err != nil {
						t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(trail, "\n"))
					}
					trail = append(trail, string(a.Kind)+" "+a.Reason)
					if a.Kind == plan.None {
						break
					}
					if step > 300 {
						t.Fatalf("seed %d does not end: %s\n%+v\n%+v", seed, strings.Join(trail[len(trail)-12:], "; "), w.s, w.s.Note)
					}
					if r.IntN(5) > 0 { // else the process has died before
						w.do(a)
						if r.IntN(5) == 0 { // and here it has not seen that it was done
							w.do(a)
						}
					}
					w.pass(r, &failures)
				}
				if s := w.s; s.UUID != newUUID || !s.Up || !s.In || s.InProgress || s.Fenced || s.Ready || s.Note != nil || s.Make != plan.NoJob && s.Make != plan.Ending || s.Close != plan.NoJob {
					t.Fatalf("seed %d ends with %+v\n%s", seed, s, strings.Join(trail, "\n"))
				}
			}
		})
	}
}

// TestCancel takes the request back before each step. Before the OSD is destroyed it
// ends as it began; afterwards the flow goes on to its end.
func TestCancel(t *testing.T) {
	lighter := func(n *plan.Note) { n.Before.Reweight = 0.8 }
	halted := func(n *plan.Note) { n.Before.Replicas = 0 }
	for _, change := range [][]func(*plan.Note){nil, {encrypted, withDB}, {lighter}, {wasOut}, {halted}, {lighter, encrypted}} {
		before := note(change...).Before
		for at := range 60 {
			for seed := range uint64(50) {
				r := rand.New(rand.NewPCG(seed, uint64(at)))
				w, none := newWorld(change...), 0
				w.s.In, w.s.Weight, w.s.Replicas, w.s.Up = before.In, before.Reweight, before.Replicas, before.Replicas > 0
				refused := false
				for step := 0; ; step++ {
					if step == at {
						w.s.Asked = false
					}
					a := plan.Next(w.s)
					if err := check(w.s, a); err != nil {
						t.Fatalf("at %d, seed %d: %v", at, seed, err)
					}
					refused = refused || a.Kind == plan.TooLate
					if a.Kind == plan.None {
						break
					}
					if step > 400 {
						t.Fatalf("at %d, seed %d does not end: %+v %+v", at, seed, a, w.s)
					}
					w.do(a)
					w.pass(r, &none)
				}
				s := w.s
				marks := s.InProgress || s.Fenced || s.Ready || s.Note != nil || s.Close != plan.NoJob
				switch {
				case marks:
					t.Fatalf("at %d, seed %d: marks are left: %+v", at, seed, s)
				case w.destroyed == 0 && (s.UUID != oldUUID || s.In != before.In || s.Weight != before.Reweight || s.Replicas != before.Replicas):
					t.Fatalf("at %d, seed %d: cancelled and not as before: %+v", at, seed, s)
				case w.destroyed > 0 && (s.UUID != newUUID || !s.Up || !s.In):
					t.Fatalf("at %d, seed %d: too late to cancel, and not replaced: %+v", at, seed, s)
				}
			}
		}
	}
}

// TestAbandon gives up the slot before each step.
func TestAbandon(t *testing.T) {
	for _, change := range [][]func(*plan.Note){nil, {encrypted, withDB}} {
		for at := range 40 {
			r := rand.New(rand.NewPCG(uint64(at), 2))
			w, none := newWorld(change...), 0
			removed := false
			for step := 0; !removed; step++ {
				if step == at {
					w.s.Abandon = plan.ConfirmedAbandon
				}
				a := plan.Next(w.s)
				if err := check(w.s, a); err != nil {
					t.Fatalf("at %d: %v", at, err)
				}
				if a.Kind == plan.None {
					break
				}
				if step > 400 {
					t.Fatalf("at %d does not end: %+v", at, a)
				}
				removed = a.Kind == plan.Remove
				w.do(a)
				w.pass(r, &none)
				w.s.Match = nil // the user puts no disk in
				if at > 30 && step == 30 {
					break // it waits for its disk
				}
			}
			if at <= 30 && (!removed || w.s.Exists) {
				t.Errorf("at %d: not given up: %+v", at, w.s)
			}
		}
	}
}

// What a failed preparation of a plain OSD leaves is an id that is claimed, not destroyed:
// that is what is told, and another disk need not wait until the first is tried again.
func TestAnotherDiskAfterAFailedPreparation(t *testing.T) {
	first, second := &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW"}, &swap.Match{OSD: 5, Device: "/dev/sdy", Serial: "NEWER", Proof: "slot"}
	for _, c := range []struct {
		name   string
		change func(*plan.State)
		kind   plan.Kind
		reason string
		has    string
	}{
		{"no other disk", func(*plan.State) {}, plan.Wait, "PrepareFailed", "has never run"},
		{"the same disk", func(s *plan.State) { s.Match = first }, plan.Wait, "PrepareFailed", "tried again at 00:10:00 UTC"},
		{"another disk", func(s *plan.State) { s.Match = second }, plan.Reclaim, "Reclaim", "/dev/sdy (serial NEWER)"},
		{"another disk, and the OSD turns out to be made", func(s *plan.State) { s.Match, s.Found, s.Proven = second, true, true }, plan.Handover, "Handover", ""},
		{"another disk, before the failure is noted", func(s *plan.State) { s.Match, s.Note = second, note(tried) }, plan.Failure, "Failure", "claimed by the failed attempt"},
		{"another disk, and Ceph is not sure", func(s *plan.State) { s.Match, s.Safety = second, plan.Unknown }, plan.Wait, "NotSafeToDestroy", "never run"},
		{"another disk, and PGs that wait for this OSD are not clean", func(s *plan.State) {
			s.Match, s.Safety, s.SafetyWhy, s.Void = second, plan.Unsafe, "it is down, and not all PGs are active+clean", true
		}, plan.Reclaim, "Reclaim", "never run with data"},
		{"the same disk, and the slot is given up", func(s *plan.State) { s.Abandon = plan.ConfirmedAbandon }, plan.Reclaim, "Reclaim", "to give it up"},
		{"the slot is given up while the Job runs", func(s *plan.State) { s.Abandon, s.Make = plan.ConfirmedAbandon, plan.Running }, plan.Wait, "Preparing", ""},
		{"another disk, and the OSD has run", func(s *plan.State) { s.Match, s.New = second, false }, plan.Wait, "PrepareFailed", ""},
		{"somebody has deleted the Job before the failure was noted", func(s *plan.State) { s.Make, s.Note = plan.NoJob, note(tried) }, plan.Failure, "Failure", "its Job was deleted before it had ended"},
		{"the same, and the OSD turns out to be made", func(s *plan.State) { s.Make, s.Note, s.Found = plan.NoJob, note(tried), true }, plan.Prove, "Prove", ""},
		{"the same, and the node proves it", func(s *plan.State) { s.Make, s.Note, s.Found, s.Proven = plan.NoJob, note(tried), true, true }, plan.Handover, "Handover", ""},
		{"somebody has deleted the Job", func(s *plan.State) { s.Make = plan.NoJob }, plan.Reclaim, "Reclaim", "the next attempt on /dev/sdx"},
		{"the next try is due", func(s *plan.State) { s.Make = plan.Retry }, plan.Reclaim, "Reclaim", "the next attempt on /dev/sdx"},
	} {
		s := plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: newUUID, Asked: true, InProgress: true, Fenced: true, Ready: true,
			Note: note(failed), Make: plan.Failed, Safety: plan.Safe, RetryAt: time.Unix(600, 0)}
		c.change(&s)
		a := plan.Next(s)
		if a.Kind != c.kind || a.Reason != c.reason || !strings.Contains(a.Text(), c.has) || strings.Contains(a.Text(), "as it was: destroyed") {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
}

// A disk on which every attempt claims the id and fails is given up after five; another disk
// is taken by itself, and the same one when the user names it.
func TestADiskThatAlwaysFails(t *testing.T) {
	w := newWorld()
	w.s.Destroyed, w.s.UUID, w.s.Up, w.s.In, w.s.Replicas, w.s.Ready, w.s.InProgress, w.s.Fenced, w.s.Note = true, zero, false, false, 0, true, true, true, note()
	w.s.Safety, w.s.Disks = plan.Safe, []string{"x"}
	first := &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW", Proof: "slot"}
	w.s.Match = first
	destroyed, claims := 0, 0
	// run plays until nothing moves any more; every Job fails when the id is claimed.
	run := func(fault bool) plan.Action {
		t.Helper()
		for range 400 {
			a := plan.Next(w.s)
			if err := check(w.s, a); err != nil {
				t.Fatal(err)
			}
			if a.Kind == plan.Wait && a.Reason != "Preparing" && a.Reason != "PrepareFailed" {
				return a
			}
			if a.Kind == plan.Failure && strings.Contains(a.Message, "not tried any more") != (fault && w.s.Note.Attempt.Faults == 4) {
				t.Errorf("told of failure %d: %s", w.s.Note.Attempt.Faults+1, a.Message)
			}
			w.do(a)
			switch {
			case a.Kind == plan.Reclaim:
				destroyed++
			case a.Kind == plan.Claim:
				claims++
			case w.s.Make == plan.Running:
				w.s.Make, w.s.Fault, w.s.MakeProblem = plan.Failed, fault, "PrepareFailed: mkfs: Input/output error"
				w.s.Destroyed, w.s.UUID, w.s.New = false, newUUID, true
			case w.s.Make == plan.Failed && a.Kind == plan.Wait:
				w.s.Make = plan.Retry
			case w.s.Make == plan.Ending:
				w.s.Make = plan.NoJob
			}
		}
		return plan.Action{}
	}
	a := run(true)
	if a.Reason != "DiskFailed" || !a.Blocked || claims != 5 || destroyed != 5 || !w.s.Destroyed {
		t.Fatalf("after %d claims and %d times destroyed again: %+v", claims, destroyed, a)
	}
	for _, want := range []string{"/dev/sdx (serial NEW)", "node n1", "Input/output error", "put another disk in", "osd.rook.io/replace-with=", "tries this one again"} {
		if !strings.Contains(a.Text(), want) {
			t.Errorf("%q is not in: %s", want, a.Text())
		}
	}
	for what, change := range map[string]func(*plan.State){
		"the disk is pulled":             func(s *plan.State) { s.Match = nil },
		"the same disk has another name": func(s *plan.State) { s.Match = &swap.Match{OSD: 5, Device: "/dev/sdz", Serial: "NEW"} },
		"its Job was deleted":            func(s *plan.State) { s.Make = plan.NoJob },
		"its Job is old":                 func(s *plan.State) { s.Make = plan.Retry },
		"nothing is clear":               func(s *plan.State) { s.Question = "which?" },
		"the id was lost":                func(s *plan.State) { n := *s.Note; n.SlotLost = true; s.Note, s.Exists = &n, false },
	} {
		s := w.s
		change(&s)
		if a := plan.Next(s); a.Reason != "DiskFailed" {
			t.Errorf("%s: %+v", what, a)
		}
	}
	// The user names it: five times more, and no sixth by the same word.
	w.s.With, claims = "/dev/disk/by-id/new", 0
	if a = run(true); a.Reason != "DiskFailed" || claims != 5 || !strings.Contains(a.Text(), "remove that annotation and set it anew") {
		t.Fatalf("after %d claims: %+v", claims, a)
	}
	w.s.With, claims = "", 0
	if a = run(true); a.Reason != "DiskFailed" || claims != 0 || w.s.Note.Attempt.With != "" {
		t.Fatalf("the name is taken away: %d claims, %+v", claims, a)
	}
	w.s.With = "/dev/disk/by-id/new"
	if a = run(true); a.Reason != "DiskFailed" || claims != 5 {
		t.Fatalf("named once more: %d claims, %+v", claims, a)
	}
	// Another disk is taken by itself, and begins anew.
	w.s.With, w.s.Match = "", &swap.Match{OSD: 5, Device: "/dev/sdy", Serial: "NEWER", Proof: "slot"}
	if a := plan.Next(w.s); a.Kind != plan.Unmake && a.Kind != plan.Claim {
		t.Fatalf("another disk: %+v", a)
	}
	claims = 0
	if a = run(true); a.Reason != "DiskFailed" || claims != 5 || !strings.Contains(a.Text(), "NEWER") {
		t.Fatalf("the other disk, after %d claims: %+v", claims, a)
	}
	// What is not the disk's doing has no end.
	w.s.Match, claims = first, 0
	if a = run(false); a.Kind != "" || claims < 20 || w.s.Note.Attempt.Faults != 0 {
		t.Fatalf("failures that are not the disk's: %d claims, %+v", claims, a)
	}
}

// An OSD that a look has found, and the node has not proven, is proven first: by the same Job,
// run again. An id that this finds claimed and not whole is taken back, and the disk made anew.
func TestWhatAJobWithoutAReportHasLeft(t *testing.T) {
	base := func(change func(*plan.State)) plan.State {
		s := plan.State{ID: 5, Answered: true, Exists: true, New: true, UUID: newUUID, Asked: true, InProgress: true, Fenced: true, Ready: true, Note: note(tried), Safety: plan.Safe, Found: true,
			FoundOn: &swap.Match{Device: "/dev/sdx", Serial: "NEW"}, RetryAt: time.Unix(600, 0), Match: &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW"}}
		change(&s)
		return s
	}
	noted := func(s *plan.State) { s.Found, s.Note = false, note(unproven) }
	for _, c := range []struct {
		name        string
		change      func(*plan.State)
		kind        plan.Kind
		reason, has string
	}{
		{"its Job is gone", func(*plan.State) {}, plan.Prove, "Prove", ""},
		{"its Job has failed", func(s *plan.State) {
			s.Make, s.MakeProblem = plan.Failed, "its Job has ended without a report of this attempt"
		}, plan.Wait, "NotProven", "asked again at 00:10:00 UTC"},
		{"the next try is due", func(s *plan.State) { s.Make = plan.Retry }, plan.Unmake, "Unmake", ""},
		{"its Job has ended well", func(s *plan.State) { s.Make = plan.Succeeded }, plan.Wait, "Proving", "report is awaited"},
		{"it runs", func(s *plan.State) { s.Make = plan.Running }, plan.Wait, "Preparing", ""},
		{"the node is gone", func(s *plan.State) { s.NodeProblem = "node n1 does not exist" }, plan.Wait, "NotProven", "yes-really-purge-osd-5"},
		{"the node is gone, and the slot given up", func(s *plan.State) { s.NodeProblem, s.Abandon = "node n1 does not exist", plan.ConfirmedAbandon }, plan.Reclaim, "Reclaim", "give it up"},
		{"it has failed before", func(s *plan.State) { s.Note = note(failed) }, plan.Prove, "Prove", ""},
		{"no attempt is known", func(s *plan.State) { s.Note = note() }, plan.Find, "Find", ""},
		{"proven", func(s *plan.State) { s.Make, s.Proven = plan.Succeeded, true }, plan.Handover, "Handover", ""},
		{"claimed and not whole", func(s *plan.State) {
			s.Make, s.Found, s.Unproven, s.MakeProblem = plan.Failed, false, true, "SlotClaimed: osd.5 is claimed"
		}, plan.Failure, "Failure", "SlotClaimed"},
		{"the same, when a failure was noted before", func(s *plan.State) { s.Make, s.Found, s.Unproven, s.Note = plan.Failed, false, true, note(failed) }, plan.Failure, "Failure", ""},
		{"claimed and not whole, noted", func(s *plan.State) { noted(s); s.Make = plan.Failed }, plan.Wait, "PrepareFailed", "claimed by the failed attempt"},
		{"claimed and not whole, and the next try is due", func(s *plan.State) { noted(s); s.Make = plan.Retry }, plan.Reclaim, "Reclaim", "the next attempt on /dev/sdx"},
		{"claimed and not whole, and its Job is gone", noted, plan.Reclaim, "Reclaim", "the next attempt on /dev/sdx"},
		{"taken back", func(s *plan.State) { noted(s); s.Make, s.Destroyed, s.UUID, s.New = plan.Retry, true, zero, false }, plan.Unmake, "Unmake", ""},
		{"taken back, and the Job cleared", func(s *plan.State) { noted(s); s.Destroyed, s.UUID, s.New = true, zero, false }, plan.Claim, "Claim", ""},
		{"not whole, and it has run", func(s *plan.State) { noted(s); s.New = false }, plan.Wait, "NotProven", "ceph osd destroy 5"},
		{"not whole, and made by somebody else", func(s *plan.State) { noted(s); s.Note.Attempt.Recognized = true }, plan.Wait, "NotProven", "ceph osd destroy 5"},
		{"the same, given up", func(s *plan.State) { noted(s); s.Note.Attempt.Recognized, s.Abandon = true, plan.ConfirmedAbandon }, plan.Reclaim, "Reclaim", "give it up"},
	} {
		s := base(c.change)
		a := plan.Next(s)
		if err := check(s, a); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if a.Kind != c.kind || a.Reason != c.reason || !strings.Contains(a.Text(), c.has) {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
}

// What keeps a disk from being taken is told once.
func TestWhatIsNotClearIsToldOnce(t *testing.T) {
	s := plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: zero, Asked: true, InProgress: true, Fenced: true, Ready: true, Note: note(settled), Question: strings.Repeat("which of these? ", 60)}
	w := &world{s: s}
	a := plan.Next(w.s)
	if a.Kind != plan.Tell || !strings.Contains(a.Message, "which of these?") || !strings.Contains(a.Message, "osd.rook.io/replace-with=") {
		t.Fatalf("%+v", a)
	}
	w.do(a)
	if a = plan.Next(w.s); a.Kind != plan.Wait || a.Reason != "ReplacementNotClear" {
		t.Fatalf("told, and then %+v", a)
	}
	w.s.Question = "another question"
	if a = plan.Next(w.s); a.Kind != plan.Tell {
		t.Errorf("another question: %+v", a)
	}
	w.s.Question, w.s.Match, w.s.Need = "", &swap.Match{Device: "/dev/sdx", Size: 1}, 2
	if a = plan.Next(w.s); a.Kind != plan.Tell || !strings.Contains(a.Message, "has 1 bytes") {
		t.Errorf("too small: %+v", a)
	}
	w.do(a)
	if a = plan.Next(w.s); a.Reason != "DiskTooSmall" {
		t.Errorf("too small, and told: %+v", a)
	}
}

func TestWaitsNameTheBlocker(t *testing.T) {
	base := func(change func(*plan.State)) plan.State {
		s := plan.State{ID: 5, Answered: true, Exists: true, UUID: oldUUID, Asked: true, InProgress: true, Fenced: true, Replicas: 1, Note: note(drained), Usage: true}
		change(&s)
		return s
	}
	free := func(change func(*plan.State)) plan.State {
		return base(func(s *plan.State) {
			s.Destroyed, s.UUID, s.Replicas, s.Ready = true, zero, 0, true
			change(s)
		})
	}
	for _, c := range []struct {
		s           plan.State
		phase       cephv1.OSDReplacementPhase
		reason, has string
	}{
		{base(func(s *plan.State) { s.Safety, s.SafetyWhy, s.Up = plan.Unsafe, "PGs are mapped to it", true }), cephv1.OSDReplacementDraining, "Draining", "PGs are mapped to it"},
		{base(func(s *plan.State) { s.Safety, s.Stuck = plan.Unsafe, true }), cephv1.OSDReplacementDraining, "NowhereToDrain", "failure domain"},
		{base(func(s *plan.State) { s.In, s.Turn = true, "it waits for osd.3" }), cephv1.OSDReplacementAccepted, "Queued", "osd.3"},
		{base(func(s *plan.State) { s.Answered, s.Silence = false, "timed out" }), cephv1.OSDReplacementDraining, "CephSilent", "timed out"},
		{base(func(s *plan.State) { s.Replicas, s.Pods, s.PodsHint = 0, []string{"p1"}, "node n1 does not answer" }), cephv1.OSDReplacementDestroying, "PodsNotGone", "node n1 does not answer"},
		{free(func(*plan.State) {}), cephv1.OSDReplacementReadyForSwap, "AwaitingSwap", "serial OLD, /dev/sdb on node n1"},
		{free(func(s *plan.State) { s.Question, s.Note.Told = "two disks could be meant", "two disks could be meant" }), cephv1.OSDReplacementReadyForSwap, "ReplacementNotClear", "osd.rook.io/replace-with="},
		{free(func(s *plan.State) { s.Note, s.Make = note(failed), plan.Failed }), cephv1.OSDReplacementProvisioning, "PrepareFailed", "mkfs failed"},
	} {
		a := plan.Next(c.s)
		if a.Kind != plan.Wait || a.Phase != c.phase || a.Reason != c.reason || !strings.Contains(a.Text(), c.has) {
			t.Errorf("%s: got %+v", c.reason, a)
		}
	}
}

func TestNoteRoundTrip(t *testing.T) {
	n := note(encrypted, withDB, drained, failed)
	got, err := plan.ReadNote(n.Encode(), 5)
	if err != nil || got.Encode() != n.Encode() {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, bad := range []string{"{", "{}", "null", n.Encode()[:40], `{"uuid":"x","node":"n","record":{"id":5,"uuid":"y"}}`} {
		if got, err := plan.ReadNote(bad, 5); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
	if _, err := plan.ReadNote(n.Encode(), 6); err == nil {
		t.Error("a note about another OSD is taken")
	}
	if got, err := plan.ReadNote("", 5); got != nil || err != nil {
		t.Errorf("no note: %+v, %v", got, err)
	}
}
