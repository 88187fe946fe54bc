// Package plan decides the next step of the replacement of one OSD's disk.
//
// It is pure: State holds only what can be read again at any time, and Next is one
// switch over it whose order is the flow. It must not take silence for an answer:
// whatever is not known leads to a wait, and nothing is destroyed but by the one
// action that the controller proves once more, live, right before.
package plan

import (
	"time"

	"github.com/castellan-storage/castellan/internal/node/swap"
)

// JobState is how far a Job of the replacement is.
type JobState int

// The states of a Job.
const (
	// NoJob: there is none.
	NoJob JobState = iota
	// Running: it has not ended.
	Running
	// Succeeded: it has ended well, and its result still counts.
	Succeeded
	// Expired: it has ended well, too long ago to count as proof.
	Expired
	// Failed: it has ended badly, and it is too early to try again.
	Failed
	// Retry: it has ended badly, and another try is due.
	Retry
	// Ending: it is being deleted, or pods of it are still there.
	Ending
	// Stale: it is of an earlier replacement of the same OSD.
	Stale
)

// JobStates are all of them, for tests that walk them.
func JobStates() []JobState {
	return []JobState{NoJob, Running, Succeeded, Expired, Failed, Retry, Ending, Stale}
}

// Answer is Ceph's answer to safe-to-destroy.
type Answer int

// The answers. The zero value is that there is none.
const (
	Unknown Answer = iota
	Unsafe
	Safe
)

// Abandon is what the annotation osd.rook.io/replace-abandon says.
type Abandon int

// What it can say.
const (
	NoAbandon Abandon = iota
	// WrongAbandon: it has a value that confirms nothing.
	WrongAbandon
	ConfirmedAbandon
)

// Refusal is why a request does not hold.
type Refusal struct {
	// Reason is CamelCase and from a small set.
	Reason string
	// Message says what is wrong and what to do. It must not change while the cause
	// does not.
	Message string
}

// Text is the refusal as it is stored and shown.
func (r Refusal) Text() string { return r.Reason + ": " + r.Message }

