package mon

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/mon/plan"
	"github.com/castellan-storage/castellan/internal/mon/spec"
)

// A mon on a node's disk is pinned by the node's hostname label. Where two nodes have the
// same, or the node has none, its pod could come to a node on which it has no store.
func TestAMonIsNotPinnedByALabelThatTwoNodesHave(t *testing.T) {
	for name, c := range map[string]struct {
		labels  [2]string
		refused string
	}{
		"each its own":  {[2]string{"n1", "n2"}, ""},
		"both the same": {[2]string{"n", "n"}, "n1, n2"},
		"none":          {[2]string{"", "n2"}, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			cl, objs := cluster()
			s := newStores(t, objs...)
			for i, n := range []string{"n1", "n2"} {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{}}}
				if c.labels[i] != "" {
					node.Labels[corev1.LabelHostname] = c.labels[i]
				}
				if err := s.cache.Create(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: spec.CanaryName("a"), Labels: map[string]string{"app": spec.App, "mon": "a", spec.CanaryLabel: "true"}}, Spec: corev1.PodSpec{NodeName: "n1"}}
			if err := s.cache.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			seen, _ := observe(t, s, cl)
			got := seen.State.Mons["a"].Canary
			if (got.Place == nil) != (c.refused != "") || !strings.Contains(got.Refused, c.refused) {
				t.Errorf("%+v", got)
			}
			if a := plan.Next(seen.State); c.refused != "" && a.Kind == plan.Record {
				t.Errorf("%s", a)
			}
		})
	}
}

// A time that nobody can read, or that a wrong clock has noted, keeps a mon that is lost
// from being replaced for ever, unless it is noted anew.
func TestANoteThatIsNoTimeIsNotedAnew(t *testing.T) {
	now := kittest.Stopped()
	for name, c := range map[string]struct {
		value string
		want  time.Time
	}{
		"none":             {"", time.Time{}},
		"a time":           {now.Add(-time.Hour).UTC().Format(time.RFC3339), now.Add(-time.Hour).UTC().Truncate(time.Second)},
		"a bit ahead":      {now.Add(10 * time.Second).UTC().Format(time.RFC3339), now.Add(10 * time.Second).UTC().Truncate(time.Second)},
		"of a wrong clock": {now.AddDate(1, 0, 0).UTC().Format(time.RFC3339), time.Time{}},
		"no time":          {"yesterday", time.Time{}},
	} {
		d := monDeployment("a", corev1.PodSpec{})
		d.Annotations = map[string]string{spec.OutSinceAnnotation: c.value}
		got := stamp(d, spec.OutSinceAnnotation, now)
		if !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		s := plan.State{Now: now, Spec: plan.Spec{Count: 1, OutTimeout: 10 * time.Minute, CheckInterval: time.Second}, Quorum: true, Mons: map[string]plan.Mon{}}
		s.Mons["a"] = plan.Mon{Listed: true, Deployed: true, InMap: true, Made: now.Add(-time.Hour), OutSince: got, Scheduled: true}
		s.List.Mons = map[string]endpoints.Mon{"a": {ID: "a"}}
		if a := plan.Next(s); (a.Kind == plan.MarkOut) != c.want.IsZero() {
			t.Errorf("%s: %s", name, a)
		}
	}
}
