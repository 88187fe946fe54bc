package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// SetKind is what OSDs have in common that are replaced together.
type SetKind string

// The kinds.
const (
	// OnDisk: their data lie on one disk, which is pulled. Each is asked for by its own
	// annotation.
	OnDisk SetKind = "disk"
	// OnMetadata: their databases lie on one device, which is pulled; the disks of their
	// data stay. One annotation, on the leader, asks for all.
	OnMetadata SetKind = "metadata"
)

// Set is the OSDs that are replaced together. It is the same in the notes of all of
// them.
type Set struct {
	Kind SetKind `json:"kind"`
	// Leader is the OSD whose annotation asks for all of a set on a metadata device.
	Leader int `json:"leader"`
	// Members in the order of their ids, with the uuids that they had.
	Members []Member `json:"members"`
}

// Member is one OSD of a set.
type Member struct {
	ID   int    `json:"id"`
	UUID string `json:"uuid"`
}

// Has reports whether an OSD is in the set.
func (s *Set) Has(id int, uuid string) bool { return slices.Contains(s.Members, Member{id, uuid}) }

// Same reports whether two sets are one.
func (s *Set) Same(o *Set) bool {
	return s != nil && o != nil && s.Kind == o.Kind && s.Leader == o.Leader && slices.Equal(s.Members, o.Members)
}

// Joins reports whether a note and another are about OSDs that wait for one device: both
// sets had their databases on a metadata device of one node, and an OSD is in both, once as
// it was at first and once as it was rebuilt on a device that has failed too.
func (n Note) Joins(o Note) bool {
	if n.Set == nil || o.Set == nil || n.Set.Kind != OnMetadata || o.Set.Kind != OnMetadata || n.Node != o.Node || n.Set.Same(o.Set) {
		return false
	}
	return slices.ContainsFunc(n.Set.IDs(), func(id int) bool { return slices.Contains(o.Set.IDs(), id) })
}

// IDs are the members' ids.
func (s *Set) IDs() []int {
	ids := make([]int, len(s.Members))
	for i, m := range s.Members {
		ids[i] = m.ID
	}
	return ids
}

// Mate is another OSD of the set, as it is now.
type Mate struct {
	Member
	// Claimed: its Deployment has the note of this set. Asked: what asks for it stands.
	Claimed, Asked bool
	// Why it is not claimed, and cannot be, or is not yet; for the user.
	Why string
	// Gone: Ceph has no OSD of that uuid any more.
	Gone bool
	// In is what Ceph says. Running: Ceph calls it up, or its pod is ready.
	In, Running bool
	// Stopped: its Deployment has no replicas, and there is no pod of it.
	Stopped bool
	Safe    Answer
	// Dead: its note says since when it is down on its own.
	Dead bool
	// Attempt is the last disk that was to become it; Making: a Job prepares it.
	Attempt *Attempt
	Making  bool
	// Free: nothing of an earlier attempt is in the way of the next.
	Free bool
	// Made: there is a new OSD under its id, found on a disk.
	Made bool
	// Lost: it is destroyed and not made anew, its Deployment is there, and its note is not.
	Lost bool
}

func (m Mate) String() string { return fmt.Sprintf("osd.%d", m.ID) }

func (s State) kind() SetKind {
	if s.Note == nil || s.Note.Set == nil {
		return ""
	}
	return s.Note.Set.Kind
}

// what the set has in common, for a person.
func (s State) common() string {
	if s.kind() == OnMetadata {
		return "the metadata device"
	}
	return "the disk"
}

// which are the mates for which f holds, for a person; "" for none.
func (s State) which(f func(Mate) bool) string {
	var names []string
	for _, m := range s.Mates {
		if f(m) {
			names = append(names, m.String())
		}
	}
	return strings.Join(names, ", ")
}

