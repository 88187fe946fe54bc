package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/plan"
)

func profile(name string, second int64, mods ...func(*csiv1.ClientProfile)) csiv1.ClientProfile {
	p := csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0), Finalizers: []string{csiv1.ClientProfileFinalizer}}}
	p.Spec.CephConnectionRef.Name = "c"
	for _, m := range mods {
		m(&p)
	}
	return p
}

func deleting(p *csiv1.ClientProfile) { t := metav1.Unix(100, 0); p.DeletionTimestamp = &t }
func unheld(p *csiv1.ClientProfile)   { p.Finalizers = nil }
func to(connection string) func(*csiv1.ClientProfile) {
	return func(p *csiv1.ClientProfile) { p.Spec.CephConnectionRef.Name = connection }
}

func replication(name, local, remote string, second int64) csiv1.ClientProfileReplication {
	return csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)},
		Spec: csiv1.ClientProfileReplicationSpec{LocalClientProfile: local, RemoteClientProfile: remote}}
}

// brief gives a file as "id@monitor>remote ...".
func brief(t *testing.T, text string) string {
	t.Helper()
	f, err := clusterconfig.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, id := range f.IDs() {
		r, _, err := f.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		part := id
		if len(r.Monitors) > 0 {
			part += "@" + r.Monitors[0]
		}
		if r.ReplicationDestination != nil {
			part += ">" + r.ReplicationDestination.RemoteClusterID
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func TestDecide(t *testing.T) {
	conn := []csiv1.CephConnection{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: csiv1.CephConnectionSpec{Monitors: []string{"m"}}}}
	for _, tt := range []struct {
		name         string
		profiles     []csiv1.ClientProfile
		replications []csiv1.ClientProfileReplication
		text         string
		ours         []string
		want         string
		wantOurs     []string
		orphans      []string
	}{
		{name: "nothing", want: ""},
		{name: "by age", profiles: []csiv1.ClientProfile{profile("a", 2), profile("b", 1)}, want: "b@m a@m", wantOurs: []string{"a", "b"}},
		{name: "not before the finalizer is there", profiles: []csiv1.ClientProfile{profile("a", 1, unheld)}, want: ""},
		{name: "winner", profiles: []csiv1.ClientProfile{profile("a", 1)}, replications: []csiv1.ClientProfileReplication{replication("x", "a", "late", 9), replication("y", "a", "early", 3)},
			want: "a@m>early", wantOurs: []string{"a"}},
		{name: "deletion is blocked: the record stays, with its destination", profiles: []csiv1.ClientProfile{profile("a", 1, deleting)},
			replications: []csiv1.ClientProfileReplication{replication("x", "a", "r", 3)}, want: "a@m>r", wantOurs: []string{"a"}},
		{name: "deletion", profiles: []csiv1.ClientProfile{profile("a", 1, deleting), profile("b", 2)}, text: `[{"clusterID":"a"},{"clusterID":"hand"}]`, ours: []string{"a"},
			want: "hand b@m", wantOurs: []string{"b"}},
		{name: "deletion without a connection", profiles: []csiv1.ClientProfile{profile("a", 1, deleting, to("gone"))}, text: `[{"clusterID":"a"}]`, ours: []string{"a"}, want: ""},
		{name: "connection is missing: the record stays", profiles: []csiv1.ClientProfile{profile("a", 1, to("gone"))}, text: `[{"clusterID":"a","monitors":["old"]}]`, ours: []string{"a"},
			want: "a@old", wantOurs: []string{"a"}},
		{name: "connection is missing from the start", profiles: []csiv1.ClientProfile{profile("a", 1, to("gone"))}, want: ""},
		{name: "orphan", text: `[{"clusterID":"a"},{"clusterID":"hand"}]`, ours: []string{"a", "never"}, want: "hand", orphans: []string{"a"}},
		{name: "takes over a record that was there", profiles: []csiv1.ClientProfile{profile("a", 1)}, text: `[{"clusterID":"a","monitors":["old"]},{"clusterID":"z"}]`,
			want: "a@m z", wantOurs: []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := plan.Decide(plan.Namespace{Profiles: tt.profiles, Connections: conn, Replications: tt.replications}, tt.text, tt.ours)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, brief(t, got.Text)); d != "" {
				t.Errorf("file (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.wantOurs, got.Ours); d != "" {
				t.Errorf("ours (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.orphans, got.Orphans); d != "" {
				t.Errorf("orphans (-want +got):\n%s", d)
			}
			again, err := plan.Decide(plan.Namespace{Profiles: tt.profiles, Connections: conn, Replications: tt.replications}, got.Text, got.Ours)
			if err != nil || again.Text != got.Text {
				t.Errorf("deciding again changes the file: %v\n%s", err, cmp.Diff(got.Text, again.Text))
			}
		})
	}
	if _, err := plan.Decide(plan.Namespace{}, "{", nil); !errors.Is(err, clusterconfig.ErrBroken) {
		t.Errorf("got %v, want ErrBroken", err)
	}
}
