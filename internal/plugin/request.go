package plugin

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// fenceLabel on a Deployment asks every operator to leave it alone.
const fenceLabel = "ceph.rook.io/do-not-reconcile"

// OSD is what is known of an OSD when something is asked of it.
type OSD struct {
	ID int
	// Deployment of the OSD, which carries the requests.
	Deployment *appsv1.Deployment
	// Replacement is its entry in the CephCluster's status; nil if there is none.
	Replacement *cephv1.OSDReplacement
}

// Request is a change of the annotations of an OSD's Deployment.
type Request struct {
	// Set are annotations to write, Remove those to take away.
	Set    map[string]string
	Remove []string
	// Message tells the user what was asked for.
	Message string
}

// Empty reports whether there is nothing to change.
func (r Request) Empty() bool { return len(r.Set) == 0 && len(r.Remove) == 0 }

func (o OSD) annotation(name string) string {
	if o.Deployment == nil {
		return ""
	}
	return o.Deployment.Annotations[name]
}

func (o OSD) marked(name string) bool {
	_, ok := o.Deployment.Annotations[name]
	return ok
}

// leader is the OSD whose annotation asks for the metadata device that this OSD is on; its
// own id where it is asked for alone.
func (o OSD) leader() int {
	note, err := plan.ReadNote(o.annotation(spec.NoteAnnotation), o.ID)
	if err != nil || note == nil || note.Set == nil || note.Set.Kind != plan.OnMetadata {
		return o.ID
	}
	return note.Set.Leader
}

func (o OSD) askedMetadata() bool {
	v := o.annotation(spec.MetadataAnnotation)
	return v == spec.MetadataConfirmation(o.ID) || v == spec.LossConfirmation(o.ID)
}

func (o OSD) asked() bool { return o.annotation(spec.ReplaceAnnotation) == spec.Confirmation(o.ID) }

// requested: a replacement of some kind is asked for, by whatever value.
func (o OSD) requested() bool {
	return o.marked(spec.ReplaceAnnotation) || o.marked(spec.MetadataAnnotation)
}

func (o OSD) phase() cephv1.OSDReplacementPhase {
	if o.Replacement == nil {
		return ""
	}
	return o.Replacement.Phase
}

// rebuilt reports whether the OSD has its new disk and has been given back, so that it can
// be asked for like any other: the operator takes a new request while it starts, since it
// may never come up there.
func (o OSD) rebuilt() bool {
	return o.marked(spec.ReplacedAnnotation) && !spec.Replacing(o.Deployment.Annotations)
}

// failed reports whether the last disk that was to become the OSD could not be prepared.
func (o OSD) failed() bool {
	note, err := plan.ReadNote(o.annotation(spec.NoteAnnotation), o.ID)
	return err == nil && note != nil && note.Attempt != nil && note.Attempt.Failed != ""
}

// gone reports whether the OSD is known to be destroyed, so that there is no way back.
func (o OSD) gone() bool {
	return !o.rebuilt() && (o.marked(spec.ReadyAnnotation) || slices.Contains([]cephv1.OSDReplacementPhase{
		cephv1.OSDReplacementReadyForSwap, cephv1.OSDReplacementProvisioning, cephv1.OSDReplacementAbandoning,
	}, o.phase()))
}

// check refuses a Deployment that is not the OSD's own.
func (o OSD) check() error {
	id, err := spec.IDOf(o.Deployment)
	if err != nil {
		return err
	}
	if id != o.ID {
		return fmt.Errorf("the Deployment %s is the one of osd.%d, not of osd.%d", o.Deployment.Name, id, o.ID)
	}
	return nil
}

// AskReplace asks for the replacement of the OSD's disk. with names the new disk; "" lets
// the operator find it. Asking again changes nothing, or names another disk.
func AskReplace(o OSD, with string) (Request, error) {
	if err := o.check(); err != nil {
		return Request{}, err
	}
	if err := checkDevice(with); err != nil {
		return Request{}, err
	}
	if o.marked(spec.MetadataAnnotation) || o.leader() != o.ID {
		return Request{}, fmt.Errorf("the metadata device of osd.%d is being replaced: ask for its disk when that is done", o.ID)
	}
	if err := o.free(o.asked()); err != nil {
		return Request{}, err
	}
	r := Request{Set: map[string]string{}}
	if !o.asked() {
		r.Set[spec.ReplaceAnnotation] = spec.Confirmation(o.ID)
		r.Message = fmt.Sprintf("osd.%d: asked for its replacement", o.ID)
	} else {
		r.Message = fmt.Sprintf("osd.%d: its replacement was asked for before", o.ID)
	}
	o.name(&r, with)
	return r, nil
}

// name has a request name the new disk.
func (o OSD) name(r *Request, with string) {
	if with != "" && o.annotation(spec.WithAnnotation) != with {
		r.Set[spec.WithAnnotation] = with
		r.Message += fmt.Sprintf(", by %s", with)
	}
}

// AskMetadata asks for the replacement of the device that holds the OSD's database, and
// with it the databases of others. with names the new device; loss accepts that what is
// only on it is lost, if it is dead.
func AskMetadata(o OSD, with string, loss bool) (Request, error) {
	if err := o.check(); err != nil {
		return Request{}, err
	}
	if err := checkDevice(with); err != nil {
		return Request{}, err
	}
	switch leader := o.leader(); {
	case leader != o.ID:
		return Request{}, fmt.Errorf("the metadata device of osd.%d is being replaced already, as is asked for on osd.%d: say there what is to change", o.ID, leader)
	case o.marked(spec.ReplaceAnnotation):
		return Request{}, fmt.Errorf("osd.%d is being replaced on its own: ask for its metadata device when that is done, or cancel that", o.ID)
	}
	if err := o.free(o.askedMetadata()); err != nil {
		return Request{}, err
	}
	r, want := Request{Set: map[string]string{}}, spec.MetadataConfirmation(o.ID)
	if loss {
		want = spec.LossConfirmation(o.ID)
	}
	switch have := o.annotation(spec.MetadataAnnotation); {
	case have == want, have == spec.LossConfirmation(o.ID):
		r.Message = fmt.Sprintf("osd.%d: the replacement of its metadata device was asked for before", o.ID)
	default:
		r.Set[spec.MetadataAnnotation] = want
		r.Message = fmt.Sprintf("osd.%d: asked for the replacement of its metadata device, with all OSDs that have their database on it", o.ID)
		if loss {
			r.Message += "; what is only on it may be lost, if it is dead"
		}
	}
	o.name(&r, with)
	return r, nil
}