// gather brings all OSDs of the set together, before anything else is done with one
// of them; false when all are there.
func (s State) gather(phase cephv1.OSDReplacementPhase) (Action, bool) {
	if len(s.Strangers) > 0 {
		return s.block(phase, "SetChanged", fmt.Sprintf("%s of the set holds %s too, which was not there when the replacement was accepted", s.common(), strings.Join(s.Strangers, ", ")),
			"cancel the replacement and ask for it again, as long as nothing is destroyed; afterwards, move that OSD away first"), true
	}
	for _, m := range s.Mates {
		switch {
		case m.Gone:
		case m.Claimed && m.Asked:
		case m.Claimed:
			return s.wait(phase, "SetNotWhole", fmt.Sprintf("%s on %s is being given back", m, s.common())), true
		case s.kind() == OnMetadata && m.Why == "" && s.Leads:
			a := s.do(Enlist, phase, fmt.Sprintf("%s is on the metadata device too: it is replaced together with osd.%d", m, s.ID))
			a.Mate = m.ID
			return a, true
		case m.Why == "":
			return s.wait(phase, "SetNotWhole", fmt.Sprintf("%s on %s has not been accepted yet", m, s.common())), true
		default:
			return s.block(phase, "SetNotWhole", fmt.Sprintf("%s on %s is not to be replaced: %s", m, s.common(), m.Why),
				fmt.Sprintf("a set is replaced as a whole; cancel by removing the annotation of osd.%d", s.asker())), true
		}
	}
	return Action{}, false
}

// asker is the OSD whose annotation asks.
func (s State) asker() int {
	if s.kind() == OnMetadata {
		return s.Note.Set.Leader
	}
	return s.ID
}

