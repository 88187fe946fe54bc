package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/replication/plan"
)

func at(second int) metav1.Time { return metav1.Unix(1_700_000_000+int64(second), 0) }

type option func(*csiv1.ClientProfileReplication)

func cpr(name string, second int, options ...option) csiv1.ClientProfileReplication {
	r := csiv1.ClientProfileReplication{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(second)},
		Spec:       csiv1.ClientProfileReplicationSpec{LocalClientProfile: "p", RemoteClientProfile: "remote-of-" + name},
	}
	for _, o := range options {
		o(&r)
	}
	return r
}

func deleting(r *csiv1.ClientProfileReplication) { t := at(100); r.DeletionTimestamp = &t }
func stored(phase string) option {
	return func(r *csiv1.ClientProfileReplication) { r.Status.Phase = phase }
}
func local(name string) option {
	return func(r *csiv1.ClientProfileReplication) { r.Spec.LocalClientProfile = name }
}
func remote(name string) option {
	return func(r *csiv1.ClientProfileReplication) { r.Spec.RemoteClientProfile = name }
}
func pools(pairs ...string) option {
	return func(r *csiv1.ClientProfileReplication) {
		r.Spec.RBD = &csiv1.RBDReplicationSpec{}
		for i := 0; i < len(pairs); i += 2 {
			r.Spec.RBD.PoolMapping = append(r.Spec.RBD.PoolMapping, csiv1.PoolMappingSpec{Name: pairs[i], RemoteID: pairs[i+1]})
		}
	}
}

func profile(deletedAt int) *csiv1.ClientProfile {
	p := &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if deletedAt > 0 {
		t := at(deletedAt)
		p.DeletionTimestamp = &t
	}
	return p
}

const (
	accepted = "Ready/Accepted/accepted"
	notFound = "Rejected/ClientProfileNotFound/rejected: ClientProfile 'p' not found"
	goes     = "Rejected/Deleting/rejected: this ClientProfileReplication is being deleted"
)

func lostTo(winner string) string {
	return "Rejected/Conflict/rejected: another ClientProfileReplication '" + winner + "' is already active for localClientProfile 'p'"
}

func invalid(text string) string { return "Rejected/InvalidSpec/rejected: " + text }

func TestDecide(t *testing.T) {
	type list []csiv1.ClientProfileReplication
	const number = "write a decimal number from 1 to 9223372036854775807, as `ceph osd pool ls detail` prints it"
	for _, tt := range []struct {
		name    string
		profile *csiv1.ClientProfile
		all     list
		winner  string
		want    map[string]string
	}{
		{name: "none", profile: profile(0), want: map[string]string{}},
		{name: "one", profile: profile(0), all: list{cpr("a", 1)}, winner: "a", want: map[string]string{"a": accepted}},
		{name: "no profile", all: list{cpr("a", 1), cpr("b", 2)}, want: map[string]string{"a": notFound, "b": notFound}},
		{name: "oldest wins", profile: profile(0), all: list{cpr("a", 3), cpr("b", 1), cpr("c", 2)}, winner: "b",
			want: map[string]string{"a": lostTo("b"), "b": accepted, "c": lostTo("b")}},
		{name: "same second: by name", profile: profile(0), all: list{cpr("b", 1), cpr("a", 1)}, winner: "a",
			want: map[string]string{"a": accepted, "b": lostTo("a")}},
		{name: "a stored phase is not trusted", profile: profile(0), all: list{cpr("a", 1, stored("Rejected")), cpr("b", 2, stored("Ready"))}, winner: "a",
			want: map[string]string{"a": accepted, "b": lostTo("a")}},
		{name: "a terminating one does not win", profile: profile(0), all: list{cpr("a", 1, deleting), cpr("b", 2)}, winner: "b",
			want: map[string]string{"a": goes, "b": accepted}},
		{name: "other profiles are not looked at", profile: profile(0), all: list{cpr("a", 1, local("q")), cpr("b", 2)}, winner: "b",
			want: map[string]string{"b": accepted}},
		{name: "to itself", profile: profile(0), all: list{cpr("a", 1, remote("p"), pools("rbd", "2"))}, winner: "a", want: map[string]string{"a": accepted}},
		{name: "profile is being deleted", profile: profile(10), all: list{cpr("a", 11), cpr("b", 9)}, winner: "b",
			want: map[string]string{"a": "Rejected/ClientProfileDeleting/rejected: ClientProfile 'p' is being deleted", "b": accepted}},
		{name: "an invalid one makes way", profile: profile(0), all: list{cpr("a", 1, remote("")), cpr("b", 2)}, winner: "b",
			want: map[string]string{"a": invalid("spec.remoteClientProfile: must not be empty; write the name of the client profile in the destination cluster"), "b": accepted}},
		{name: "remote too long", profile: profile(0), all: list{cpr("a", 1, remote(strings.Repeat("x", 65))), cpr("b", 2, remote(strings.Repeat("x", 64)))}, winner: "b",
			want: map[string]string{"a": invalid("spec.remoteClientProfile: has 65 bytes, a volume handle can hold 64; use a shorter profile name in the destination cluster"), "b": accepted}},
		{name: "remote too long in bytes", profile: profile(0), all: list{cpr("a", 1, remote(strings.Repeat("é", 33)))},
			want: map[string]string{"a": invalid("spec.remoteClientProfile: has 66 bytes, a volume handle can hold 64; use a shorter profile name in the destination cluster")}},
		{name: "pool twice", profile: profile(0), all: list{cpr("a", 1, pools("x", "1", "y", "2", "x", "3"))},
			want: map[string]string{"a": invalid("spec.rbd.poolMapping[2].name: pool 'x' is listed twice, first as poolMapping[0]; list it once")}},
		{name: "pool without a name", profile: profile(0), all: list{cpr("a", 1, pools("", "1"))},
			want: map[string]string{"a": invalid("spec.rbd.poolMapping[0].name: must not be empty; write the name of the mirrored pool")}},
		{name: "remote id no number", profile: profile(0), all: list{cpr("a", 1, pools("x", "five"))},
			want: map[string]string{"a": invalid("spec.rbd.poolMapping[0].remoteID: 'five' is no pool id; " + number)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := plan.Decide("p", tt.profile, tt.all)
			winner := ""
			if d.Winner != nil {
				winner = d.Winner.Name
			}
			if winner != tt.winner {
				t.Errorf("winner %q, want %q", winner, tt.winner)
			}
			got := map[string]string{}
			for name, v := range d.Verdicts {
				got[name] = v.Phase + "/" + v.Reason + "/" + v.Message
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("verdicts (-want +got):\n%s", d)
			}
		})
	}
}