// State is all that bears on the next step of one OSD's replacement.
type State struct {
	ID int

	// What is on the Deployment.

	// Asked: the annotation osd.rook.io/replace is there. After a request was accepted
	// its value must stay the confirmation; another value counts as taken back.
	Asked bool
	// InProgress, Ready and Fenced are the annotations and the label of the contract.
	InProgress, Ready, Fenced bool
	// Note is nil when there is none; NoteProblem says that there is one that cannot be
	// read.
	Note        *Note
	NoteProblem string
	// Fresh is the note as it would be written now; FreshProblem says why there can be
	// none.
	Fresh        Note
	FreshProblem string
	Abandon      Abandon
	Replicas     int32
	// RefusedText is what is stored as the last refusal.
	RefusedText string

	// Refusal is the outcome of the checks of a request that was not accepted yet;
	// Unchecked says what could not be read to make them.
	Refusal   *Refusal
	Unchecked string
	// Warnings do not refuse it; the user hears them when it is accepted.
	Warnings []string

	// Pods that have the OSD's id, of any owner and in any phase.
	Pods []string
	// PodsHint is what the user can do about them, if anything.
	PodsHint string

	// What Ceph says. Answered is false when the OSD map could not be read, and all the
	// rest is without meaning then.
	Answered bool
	Silence  string
	Exists   bool
	// Destroyed: the slot waits for a new OSD. New: it was claimed and has never been up.
	Destroyed, New bool
	Up, In         bool
	UUID           string
	Weight         float64
	Safety         Answer
	SafetyWhy      string
	// Void: Ceph cannot call it safe to destroy only because it is down and has not
	// reported, and by Ceph's map it is destroyed, or was never in or never up under this
	// uuid: no data can be on it, whatever other PGs wait for.
	Void bool
	// Stuck: all PGs are active and clean, nothing moves, and PGs are still mapped to it.
	Stuck bool
	// PodReady: a pod of the Deployment is ready, whatever Ceph says.
	PodReady bool
	// Settled: no PG is moving, recovering or peering.
	Settled bool
	// Turn is why it must wait before it may be marked out; empty when it is its turn.
	Turn string
	// PGs and Bytes on the OSD now, for the start of the draining.
	PGs   int
	Bytes int64
	// Usage: both are known.
	Usage bool

	// Close closes dm-crypt mappings, Make prepares the new disk, Zap wipes the volumes
	// of an OSD that is given up.
	Close, Make, Zap                      JobState
	CloseProblem, MakeProblem, ZapProblem string
	// CloseUncounted and ZapUncounted: the Job has failed, and the note does not know it yet.
	CloseUncounted, ZapUncounted bool
	// CloseRetryAt and ZapRetryAt are when what has failed is tried again; zero where
	// nothing is due.
	CloseRetryAt, ZapRetryAt time.Time
	// Hung says which pod of a Job was to end long ago and has not; HungHint what the user
	// can do. "" where there is none.
	Hung, HungHint string
	// Volumes says how the node has left the database and WAL, and the volumes of others
	// beside them, after an attempt that failed; "" where there are none.
	Volumes string
	// RetryAt is when a preparation that has failed is tried again; zero where none is due.
	RetryAt time.Time

	// Match is the disk that is proven to be the replacement; nil while there is none.
	Match *swap.Match
	// Question is what the user has to decide first.
	Question string
	// Disks that the node has reported when it was asked about this slot.
	Disks []string
	// Found: the node has reported a disk with the uuid that Ceph has for this id, and has not
	// called that OSD unfinished.
	Found bool
	// FoundOn is that disk, for an OSD that no attempt of ours is known of.
	FoundOn *swap.Match
	// Proven: the node has proven that this OSD is whole and all its parts are its own. That
	// a look finds it says only that it has been tagged.
	Proven bool
	// Unproven: the node says that it is not, and the note does not have it yet.
	Unproven bool
	// Fault: the last attempt has failed through its disk, after it had changed something.
	Fault bool
	// With is how the user names the new disk, "" where nobody does.
	With string
	// Need is the least size of the new disk in bytes, 0 where that is left to the node.
	Need uint64
	// Taken says what is in the slot of the disk to pull by now, with other OSDs on it, so
	// that this one has to get a disk of its own; "" where that is not known to be so.
	Taken string
	// NodeProblem says that the node cannot do anything now.
	NodeProblem string

	// Weigh is the CRUSH weight that the new OSD should have, 0 when it has it;
	// Unweighed says that this cannot be told yet.
	Weigh     float64
	Unweighed string

	// The others of the set, for an OSD that is not replaced alone.

	Mates []Mate
	// Joined are OSDs of other sets that wait for the same new metadata device: those that
	// were on the last one when it failed, and are replaced again.
	Joined []Mate
	// Behind says which OSD of the set is still on the new metadata device that has failed,
	// and what is awaited of it before the next device is taken; BehindHint is what the user
	// can do. "" where there is none.
	Behind, BehindHint string
	// Begun: the claimed metadata device carries the database of a rebuilt OSD, so that it is
	// not blank for any other any more.
	Begun bool
	// Leads: the annotation that asks for the set is on this OSD's Deployment.
	Leads bool
	// Strangers are OSDs on the set's disk that are not in the set.
	Strangers []string
	// Loss: the user accepts that data is lost that is only on this set.
	Loss bool
	// LongDead: what the note says of the OSD's death is long enough ago.
	LongDead bool
	// DeadDue is when it is.
	DeadDue time.Time
}

// encrypted: the OSD's volumes have dm-crypt mappings.
func (s State) encrypted() bool { return s.Note != nil && s.Note.Record.Encrypted }

// leavesVolumes: volumes of the OSD survive the pulling of the disk, or of part of what
// is on it.
func (s State) leavesVolumes() bool {
	if s.Note == nil {
		return false
	}
	return len(s.Note.Left()) > 0
}
