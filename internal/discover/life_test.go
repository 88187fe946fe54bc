package discover

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/discover/spec"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/node/discover"
	"github.com/castellan-storage/castellan/internal/settings"
)

const ns = "rook-ceph"

func world(t testing.TB, data map[string]string) *kittest.World {
	t.Helper()
	store, err := kittest.NewStore(clientgoscheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	c := store.Client()
	labels := map[string]string{"app": spec.App, "castellan.ceph.io/owned": "true"}
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: discover.MapName("n1"), Namespace: ns, Labels: labels}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: discover.MapName("gone"), Namespace: ns, Labels: labels}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "users-own", Namespace: ns}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: operatorDeployment, Namespace: ns}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return &kittest.World{
		Env: kit.Env{Client: c},
		Drivers: []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*corev1.ConfigMap, Seen] {
			return &Controller{
				Cache: env.Client, Live: env.Client, Operator: pods.Operator{Image: "castellan:1", Namespace: ns, Version: "1"},
				Settings: func(context.Context) (settings.Settings, error) { s, _ := settings.Parse(data); return s, nil },
			}
		}, Options(ns), func(context.Context, client.Reader) ([]kit.Key, error) { return []kit.Key{Key(ns)}, nil })},
		Digest: func(ctx context.Context) (string, error) {
			return kittest.Digest(ctx, c, ns, &appsv1.DaemonSetList{}, &corev1.ConfigMapList{})
		},
	}
}

func names(t *testing.T, w *kittest.World) []string {
	t.Helper()
	var ds appsv1.DaemonSetList
	var cms corev1.ConfigMapList
	for _, l := range []client.ObjectList{&ds, &cms} {
		if err := w.Env.Client.List(t.Context(), l, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for _, d := range ds.Items {
		out = append(out, "DaemonSet "+d.Name)
	}
	for _, m := range cms.Items {
		out = append(out, m.Name)
	}
	return out
}

// Switched on, changed and switched off, with a crash at every effect.
func TestLife(t *testing.T) {
	on, off := map[string]string{"ROOK_ENABLE_DISCOVERY_DAEMON": "true"}, map[string]string{}
	play := func(t testing.TB) (kittest.Scenario, map[string]string) {
		data := map[string]string{}
		set := func(to map[string]string) func(context.Context, *kittest.World) error {
			return func(context.Context, *kittest.World) error {
				clear(data)
				for k, v := range to {
					data[k] = v
				}
				return nil
			}
		}
		return kittest.Scenario{
			World: func(t testing.TB) *kittest.World { clear(data); return world(t, data) },
			Acts: []kittest.Act{
				{Name: "on", Do: set(on)},
				{Name: "another interval", Do: set(map[string]string{"ROOK_ENABLE_DISCOVERY_DAEMON": "true", "ROOK_DISCOVER_DEVICES_INTERVAL": "1m"})},
				{Name: "off", Do: set(off)},
			},
		}, data
	}
	s, _ := play(t)
	if res := kittest.Run(t, s); len(res.Effects) < 4 {
		t.Errorf("effects: %v", res.Effects)
	}
}

func TestOnAndOff(t *testing.T) {
	for _, c := range []struct {
		data map[string]string
		want []string
	}{
		{map[string]string{"ROOK_ENABLE_DISCOVERY_DAEMON": "true"}, []string{"DaemonSet rook-discover", "local-device-n1", "users-own"}},
		{map[string]string{}, []string{"users-own"}},
	} {
		var w *kittest.World
		if _, err := kittest.Play(t, kittest.Scenario{World: func(t testing.TB) *kittest.World { w = world(t, c.data); return w }, Acts: []kittest.Act{{Name: "start", Do: func(context.Context, *kittest.World) error { return nil }}}}, 0, kittest.Before); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, names(t, w)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.data, diff)
		}
	}
}

// A bad setting leaves what runs as it is, and names the key.
func TestBadSetting(t *testing.T) {
	s, _ := settings.Parse(map[string]string{"ROOK_ENABLE_DISCOVERY_DAEMON": "true", "DISCOVER_TOLERATION": "Sometimes"})
	p := (&Controller{}).Plan(nil, Seen{Settings: s, Maps: []string{"local-device-gone"}})
	bad, ok := kit.AsTerminal(p.Err)
	if !ok || bad.Field != "data.DISCOVER_TOLERATION" || !strings.Contains(bad.Message, "Sometimes") || len(p.Apply)+len(p.Delete) > 0 {
		t.Errorf("%s", p)
	}
}
