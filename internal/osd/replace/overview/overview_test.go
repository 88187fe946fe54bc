package overview

import (
	"strings"
	"testing"
	"time"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
)

func TestProgress(t *testing.T) {
	begun := time.Unix(1790000000, 0)
	e := Entry{State: plan.State{Note: &plan.Note{Drain: &plan.Drain{Since: begun, PGs: 32, Bytes: 3 << 30}}}, Action: plan.Action{Phase: cephv1.OSDReplacementDraining}, Left: 12, Counted: true}
	at := begun.Add(20 * time.Second)
	want := "62% (12 of 32 PGs left, about 1.12 GiB of 3 GiB, 96 MiB/s, 12s to go)"
	got := progress(e, at, "")
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// In steps of a hundredth: time alone is not written.
	if again := progress(e, at.Add(time.Minute), got); again != got {
		t.Errorf("%q", again)
	}
	e.Counted = false
	if unknown := progress(e, at, got); unknown != got {
		t.Errorf("while Ceph is silent: %q", unknown)
	}
	e.Counted, e.Left = true, 40
	if more := progress(e, at, ""); !strings.HasPrefix(more, "0% (40 of 40 PGs left") {
		t.Errorf("PGs came: %q", more)
	}
}

// While it drains the user reads more than that it drains, if there is more.
func TestWhatIsAwaitedWhileDraining(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{"Draining", "its data is being moved to other OSDs"},
		{"DeviceSeemsDead", "the message (the hint)"},
		{"SafetyUnknown", "the message (the hint)"},
		{"NowhereToDrain", "the message (the hint)"},
	} {
		seen := Seen{Now: time.Unix(1790000000, 0), Entries: []Entry{{State: plan.State{ID: 5}, Action: plan.Action{Kind: plan.Wait, Phase: cephv1.OSDReplacementDraining, Reason: c.reason, Message: "the message", Hint: "the hint"}}}}
		if got := replacements(seen, nil); len(got) != 1 || got[0].WaitingFor != c.want {
			t.Errorf("%s: %+v", c.reason, got)
		}
	}
}
