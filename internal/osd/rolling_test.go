package osd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/osd/plan"
)

// stops is a Ceph that knows which OSDs may stop, and how its PGs are. Any other command
// is an error.
type stops struct {
	ceph.Commander
	// may lists the sets that may stop, as "[0 1]".
	may   map[string]bool
	pgs   string
	asked []string
}

func (s *stops) Mon(_ context.Context, cmd ceph.Command) (ceph.Reply, error) { return s.answer(cmd) }
func (s *stops) Mgr(_ context.Context, cmd ceph.Command) (ceph.Reply, error) { return s.answer(cmd) }

func (s *stops) answer(cmd ceph.Command) (ceph.Reply, error) {
	switch cmd.Prefix {
	case "osd ok-to-stop":
		set := fmt.Sprint(cmd.Args["ids"])
		s.asked = append(s.asked, set)
		if s.may[set] {
			return ceph.Reply{Out: []byte(`{"ok_to_stop":true}`)}, nil
		}
		return ceph.Reply{Out: []byte(`{"ok_to_stop":false,"bad_become_inactive":["2.1f"]}`)}, nil
	case "status":
		return ceph.Reply{Out: []byte(s.pgs)}, nil
	}
	return ceph.Reply{}, fmt.Errorf("%s: no such command", cmd.Prefix)
}

// rolling is a cluster with an update of six OSDs on three hosts before it.
func rolling(now time.Time) (*cephv1.CephCluster, DaemonSeen) {
	cl := &cephv1.CephCluster{}
	cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "i", Version: "20.2.4-0"}
	seen := DaemonSeen{
		Now: now, Founded: true, State: plan.State{Answered: true}, Outdated: []int{0, 1, 2, 3, 4, 5},
		Live: map[int]*appsv1.Deployment{}, Wanted: map[int]*appsv1.Deployment{},
		Roll: plan.Rolling{Next: []int{0, 1}, Others: [][]int{{2, 3}, {4, 5}}, Left: 6},
	}
	for _, id := range seen.Outdated {
		seen.Live[id], seen.Wanted[id] = deployment(id, ""), deployment(id, "")
	}
	return cl, seen
}

const (
	clean   = `{"pgmap":{"num_pgs":33,"pgs_by_state":[{"state_name":"active+clean","count":33}]}}`
	unclean = `{"pgmap":{"num_pgs":33,"pgs_by_state":[{"state_name":"active+clean","count":30},{"state_name":"active+undersized+degraded","count":3}]}}`
)

