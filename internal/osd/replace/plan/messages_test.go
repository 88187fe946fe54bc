package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

// said is one state in which the user is told something.
type said struct {
	name string
	s    plan.State
}

// messages are states for everything that a replacement waits for: at least one for each
// reason.
func messages() []said {
	at := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	full := func(n *plan.Note) {
		n.Record.Data = prepare.Part{Path: "/dev/sdb", Serial: "OLD", ByPath: "/dev/disk/by-path/pci-0000:00:1f.2-ata-2", Slot: "2", LV: "block", VG: "data"}
	}
	base := func(change func(*plan.State)) plan.State {
		s := plan.State{ID: 5, Answered: true, Exists: true, Up: true, UUID: oldUUID, Asked: true, InProgress: true, Fenced: true, Replicas: 1, Usage: true,
			Note: note(full, drained), Safety: plan.Unsafe, SafetyWhy: "12 PGs are mapped to osd.5"}
		change(&s)
		return s
	}
	stopped := func(change func(*plan.State)) plan.State {
		return base(func(s *plan.State) { s.Replicas, s.Up = 0, false; change(s) })
	}
	slot := func(change func(*plan.State)) plan.State {
		return base(func(s *plan.State) {
			s.Destroyed, s.Up, s.UUID, s.Replicas, s.Ready, s.Note = true, false, zero, 0, true, note(full, settled)
			change(s)
		})
	}
	anew := func(change func(*plan.State)) plan.State {
		return slot(func(s *plan.State) {
			s.Destroyed, s.New, s.UUID, s.Note = false, true, newUUID, note(full, failed)
			change(s)
		})
	}
	fast := func(n *plan.Note) {
		n.Record.DB = &prepare.Part{Path: "/dev/fast/db", Serial: "NVME", ByPath: "/dev/disk/by-path/pci-0000:01:00.0-nvme-1", VG: "fast", LV: "db", LVUUID: "db-1", Size: 1 << 30}
	}
	mate := func(s *plan.State, change func(*plan.Mate)) {
		m := plan.Mate{Member: plan.Member{ID: 4, UUID: mateUUID}, Claimed: true, Asked: true}
		change(&m)
		s.Mates = append(s.Mates, m)
	}
	pair := func(s *plan.State, kind plan.SetKind, leader int) {
		together(kind, leader)(s.Note)
		fast(s.Note)
		s.Leads = kind == plan.OnMetadata && leader == s.ID
	}
	was := func(n *plan.Note) {
		n.Attempt = &plan.Attempt{Number: 1, Device: "/dev/sdx", Serial: "NEW", Failed: "preparing the new disk /dev/sdx (serial NEW) failed: DiskMissing: this node has no /dev/sdx"}
	}
	const hint = "node n1 does not answer, so nobody can say that the pod has ended: switch the node off and taint it with node.kubernetes.io/out-of-service, or bring it back"
	return []said{
		{"somebody else's fence", plan.State{ID: 5, Asked: true, Fenced: true}},
		{"a request while Ceph is silent", plan.State{ID: 5, Asked: true, Silence: "connecting to the mons: timed out after 10 s"}},
		{"a request that cannot be checked", plan.State{ID: 5, Asked: true, Answered: true, Unchecked: "osd df: no mgr is active"}},
		{"a request for an OSD whose node is gone", plan.State{ID: 5, Asked: true, Answered: true, FreshProblem: "the node n1 of osd.5 does not exist"}},
		{"a refused request", plan.State{ID: 5, Asked: true, Answered: true, Refusal: &plan.Refusal{Reason: "NoRoom", Message: "osd.5 can never become safe to destroy: ..."}, RefusedText: "NoRoom: osd.5 can never become safe to destroy: ..."}},
		{"a note that cannot be read", base(func(s *plan.State) {
			s.Note, s.NoteProblem = nil, "reading the note of the replacement: unexpected end of JSON input"
		})},
		{"marks without a note", base(func(s *plan.State) { s.Note, s.FreshProblem = nil, "no node has reported the disk of osd.5" })},
		{"Ceph is silent", base(func(s *plan.State) { s.Answered, s.Silence = false, "connecting to the mons: timed out after 10 s" })},
		{"queued", base(func(s *plan.State) {
			s.In, s.Turn = true, "it waits for osd.3: together, pool data keeps 3 copies in different failure domains of type host, and without it only 2 are left"
		})},
		{"usage unknown", base(func(s *plan.State) { s.Note.Drain, s.Usage = nil, false })},
		{"draining", base(func(*plan.State) {})},
		{"draining, Ceph cannot tell", base(func(s *plan.State) { s.Safety, s.SafetyWhy = plan.Unknown, "no mgr is active" })},
		{"draining, given up too early", base(func(s *plan.State) { s.Abandon = plan.ConfirmedAbandon })},
		{"nowhere to drain", base(func(s *plan.State) { s.Stuck = true })},
		{"nowhere to drain, a metadata device", base(func(s *plan.State) {
			pair(s, plan.OnMetadata, 4)
			s.Stuck = true
			mate(s, func(m *plan.Mate) { m.Running = true })
		})},
		{"the pod stays", stopped(func(s *plan.State) { s.Pods, s.PodsHint = []string{"rook-ceph-osd-5-x"}, hint })},
		{"the pod ends", stopped(func(s *plan.State) { s.Pods = []string{"rook-ceph-osd-5-x"} })},
		{"stopped, and not safe", stopped(func(*plan.State) {})},
		{"closing", stopped(func(s *plan.State) { s.Safety, s.Close = plan.Safe, plan.Running; encrypted(s.Note) })},
		{"closing, the node is not ready", stopped(func(s *plan.State) {
			s.Safety, s.Close, s.NodeProblem = plan.Safe, plan.Running, "node n1 is not ready"
			encrypted(s.Note)
		})},
		{"closing, an earlier Job", stopped(func(s *plan.State) { s.Safety, s.Close = plan.Safe, plan.Ending; encrypted(s.Note) })},
		{"closing has failed", stopped(func(s *plan.State) {
			s.Safety, s.Close, s.CloseProblem, s.CloseRetryAt = plan.Safe, plan.Failed, "data-block: device is held by process 4711 (ceph-osd)", at
			encrypted(s.Note)
		})},
		{"closing, and a pod hangs", stopped(func(s *plan.State) {
			s.Safety, s.Close = plan.Safe, plan.Running
			s.Hung, s.HungHint = "the pod rook-ceph-osd-close-5-x on node n1 was to end at 03:00:00 UTC and has not", "a program of it hangs in the kernel, which waits for a disk that does not answer: dmesg on that node names it; pull that disk, or restart the node"
			encrypted(s.Note)
		})},
		{"the node is gone before closing", stopped(func(s *plan.State) { s.Safety, s.NodeProblem = plan.Safe, "node n1 does not exist"; encrypted(s.Note) })},
		{"cancelling", base(func(s *plan.State) { s.Asked, s.Close = false, plan.Ending })},
		{"pull it", slot(func(*plan.State) {})},
		{"pull it, given up by the wrong word", slot(func(s *plan.State) { s.Abandon = plan.WrongAbandon })},
		{"the node is gone", slot(func(s *plan.State) { s.NodeProblem = "node n1 is not ready" })},
		{"a question", slot(func(s *plan.State) {
			s.Question = "the disk in its slot is still the old one, /dev/sdb (serial OLD), wiped; pull it, or name it with osd.rook.io/replace-with to use it again"
			s.Note.Told = s.Question
		})},
		{"its slot has other OSDs", slot(func(s *plan.State) {
			pair(s, plan.OnMetadata, 5)
			s.Taken = "in the slot pci-0000:01:00.0-nvme-1 is the disk with serial NEWER by now, with osd.6, osd.7 on it"
			s.Note.Told = s.Taken
			s.Question = "the disk in its slot is another one, but it holds the db of osd.6"
		})},
		{"too small", slot(func(s *plan.State) {
			pair(s, plan.OnDisk, 4)
			mate(s, func(m *plan.Mate) { m.Gone = true })
			s.Need, s.Match = 2<<40, &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW", Size: 1 << 40}
			s.Note.Told = plan.Next(*s).Told
		})},
		{"preparing", slot(func(s *plan.State) { s.Make, s.Note = plan.Running, note(full, tried) })},
		{"preparing, and the node is not ready", slot(func(s *plan.State) {
			s.Make, s.NodeProblem, s.Note = plan.Running, "node n1 is not ready", note(full, tried)
		})},
		{"preparing, an earlier Job", slot(func(s *plan.State) { s.Make, s.Note = plan.Ending, note(full, tried) })},
		{"failed", slot(func(s *plan.State) { s.Make, s.Note, s.RetryAt = plan.Failed, note(full, failed), at })},
		{"failed, for the third time", slot(func(s *plan.State) {
			s.Make, s.Note, s.RetryAt = plan.Failed, note(full, failed), at
			s.Note.Attempt.Faults = 3
		})},
		{"failed too often", slot(func(s *plan.State) { s.Note = note(full, worn); s.Note.Attempt.With = "" })},
		{"failed too often, and named", slot(func(s *plan.State) { s.Note, s.With = note(full, worn), "/dev/disk/by-id/new" })},
		{"failed, with a database", slot(func(s *plan.State) {
			s.Make, s.Note, s.RetryAt, s.Volumes = plan.Failed, note(full, failed), at, "made again with the same size, since the rollback had removed them: fast/db; the volumes of osd.6, osd.7 beside it were checked and are as they were"
		})},
		{"failed, the id is lost", slot(func(s *plan.State) {
			s.Exists, s.Destroyed, s.Make, s.Note, s.RetryAt = false, false, plan.Failed, note(full, lost), at
		})},
		{"failed, the id is claimed", anew(func(s *plan.State) { s.Make, s.RetryAt = plan.Failed, at })},
		{"failed, the id is claimed, and PGs are mapped to it", anew(func(s *plan.State) {
			s.Make, s.SafetyWhy = plan.Retry, "PGs are mapped to it"
		})},
		{"found, and not proven", anew(func(s *plan.State) {
			s.Found, s.Make, s.RetryAt, s.MakeProblem = true, plan.Failed, at, "its Job has ended without a report of this attempt"
		})},
		{"found, and its report is awaited", anew(func(s *plan.State) { s.Found, s.Make = true, plan.Succeeded })},
		{"found, and the node is gone", anew(func(s *plan.State) { s.Found, s.NodeProblem = true, "node n1 does not exist" })},
		{"not whole, and made by somebody else", anew(func(s *plan.State) {
			s.Note = note(full, unproven)
			s.Note.Attempt.Recognized = true
		})},
		{"made, and not reported", anew(func(s *plan.State) { s.Make = plan.Succeeded })},
		{"starting", slot(func(s *plan.State) { s.Destroyed, s.UUID, s.Replicas, s.Note = false, newUUID, 1, note(full, replaced) })},
		{"up and not in", slot(func(s *plan.State) { s.Destroyed, s.UUID, s.Up, s.Note = false, newUUID, true, note(full, replaced) })},
		{"up and in, and not weighed", slot(func(s *plan.State) {
			s.Destroyed, s.UUID, s.Up, s.In, s.Unweighed, s.Note = false, newUUID, true, true, "its size has not been reported yet", note(full, replaced)
		})},
		{"purged by hand, an earlier Job", slot(func(s *plan.State) { s.Exists, s.Destroyed, s.Make = false, false, plan.Ending })},
		{"given up, a Job runs", slot(func(s *plan.State) {
			s.Abandon, s.Make, s.Note = plan.ConfirmedAbandon, plan.Running, note(full, tried)
		})},
		{"given up, not safe to purge", slot(func(s *plan.State) { s.Abandon = plan.ConfirmedAbandon })},
		{"given up, wiping", slot(func(s *plan.State) {
			s.Exists, s.Destroyed, s.Abandon, s.Zap = false, false, plan.ConfirmedAbandon, plan.Running
			fast(s.Note)
		})},
		{"given up, wiping has failed", slot(func(s *plan.State) {
			s.Exists, s.Destroyed, s.Abandon, s.Zap, s.ZapProblem = false, false, plan.ConfirmedAbandon, plan.Failed, "lvremove fast/db: in use"
			s.ZapRetryAt = at
			fast(s.Note)
		})},
		{"given up, the node is gone", slot(func(s *plan.State) {
			s.Exists, s.Destroyed, s.Abandon, s.NodeProblem = false, false, plan.ConfirmedAbandon, "node n1 does not exist"
			fast(s.Note)
		})},
		{"a set: another is not accepted", base(func(s *plan.State) { pair(s, plan.OnDisk, 4); mate(s, func(m *plan.Mate) { m.Claimed = false }) })},
		{"a set: another cannot be", base(func(s *plan.State) {
			pair(s, plan.OnMetadata, 5)
			mate(s, func(m *plan.Mate) {
				m.Claimed, m.Why = false, "somebody has set the label ceph.rook.io/do-not-reconcile on its Deployment"
			})
		})},
		{"a set: another was taken back", base(func(s *plan.State) { pair(s, plan.OnDisk, 4); mate(s, func(m *plan.Mate) { m.Asked = false }) })},
		{"a set: a stranger", base(func(s *plan.State) {
			pair(s, plan.OnDisk, 4)
			s.Strangers = []string{"osd.9"}
			mate(s, func(*plan.Mate) {})
		})},
		{"a set: drained before the others", base(func(s *plan.State) {
			pair(s, plan.OnDisk, 4)
			s.Safety = plan.Safe
			mate(s, func(m *plan.Mate) { m.Safe = plan.Unsafe })
		})},
		{"a set: stopped before the others", stopped(func(s *plan.State) {
			pair(s, plan.OnDisk, 4)
			s.Safety = plan.Safe
			mate(s, func(m *plan.Mate) { m.Safe = plan.Safe })
		})},
		{"a set: destroyed before the others", slot(func(s *plan.State) {
			s.Ready = false
			pair(s, plan.OnDisk, 4)
			mate(s, func(m *plan.Mate) { m.Stopped = true })
		})},
		{"a set: destroyed, and the others taken back", slot(func(s *plan.State) {
			s.Ready, s.Asked = false, false
			pair(s, plan.OnMetadata, 4)
			mate(s, func(m *plan.Mate) { m.Asked, m.Running = false, true })
		})},
		{"a set: another comes first", slot(func(s *plan.State) {
			s.Note = note(full, tried)
			pair(s, plan.OnDisk, 4)
			s.Match = &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW"}
			mate(s, func(m *plan.Mate) { m.Gone, m.Free, m.Attempt = true, true, s.Note.Attempt })
		})},
		{"a set: the whole disk is awaited", anew(func(s *plan.State) {
			pair(s, plan.OnDisk, 4)
			s.Make, s.Found, s.Proven = plan.Succeeded, true, true
			s.Note.Attempt.Proven = newUUID
			mate(s, func(m *plan.Mate) { m.Gone = true })
		})},
		{"a set: the note of another is gone", slot(func(s *plan.State) {
			pair(s, plan.OnDisk, 4)
			s.Match = &swap.Match{OSD: 5, Device: "/dev/sdx", Serial: "NEW"}
			mate(s, func(m *plan.Mate) { m.Claimed, m.Gone, m.Lost = false, true, true })
		})},
		{"a dead device, not confirmed", base(func(s *plan.State) { s.Up = false; pair(s, plan.OnMetadata, 5); mate(s, func(*plan.Mate) {}) })},
		{"a dead device, not confirmed, and nothing moves any more", base(func(s *plan.State) {
			s.Up, s.Settled = false, true
			pair(s, plan.OnMetadata, 5)
			mate(s, func(*plan.Mate) {})
		})},
		{"a dead device, found just now", base(func(s *plan.State) {
			s.Up, s.Loss, s.DeadDue = false, true, at
			pair(s, plan.OnMetadata, 5)
			mourned(s.Note)
			mate(s, func(*plan.Mate) {})
		})},
		{"a dead device, other copies are used", base(func(s *plan.State) {
			s.Up, s.Loss, s.LongDead = false, true, true
			pair(s, plan.OnMetadata, 5)
			mourned(s.Note)
			mate(s, func(*plan.Mate) {})
		})},
		{"the new metadata device has failed", slot(func(s *plan.State) {
			s.Make, s.Note, s.RetryAt = plan.Failed, note(full, was), at
			pair(s, plan.OnMetadata, 4)
		})},
		{"the new metadata device has failed, and one is on it", slot(func(s *plan.State) {
			s.Note = note(full, was)
			pair(s, plan.OnMetadata, 4)
			s.Match = &swap.Match{OSD: 5, Device: "/dev/sdy", Serial: "NEWER", Proof: "it is in the old disk's slot (pci-0000:01:00.0-nvme-1) and is another disk: serial NEWER, not NVME"}
			s.Behind, s.BehindHint = "osd.4 was rebuilt on /dev/sdx before that failed, and is down",
				"ask for it too, and it comes along: kubectl annotate deployment rook-ceph-osd-4 osd.rook.io/replace-metadata-device=yes-really-replace-metadata-of-osd-4; or name the disk, to go on without it: osd.rook.io/replace-with=/dev/disk/by-id/... on the Deployment of osd.5"
		})},
		{"the next metadata device, another has not been given it", slot(func(s *plan.State) {
			s.Note = note(full, tried)
			pair(s, plan.OnMetadata, 4)
			s.Joined = []plan.Mate{{Member: plan.Member{ID: 6, UUID: mateUUID}, Claimed: true, Gone: true}}
		})},
	}
}

// TestMessages holds all that the user is told while something is awaited.
func TestMessages(t *testing.T) {
	var b strings.Builder
	for _, m := range messages() {
		a := plan.Next(m.s)
		if a.Kind != plan.Wait {
			t.Errorf("%s: %+v is no wait", m.name, a)
			continue
		}
		blocked := ""
		if a.Blocked {
			blocked = ", blocked"
		}
		fmt.Fprintf(&b, "# %s\n%s (%s%s)\n%s\n\n", m.name, a.Reason, a.Phase, blocked, a.Text())
	}
	file := filepath.Join("testdata", "messages.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// told are the reasons that TestMessages holds.
func told() map[string]bool {
	out := map[string]bool{}
	for _, m := range messages() {
		out[plan.Next(m.s).Reason] = true
	}
	return out
}