// Remaining are the ids of the OSDs of the set that Ceph still has as they were, this one
// included, in their order.
func (s State) Remaining() []int {
	ids := []int{s.ID}
	for _, m := range s.Mates {
		if !m.Gone {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// drained: Ceph calls this OSD and all others of the set that are left safe to destroy,
// asked about all of them at once, and all of them are out.
func (s State) drained() bool {
	return s.Safety == Safe && s.which(func(m Mate) bool { return !m.Gone && (m.In || m.Safe != Safe) }) == ""
}

// dead: no OSD of the set runs, though their Deployments want them to, on a node that
// is well. Only a device that has failed does that.
func (s State) dead() bool {
	return s.kind() == OnMetadata && s.NodeProblem == "" && !s.Up && !s.PodReady && s.which(func(m Mate) bool { return !m.Gone && m.Running }) == ""
}

// lossy: the user has accepted the loss of what is only on this set, and its device is
// dead. Without the second nothing follows from the first.
func (s State) lossy() bool { return s.Loss && s.dead() }

// resigned: all that can be saved has been saved. Every OSD of the set was found dead,
// for long, and nothing in the cluster recovers any more.
func (s State) resigned() bool {
	return s.lossy() && s.Note.Dead != nil && s.LongDead && s.Settled
}

// forced: the OSD may be destroyed though Ceph does not call it safe, as far as can be
// told from the state.
func (s State) forced() bool {
	return s.resigned() && s.Replicas == 0 && len(s.Pods) == 0 && s.which(func(m Mate) bool { return !m.Gone && (!m.Dead || !m.Stopped) }) == ""
}

// mourn is the way of an OSD whose metadata device is dead, while its Deployment still
// wants it to run.
func (s State) mourn(phase cephv1.OSDReplacementPhase) (Action, bool) {
	switch {
	case !s.lossy():
		return Action{}, false
	case s.Note.Dead == nil:
		return s.do(Mourn, phase, "noting that the OSD is down together with all others on its metadata device"), true
	case !s.LongDead:
		return s.wait(phase, "DeviceDead", "all OSDs on the metadata device are down; until "+clock(s.DeadDue)+" it is awaited whether one of them comes back, which would prove that the device lives"), true
	case !s.Settled:
		return s.wait(phase, "DeviceDead", "the metadata device is dead; other copies of the data are being used to make it whole elsewhere, as far as that goes"), true
	}
	return s.do(Bury, cephv1.OSDReplacementDestroying, "the metadata device is dead, and no more of its data can be saved: stopping the OSD for good"), true
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }

// alive says what speaks against a dead device.
func (s State) alive() string {
	switch {
	case s.NodeProblem != "":
		return s.NodeProblem
	case s.Up || s.PodReady:
		return fmt.Sprintf("osd.%d runs", s.ID)
	}
	return s.which(func(m Mate) bool { return !m.Gone && m.Running }) + " runs"
}

// shown waits until no OSD is left on what is to be pulled.
func (s State) shown(phase cephv1.OSDReplacementPhase) (Action, bool) {
	if s.Asked || s.kind() == OnDisk {
		if a, ok := s.gather(phase); ok {
			return a, true
		}
	}
	left := s.which(func(m Mate) bool { return !m.Gone })
	switch {
	case left == "":
		return Action{}, false
	case s.Asked:
		return s.wait(phase, "SetNotDestroyed", fmt.Sprintf("%s must not be pulled yet: %s on it has to be destroyed first", s.common(), left)), true
	}
	return s.block(phase, "SetNotDestroyed", fmt.Sprintf("%s must not be pulled: %s is still on it, and its replacement was taken back", s.common(), left),
		fmt.Sprintf("ask for the replacement again (annotation of osd.%d), or give this slot up", s.asker())), true
}

// claimed takes the disk of the last attempt for the match, where another OSD of the set
// is on it, or may be: then the node does not call that disk blank any more.
func (s State) claimed() State {
	a := s.Note.Attempt
	if a == nil || s.Match != nil || s.kind() == "" {
		return s
	}
	if s.kind() == OnMetadata || s.which(func(m Mate) bool { return m.Made }) != "" {
		s.Match, s.Question = &swap.Match{OSD: s.ID, Device: a.Device, Serial: a.Serial, Proof: a.Proof}, ""
	}
	return s
}

// turn is why another OSD of the set comes first on the new disk; "" when it is this
// one's turn. They go one after the other, in the order of their ids, and on a metadata
// device none is made before all have been given it: once an OSD is on it, the node does
// not tell others that it is theirs too.
func (s State) turn() string {
	mine := s.Note.Attempt
	for _, m := range slices.Concat(s.Mates, s.Joined) {
		switch {
		case !m.Claimed || !m.Gone || m.Made:
		case m.Making:
			return fmt.Sprintf("%s is being made first", m)
		case s.kind() == OnDisk && !mine.together(m.Attempt):
			return fmt.Sprintf("%s has not been given its share of %s yet", m, mine.Device)
		case s.kind() == OnMetadata && !s.Begun && !mine.sameDisk(m.Attempt):
			return fmt.Sprintf("%s has not been given %s yet", m, attempted(mine))
		case m.ID < s.ID && m.Free && mine.together(m.Attempt):
			return fmt.Sprintf("%s comes first", m)
		}
	}
	return ""
}

// lost are the others that have a share of the new disk, or of the new metadata device, as
// long as there is none on it, and whose notes are gone: made without them, the rest would
// take what is theirs.
func (s State) lost() string {
	if s.kind() == OnMetadata && s.Begun {
		return ""
	}
	return s.which(func(m Mate) bool { return m.Lost })
}

// sameDisk reports whether two attempts are about one disk.
func (a *Attempt) sameDisk(o *Attempt) bool {
	return a != nil && o != nil && a.Device == o.Device && a.Serial == o.Serial
}

// together reports whether two attempts are about one disk and the same shares of it.
func (a *Attempt) together(o *Attempt) bool {
	return a.sameDisk(o) && slices.Equal(a.Set, o.Set)
}

// Shares are the old uuids of those that get a share of the new disk together with this
// OSD; nil for one that gets a disk to itself.
func (s State) Shares() []string {
	if s.kind() != OnDisk {
		return nil
	}
	uuids := []string{s.Note.UUID}
	for _, m := range s.Mates {
		if m.Claimed {
			uuids = append(uuids, m.UUID)
		}
	}
	if len(uuids) == 1 {
		return nil
	}
	slices.Sort(uuids)
	return uuids
}

// unmade are mates that share the new disk and are not on it yet.
func (s State) unmade() string {
	if s.kind() != OnDisk {
		return ""
	}
	return s.which(func(m Mate) bool { return m.Claimed && !m.Made })
}