func TestWhichOSDsAnUpdateStopsNext(t *testing.T) {
	at := time.Unix(1790000000/15*15, 0) // a multiple of notOkAgain: which of the others is asked about is known
	turn := int(at.Unix()/15) % 2
	other := [][]int{{2, 3}, {4, 5}}[turn]
	since := func(d time.Duration) cephv1.Condition {
		return cephv1.Condition{Type: "OSDReady", Status: "False", Reason: notOk, LastTransitionTime: metav1.NewTime(at.Add(-d))}
	}
	for _, c := range []struct {
		name   string
		may    []string
		pgs    string
		change func(*cephv1.CephCluster)
		// stop are the OSDs that restart, and checked says that this is asked of Ceph again
		// right before; or else why the update waits.
		stop    []int
		checked bool
		why     string
	}{
		{name: "a whole host", may: []string{"[0 1]"}, stop: []int{0, 1}, checked: true},
		{name: "one of a host", may: []string{"[0]"}, stop: []int{0}, checked: true},
		{name: "another host", may: []string{fmt.Sprint(other)}, stop: other, checked: true},
		{name: "none", why: "osd.0 is not ok to stop: pgs 2.1f would be inactive; 6 OSDs are left to update"},
		{name: "none, and the spec goes on after ten minutes", change: func(cl *cephv1.CephCluster) {
			cl.Spec.ContinueUpgradeAfterChecksEvenIfNotHealthy = true
			cl.Status.Conditions = []cephv1.Condition{since(10 * time.Minute)}
		}, stop: []int{0}},
		{name: "not yet", change: func(cl *cephv1.CephCluster) {
			cl.Spec.ContinueUpgradeAfterChecksEvenIfNotHealthy = true
			cl.Status.Conditions = []cephv1.Condition{since(10*time.Minute - time.Second)}
		}, why: "osd.0 is not ok to stop"},
		{name: "not yet, by the spec's own time", change: func(cl *cephv1.CephCluster) {
			cl.Spec.ContinueUpgradeAfterChecksEvenIfNotHealthy, cl.Spec.WaitTimeoutForHealthyOSDInMinutes = true, 30
			cl.Status.Conditions = []cephv1.Condition{since(29 * time.Minute)}
		}, why: "osd.0 is not ok to stop"},
		{name: "it waited for something else", change: func(cl *cephv1.CephCluster) {
			cl.Spec.ContinueUpgradeAfterChecksEvenIfNotHealthy = true
			c := since(time.Hour)
			c.Reason = "OSDsUpdating"
			cl.Status.Conditions = []cephv1.Condition{c}
		}, why: "osd.0 is not ok to stop"},
		{name: "nobody has asked to go on", change: func(cl *cephv1.CephCluster) {
			cl.Status.Conditions = []cephv1.Condition{since(time.Hour)}
		}, why: "osd.0 is not ok to stop"},
		{name: "PGs have to be clean and are not", may: []string{"[0 1]"}, pgs: unclean, change: func(cl *cephv1.CephCluster) {
			cl.Spec.UpgradeOSDRequiresHealthyPGs = true
		}, why: "not all PGs are active and clean (3 active+undersized+degraded)"},
		{name: "PGs have to be clean and are", may: []string{"[0 1]"}, pgs: clean, change: func(cl *cephv1.CephCluster) {
			cl.Spec.UpgradeOSDRequiresHealthyPGs = true
		}, stop: []int{0, 1}, checked: true},
		{name: "no checks", pgs: unclean, change: func(cl *cephv1.CephCluster) {
			cl.Spec.SkipUpgradeChecks, cl.Spec.UpgradeOSDRequiresHealthyPGs = true, true
		}, stop: []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, seen := rolling(at)
			if c.change != nil {
				c.change(cl)
			}
			ask := &stops{may: map[string]bool{}, pgs: c.pgs}
			for _, s := range c.may {
				ask.may[s] = true
			}
			if err := (&Daemons{}).update(t.Context(), cl, ask, &seen); err != nil {
				t.Fatal(err)
			}
			var p kit.Plan
			roll(cl, seen, &p)
			stop, checked := []int(nil), true
			for _, a := range p.Do {
				sure, is := a.(kit.Confirmed)
				checked = checked && is
				if is {
					stop = sure.Check.(OkToStop).IDs
				} else {
					for _, id := range seen.Roll.Next {
						if a.(kit.Apply).Object == kit.Object(seen.Wanted[id]) {
							stop = append(stop, id)
						}
					}
				}
			}
			if diff := cmp.Diff(c.stop, stop); diff != "" || len(stop) > 0 && checked != c.checked {
				t.Errorf("checked %v: %s", checked, diff)
			}
			if c.why != "" && (p.Wait == nil || !strings.Contains(p.Wait.Message, c.why)) {
				t.Errorf("%+v", p.Wait)
			}
			if told := len(p.Events) > 0; told != (len(c.stop) > 0 && !c.checked && !cl.Spec.SkipUpgradeChecks) {
				t.Errorf("events: %+v", p.Events)
			}
		})
	}
}

// The hosts that are asked about when the first one may not stop come in turn.
func TestEveryHostHasItsTurn(t *testing.T) {
	asked := map[string]bool{}
	for i := range 2 {
		_, seen := rolling(time.Unix(1790000000, 0).Add(time.Duration(i) * notOkAgain))
		ask := &stops{}
		if err := seen.mayStop(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		for _, s := range ask.asked {
			asked[s] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"[0 1]": true, "[0]": true, "[2 3]": true, "[4 5]": true}, asked); diff != "" {
		t.Error(diff)
	}
}