func TestIsPoolID(t *testing.T) {
	for s, want := range map[string]bool{
		"1": true, "5": true, "4096": true, "9223372036854775807": true,
		"": false, "0": false, "0005": false, "+5": false, "-1": false, " 5": false, "5 ": false, "five": false, "0x10": false,
		"9223372036854775808": false, "99999999999999999999": false, "5\n": false, "٥": false,
	} {
		if got := plan.IsPoolID(s); got != want {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	r := cpr("a", 1, pools("x", "1", "y", "2", "z", "1"))
	if d := cmp.Diff([]string{"pools 'x' and 'z' both lead to remote pool 1"}, plan.Warnings(&r.Spec)); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
	r = cpr("a", 1)
	if w := plan.Warnings(&r.Spec); w != nil {
		t.Errorf("got %v", w)
	}
}

// TestReferrers: every replication protects its profile, in any state.
func TestReferrers(t *testing.T) {
	got := plan.Referrers("p", []csiv1.ClientProfileReplication{cpr("c", 1, deleting), cpr("a", 2, stored("Rejected")), cpr("b", 3, local("q"))})
	if d := cmp.Diff([]string{"a", "c"}, got); d != "" {
		t.Errorf("referrers (-want +got):\n%s", d)
	}
	want := "cannot delete: ClientProfileReplication CRs still reference this profile: [a, c]"
	if m := plan.BlockedMessage(got); m != want {
		t.Errorf("got %q, want %q", m, want)
	}
}

// TestDecideAlways holds what must be true of any set of replications: at most
// one is accepted, it is the winner, the order of the list does not matter, and
// removing a loser changes nothing for the others.
func TestDecideAlways(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	options := []option{deleting, stored("Ready"), local("q"), remote(""), pools("x", "0"), pools("x", "7")}
	for range 3000 {
		var all []csiv1.ClientProfileReplication
		for i := range random.IntN(6) {
			var chosen []option
			for _, o := range options {
				if random.IntN(5) == 0 {
					chosen = append(chosen, o)
				}
			}
			all = append(all, cpr(fmt.Sprintf("r%d", i), random.IntN(3), chosen...))
		}
		p := []*csiv1.ClientProfile{nil, profile(0), profile(1)}[random.IntN(3)]
		d := plan.Decide("p", p, all)
		checkOne(t, d, p, all)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if diff := cmp.Diff(d, plan.Decide("p", p, all)); diff != "" {
			t.Fatalf("the order of the list matters:\n%s", diff)
		}
	}
}

func checkOne(t *testing.T, d plan.Decision, p *csiv1.ClientProfile, all []csiv1.ClientProfileReplication) {
	t.Helper()
	ready := 0
	for name, v := range d.Verdicts {
		if v.Accepted() != (v.Phase == csiv1.ClientProfileReplicationPhaseReady) {
			t.Fatalf("%s: %+v", name, v)
		}
		if v.Accepted() {
			ready++
			if d.Winner == nil || d.Winner.Name != name {
				t.Fatalf("%s is accepted, the winner is %v", name, d.Winner)
			}
		}
	}
	if ready > 1 || (ready == 1) != (d.Winner != nil) {
		t.Fatalf("%d accepted, winner %v", ready, d.Winner)
	}
	for i := range all {
		r := &all[i]
		if _, judged := d.Verdicts[r.Name]; judged != (r.Spec.LocalClientProfile == "p") {
			t.Fatalf("%s: judged %v", r.Name, judged)
		}
		if d.Winner == nil || r.Name == d.Winner.Name {
			continue
		}
		fewer := append(append([]csiv1.ClientProfileReplication{}, all[:i]...), all[i+1:]...)
		if again := plan.Decide("p", p, fewer); again.Winner == nil || again.Winner.Name != d.Winner.Name {
			t.Fatalf("without the loser %s the winner changes from %s to %v", r.Name, d.Winner.Name, again.Winner)
		}
	}
}