// free refuses an OSD of which nothing new can be asked now. asked says that the same was
// asked before.
func (o OSD) free(asked bool) error {
	switch {
	case !asked && o.phase() == cephv1.OSDReplacementCancelling && spec.Replacing(o.Deployment.Annotations), !asked && spec.Replacing(o.Deployment.Annotations) && !o.gone():
		return fmt.Errorf("osd.%d is being given back after a replacement that was cancelled: ask again when that is done (kubectl castellan osd replace status)", o.ID)
	case o.phase() == cephv1.OSDReplacementAbandoning && !o.rebuilt():
		return fmt.Errorf("the slot of osd.%d is being given up", o.ID)
	case o.Deployment.Labels[fenceLabel] != "" && !spec.Replacing(o.Deployment.Annotations):
		return fmt.Errorf("somebody has set the label %s on the Deployment %s, so the operator would not act: remove it with kubectl -n %s label deployment %s %s-",
			fenceLabel, o.Deployment.Name, o.Deployment.Namespace, o.Deployment.Name, fenceLabel)
	}
	return nil
}

// checkDevice refuses what cannot name one disk for good.
func checkDevice(with string) error {
	switch {
	case with == "":
		return nil
	case !strings.HasPrefix(with, "/dev/") || path.Clean(with) != with:
		return fmt.Errorf("--with %s: name the new disk by its path below /dev, best by the one in /dev/disk/by-id", with)
	case !strings.HasPrefix(with, "/dev/disk/") && !strings.HasPrefix(with, "/dev/mapper/"):
		return fmt.Errorf("--with %s: such a name can be another disk's after a restart of the node: use its link below /dev/disk/by-id (ls -l /dev/disk/by-id on the node)", with)
	}
	return nil
}

// AskCancel takes a request for a replacement back, as long as there is a way back.
func AskCancel(o OSD) (Request, error) {
	if err := o.check(); err != nil {
		return Request{}, err
	}
	switch {
	case o.gone():
		return Request{}, fmt.Errorf("osd.%d is destroyed already, so its replacement cannot be cancelled: put a new disk in, or give the slot up with kubectl castellan osd replace abandon %d", o.ID, o.ID)
	case o.leader() != o.ID:
		return Request{}, fmt.Errorf("osd.%d is replaced with its metadata device, as is asked for on osd.%d: cancel that one", o.ID, o.leader())
	case !o.requested() && spec.Replacing(o.Deployment.Annotations):
		return Request{Message: fmt.Sprintf("osd.%d: its replacement was cancelled before", o.ID)}, nil
	case !o.requested() && o.rebuilt():
		return Request{}, fmt.Errorf("osd.%d is replaced and starting on its new disk: there is nothing to cancel", o.ID)
	case !o.requested():
		return Request{}, fmt.Errorf("osd.%d is not being replaced: there is nothing to cancel", o.ID)
	}
	r := Request{Message: fmt.Sprintf("osd.%d: asked to cancel its replacement", o.ID)}
	for _, a := range []string{spec.ReplaceAnnotation, spec.MetadataAnnotation, spec.WithAnnotation} {
		if o.marked(a) {
			r.Remove = append(r.Remove, a)
		}
	}
	return r, nil
}

// AskAbandon gives up the slot of a destroyed OSD, for good.
func AskAbandon(o OSD) (Request, error) {
	if err := o.check(); err != nil {
		return Request{}, err
	}
	switch {
	case o.annotation(spec.AbandonAnnotation) == spec.AbandonConfirmation(o.ID):
		return Request{Message: fmt.Sprintf("osd.%d: giving up its slot was asked for before", o.ID)}, nil
	case o.rebuilt():
		return Request{}, fmt.Errorf("osd.%d is replaced and starting on its new disk; if that has failed, ask for its replacement again: kubectl castellan osd replace %d", o.ID, o.ID)
	case !o.requested() && !spec.Replacing(o.Deployment.Annotations):
		return Request{}, fmt.Errorf("osd.%d is not being replaced: only the slot of an OSD that a replacement has destroyed can be given up", o.ID)
	case !o.gone():
		return Request{}, fmt.Errorf("osd.%d is not destroyed yet: cancel its replacement with kubectl castellan osd replace cancel %d", o.ID, o.ID)
	case o.phase() == cephv1.OSDReplacementProvisioning && !o.failed():
		return Request{}, fmt.Errorf("a new disk is being prepared for osd.%d: wait until that has ended, well or not", o.ID)
	}
	return Request{
		Set:     map[string]string{spec.AbandonAnnotation: spec.AbandonConfirmation(o.ID)},
		Message: fmt.Sprintf("osd.%d: asked to give up its slot", o.ID),
	}, nil
}

// apply makes the change on a Deployment.
func (r Request) apply(m *metav1.ObjectMeta) {
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	for k, v := range r.Set {
		m.Annotations[k] = v
	}
	for _, k := range r.Remove {
		delete(m.Annotations, k)
	}
}
