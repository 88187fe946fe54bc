package observe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	osdplan "github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// An OSD that was rebuilt on the new metadata device before it failed is not left behind:
// the next device waits for it, unless it works, or the user has decided.
func TestAnOSDThatIsStillOnTheFailedDevice(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*half)
		named  bool
		says   string
		hint   string
	}{
		{"down", func(*half) {}, false, "osd.4 was rebuilt on /dev/nvme1n1 before that failed, and is down", "rook-ceph-osd-4 osd.rook.io/replace-metadata-device=yes-really-replace-metadata-of-osd-4"},
		{"down, and the disk is named", func(*half) {}, true, "", ""},
		{"up", func(h *half) { h.v.OSDMap.OSDs[2].Up = true }, false, "", ""},
		{"its pod is ready", func(h *half) { h.v.Deployments[4].Status.ReadyReplicas = 1 }, false, "", ""},
		{"on another device", func(h *half) {
			b, _ := json.Marshal(withDatabase(4, "v4", "Z"))
			h.v.Deployments[4].Annotations[spec.RecordAnnotation] = string(b)
		}, false, "", ""},
		{"asked for", func(h *half) { h.v.Deployments[4].Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(4) }, false, "is being checked", ""},
		{"refused", func(h *half) {
			h.v.Deployments[4].Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(4)
			h.v.Deployments[4].Annotations[spec.RefusedAnnotation] = "NoRoom: full"
		}, false, "NoRoom: full", "comes along"},
		{"accepted", func(h *half) { h.again(t, false) }, true, "is being replaced again", "cancel it"},
		{"destroyed again", func(h *half) { h.again(t, true) }, false, "", ""},
		{"the attempt has not failed", func(h *half) { h.notes[5].Attempt.Failed = "" }, false, "", ""},
	} {
		h := newHalf(t)
		c.change(h)
		s := h.state(5)
		s.behind(h.v, c.named)
		if (s.Behind == "") != (c.says == "") || !strings.Contains(s.Behind, c.says) || !strings.Contains(s.BehindHint, c.hint) {
			t.Errorf("%s: %q (%s)", c.name, s.Behind, s.BehindHint)
		}
	}
}

// Once it is destroyed again it waits for the same device as the others, and all know of
// each other.
func TestOSDsOfTwoSetsWaitForOneDevice(t *testing.T) {
	h := newHalf(t)
	h.again(t, true)
	var deps []appsv1.Deployment
	for _, id := range []int{6, 4, 5} {
		deps = append(deps, *h.v.Deployments[id])
	}
	slots := pending.Of(deps)["n1"]
	old := swap.Disk{Serial: "OLD", ByPath: "/dev/disk/by-path/nvme-1"}
	var ids []int
	for _, p := range slots {
		if ids = append(ids, p.OSD); p.Old != old {
			t.Errorf("osd.%d waits for what takes the place of %+v", p.OSD, p.Old)
		}
	}
	if diff := cmp.Diff([]int{4, 5, 6}, ids); diff != "" {
		t.Error(diff)
	}
	joined := func(id int) (out []int) {
		for _, m := range h.state(id).Joined {
			if !m.Claimed || !m.Gone {
				t.Errorf("osd.%d sees %+v", id, m)
			}
			out = append(out, m.ID)
		}
		return out
	}
	if diff := cmp.Diff([][]int{{5, 6}, {4}, {4}}, [][]int{joined(4), joined(5), joined(6)}); diff != "" {
		t.Error(diff)
	}
	if a, b := h.state(4).Need, h.state(5).Need; a != 3<<30 || b != 3<<30 {
		t.Errorf("the new device needs %d and %d bytes", a, b)
	}
	// One on the next device: it is not blank any more.
	h.v.OSDMap.OSDs[0] = cephosd.OSD{ID: 5, UUID: "v5", State: []string{"exists"}}
	h.v.Records = append(h.v.Records, osdplan.Record{Result: withDatabase(5, "v5", "Y"), Node: "n1"})
	h.notes[6].Attempt = &plan.Attempt{Number: 2, Device: "/dev/nvme2n1", Serial: "Y"}
	if s := h.state(6); !s.Begun {
		t.Error("the device of osd.5 counts as blank")
	}
}

// One of a set whose note was taken away keeps its share of the new disk: the other would take
// all of it, and get twice the weight.
func TestTheShareOfOneWhoseNoteIsGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*half)
		lost   bool
	}{
		{"the note is there", func(*half) {}, false},
		{"the note is gone", func(h *half) { delete(h.v.Deployments[6].Annotations, spec.NoteAnnotation) }, true},
		{"it cannot be read", func(h *half) { h.v.Deployments[6].Annotations[spec.NoteAnnotation] = "{" }, true},
		{"all marks are gone", func(h *half) { h.v.Deployments[6].Annotations = nil }, true},
		{"its Deployment is gone", func(h *half) { delete(h.v.Deployments, 6) }, false},
		{"it is made anew", func(h *half) {
			delete(h.v.Deployments[6].Annotations, spec.NoteAnnotation)
			h.v.OSDMap.OSDs[1] = cephosd.OSD{ID: 6, UUID: "v6", State: []string{"exists"}}
		}, false},
	} {
		h := newHalf(t)
		c.change(h)
		mate := h.v.Mate(plan.Member{ID: 6, UUID: "u6"}, h.notes[5], true)
		if mate.Lost != c.lost {
			t.Errorf("%s: %+v", c.name, mate)
		}
	}
}
