package kit

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/castellan-storage/castellan/internal/kube"
)

// Env is what all controllers of a process share. EnvOf makes it from a manager.
type Env struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server. It confirms before something is destroyed.
	Live client.Reader
	// Recorder sends events. nil sends none.
	Recorder Recorder
	// Clock gives the time of a pass. nil is the real one.
	Clock clock.PassiveClock
	// Hook sees every effect. nil in production.
	Hook Hook
	// Fence is asked before every effect, and an error of it ends the pass before the
	// effect: a process that has lost its lease must not go on. nil asks nobody.
	Fence func(ctx context.Context) error
	// Metrics may be nil.
	Metrics *Metrics
	// Board may be nil.
	Board *Board
	// Writers may be nil: controllers then write one object's status at the same time.
	Writers *Writers
}

// Recorder sends events; it is the recorder of k8s.io/client-go/tools/events.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Options says, as data, how a controller is run.
type Options struct {
	// Name is unique in the process; it is the metric label and the log name.
	Name string
	// Finalizer holds the object until Teardown has nothing left to do. Empty: kit
	// sets none, and Teardown is called for as long as somebody else holds it.
	Finalizer string
	// Dependents block the deletion while they exist.
	Dependents []Dependent
	// Owns are kinds whose objects carry an owner reference to the driving object (not
	// for Keyed controllers).
	Owns []Object
	// OwnsNamed narrows Owns to the objects whose name it is true for: all controllers of
	// an object own through it, and what others keep leads to no pass. nil passes all.
	OwnsNamed func(name string) bool
	// Watches are all other kinds that lead to a pass.
	Watches []Watch
	// Sources are sources other than kinds (channels). They must give Requests.
	Sources []source.Source
	// When filters the events of the driving object. nil passes changes of generation,
	// labels, annotations, finalizers and deletion, but not of status.
	When predicate.Predicate
	// Concurrency is the number of keys worked on at once; 16 if zero. A pass that hangs
	// holds one, and costs no more than a goroutine.
	Concurrency int
	// PerNamespace is how many of these one namespace may have; 4 if zero. A cluster that
	// does not answer, with hundreds of OSDs, so leaves room for the others. What is over
	// comes again within a moment.
	PerNamespace int
	// Timeout is the deadline of a pass without its report; 2 minutes if zero.
	Timeout time.Duration
	// Resync is the time after which a Wait that gives none looks again; 30 s if zero.
	Resync time.Duration
	// Report names the conditions that tell the end of each pass.
	Report Report
	// Phases is set for kinds with status.phase.
	Phases *Phases
	// AdoptFrom are field managers whose fields are taken over when an object is first
	// applied ("rook"), so that fields no longer wanted can be removed.
	AdoptFrom sets.Set[string]
}

// OwnsWhen filters the events of Owns.
func (o Options) OwnsWhen() predicate.Predicate {
	if o.OwnsNamed == nil {
		return kube.Changed()
	}
	return predicate.And(kube.Changed(), predicate.NewPredicateFuncs(func(obj client.Object) bool { return o.OwnsNamed(obj.GetName()) }))
}

// Report names the conditions by which kit tells how a pass ended. An empty name
// sets none; the zero Report is DefaultReport.
//
//	end       Ready                  Progressing
//	done      True  ReconcileSucceeded     False ReconcileSucceeded
//	Wait      False <reason>         True  <reason>, or False if Wait.Blocked
//	terminal  False InvalidSpec      False InvalidSpec; the message names the field
//	error     False ReconcileFailed  True  ReconcileFailed (it is retried)
//
// lastTransitionTime is the time since when status and reason are as they are, so
// it answers "blocked by this since when".
type Report struct {
	Ready       string
	Progressing string
	// Shared says that other controllers report on the same object, so status.phase
	// and status.observedGeneration, which are about the object as a whole, are left to
	// the one that does not set this.
	Shared bool
	// None sets no condition at all, and implies Shared: a controller with many keys
	// to one object shows its waits by Env.Board, events and metrics.
	None bool
}

// DefaultReport is what the zero Report means.
func DefaultReport() Report { return Report{Ready: "Ready", Progressing: "Progressing"} }

// SubjectReport gives conditions of their own to one of several controllers of an
// object: "MonReady", "MonProgressing".
func SubjectReport(subject string) Report {
	return Report{Ready: subject + "Ready", Progressing: subject + "Progressing", Shared: true}
}

// Phases are the values of status.phase by how the pass ended.
type Phases struct {
	Ready, Waiting, Failed, Deleting string
}

// RookPhases are the phases that users of Rook know.
func RookPhases() *Phases {
	return &Phases{Ready: "Ready", Waiting: "Progressing", Failed: "Failure", Deleting: "Deleting"}
}

// Dependent is a kind whose objects need the driving object. One line makes the
// index, the watch back to the parent and the message that names each blocker.
type Dependent struct {
	// Object is an empty object of the kind.
	Object Object
	// Parents gives the keys of the driving objects that dep needs.
	Parents func(dep Object) []Key
}

// Watch is a kind that leads to passes.
type Watch struct {
	// Object is an empty object of the kind.
	Object Object
	// Map gives the keys that the object concerns. It may read from the cache.
	Map func(ctx context.Context, cache client.Reader, obj Object) []Key
	// When filters the events; nil passes all.
	When predicate.Predicate
	// MetadataOnly watches only the metadata: for kinds of others, or big ones.
	MetadataOnly bool
}
