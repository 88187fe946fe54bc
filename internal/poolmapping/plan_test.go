package poolmapping

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

func token(t testing.TB, fields map[string]string) []byte {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(raw))
}

func TestParseToken(t *testing.T) {
	full := map[string]string{"fsid": "f", "client_id": "rbd-mirror-peer", "key": "very-secret", "mon_host": "[v2:10.0.0.1:3300]", "namespace": "rook-ceph"}
	p, err := ParseToken(append(token(t, full), '\n'))
	if err != nil || p.FSID != "f" || p.User != "client.rbd-mirror-peer" || p.Key.Reveal() != "very-secret" || p.MonHost != "[v2:10.0.0.1:3300]" || p.Namespace != "rook-ceph" {
		t.Errorf("%+v, %v", p, err)
	}
	if strings.Contains(fmt.Sprintf("%+v %#v", p, p), "very-secret") {
		t.Error("the key is printed")
	}
	delete(full, "namespace")
	if p, err := ParseToken(token(t, full)); err != nil || p.Namespace != "" {
		t.Errorf("a token of Ceph itself: %+v, %v", p, err)
	}
	bad := [][]byte{nil, []byte("very-secret!"), []byte(base64.StdEncoding.EncodeToString([]byte("very-secret")))}
	for key := range full {
		less := map[string]string{}
		for k, v := range full {
			if k != key {
				less[k] = v
			}
		}
		bad = append(bad, token(t, less))
	}
	for _, b := range bad {
		if _, err := ParseToken(b); err == nil || strings.Contains(err.Error(), "very-secret") {
			t.Errorf("%s: %v", b, err)
		}
	}
}

func ours(remote string, pools ...string) *csiv1.ClientProfileReplication {
	r := &csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{Name: "east-mirrored-pools"}, Spec: csiv1.ClientProfileReplicationSpec{
		LocalClientProfile: "east", RemoteClientProfile: remote, RBD: &csiv1.RBDReplicationSpec{PoolMapping: []csiv1.PoolMappingSpec{}}}}
	for i := 0; i < len(pools); i += 2 {
		r.Spec.RBD.PoolMapping = append(r.Spec.RBD.PoolMapping, csiv1.PoolMappingSpec{Name: pools[i], RemoteID: pools[i+1]})
	}
	return r
}

func mapped(remote string, pairs ...[2]string) *csiv1.ClientProfileMapping {
	m := csiv1.MappingsSpec{LocalClientProfile: "east", RemoteClientProfile: remote}
	for _, p := range pairs {
		m.BlockPoolIdMapping = append(m.BlockPoolIdMapping, csiv1.BlockPoolIDPair{p[0], p[1]})
	}
	return &csiv1.ClientProfileMapping{Spec: csiv1.ClientProfileMappingSpec{Mappings: []csiv1.MappingsSpec{m}}}
}

func TestDecide(t *testing.T) {
	silent := func(p Pool) Pool {
		p.Remote, p.Reason, p.Problem = 0, ReasonSilent, "no answer"
		return p
	}
	a, b := Pool{Name: "a", Profile: "west", Local: 2, Remote: 5}, Pool{Name: "b", Profile: "west", Local: 3, Remote: 6}
	for name, tt := range map[string]struct {
		in          Input
		mapping     *csiv1.ClientProfileMapping
		replication *csiv1.ClientProfileReplication
		remove      bool
		reason      string
	}{
		"nothing is mirrored":     {},
		"two pools":               {in: Input{Pools: []Pool{b, a}}, mapping: mapped("west", [2]string{"3", "6"}, [2]string{"2", "5"}), replication: ours("west", "a", "5", "b", "6")},
		"the same again":          {in: Input{Pools: []Pool{a}, Mapping: mapped("west", [2]string{"2", "5"}), Replication: ours("west", "a", "5")}, mapping: mapped("west", [2]string{"2", "5"}), replication: ours("west", "a", "5")},
		"equal ids, other name":   {in: Input{Pools: []Pool{{Name: "a", Profile: "west", Local: 2, Remote: 2}}}, mapping: mapped("west", [2]string{"2", "2"}), replication: ours("west", "a", "2")},
		"equal ids and name":      {in: Input{Pools: []Pool{{Name: "a", Profile: "east", Local: 2, Remote: 2}}}, replication: ours("east", "a", "2")},
		"the same name":           {in: Input{Pools: []Pool{{Name: "a", Profile: "east", Local: 2, Remote: 3}}}, mapping: mapped("east", [2]string{"2", "3"}), replication: ours("east", "a", "3")},
		"made anew at the peer":   {in: Input{Pools: []Pool{{Name: "a", Profile: "west", Local: 2, Remote: 9}}, Mapping: mapped("west", [2]string{"2", "5"}), Replication: ours("west", "a", "5")}, mapping: mapped("west", [2]string{"2", "5"}, [2]string{"2", "9"}), replication: ours("west", "a", "9")},
		"the peer is silent":      {in: Input{Pools: []Pool{silent(a), silent(b)}, Mapping: mapped("west", [2]string{"2", "5"}), Replication: ours("west", "a", "5")}, mapping: mapped("west", [2]string{"2", "5"}), replication: ours("west", "a", "5"), reason: ReasonSilent},
		"silent from the start":   {in: Input{Pools: []Pool{silent(a)}}, reason: ReasonSilent},
		"no pool any more":        {in: Input{Mapping: mapped("west", [2]string{"2", "5"}), Replication: ours("west", "a", "5")}, mapping: mapped("west", [2]string{"2", "5"}), remove: true},
		"the Secret is gone":      {in: Input{Pools: []Pool{{Name: "a", Local: 2, Reason: ReasonSecretNotFound, Problem: "x"}}, Replication: ours("west", "a", "5")}, reason: ReasonSecretNotFound},
		"a pool is gone":          {in: Input{Pools: []Pool{b}, Mapping: mapped("west", [2]string{"2", "5"}), Replication: ours("west", "a", "5", "b", "6")}, mapping: mapped("west", [2]string{"2", "5"}, [2]string{"3", "6"}), replication: ours("west", "b", "6")},
		"the user has one":        {in: Input{Pools: []Pool{a}, Others: []string{"mine"}}, mapping: mapped("west", [2]string{"2", "5"})},
		"the user makes one":      {in: Input{Pools: []Pool{a}, Others: []string{"mine"}, Replication: ours("west", "a", "5")}, mapping: mapped("west", [2]string{"2", "5"}), remove: true},
		"profile is not known":    {in: Input{Pools: []Pool{{Name: "a", Local: 2, Remote: 5, Reason: ReasonProfile, Problem: "x"}}}, reason: ReasonProfile},
		"another peer, unmapped":  {in: Input{Pools: []Pool{silent(a)}, Replication: ours("south", "a", "5")}, reason: ReasonSilent},
		"one of two not known":    {in: Input{Pools: []Pool{a, {Name: "b", Profile: "west", Local: 3, Reason: ReasonPoolNotFound, Problem: "x"}}}, mapping: mapped("west", [2]string{"2", "5"}), replication: ours("west", "a", "5"), reason: ReasonPoolNotFound},
		"a local pool is missing": {in: Input{Pools: []Pool{{Name: "a", Profile: "west", Remote: 5, Reason: ReasonLocalSilent, Problem: "x"}}}, replication: ours("west", "a", "5"), reason: ReasonLocalSilent},
	} {
		t.Run(name, func(t *testing.T) {
			tt.in.Profile = "east"
			out := Decide(tt.in)
			ignore := cmp.Options{cmpopts.IgnoreTypes(metav1.TypeMeta{}, metav1.ObjectMeta{})}
			if d := cmp.Diff(tt.mapping, out.Mapping, ignore); d != "" {
				t.Errorf("mapping (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.replication, out.Replication, ignore); d != "" {
				t.Errorf("replication (-want +got):\n%s", d)
			}
			if out.Remove != tt.remove || out.Reason != tt.reason || (out.Reason == "") != (out.Problem == "") {
				t.Errorf("remove %v, reason %q, problem %q", out.Remove, out.Reason, out.Problem)
			}
		})
	}
}

// Two peers: both are mapped, and no destination is guessed.
func TestSeveralPeers(t *testing.T) {
	out := Decide(Input{Profile: "east", Pools: []Pool{{Name: "a", Profile: "west", Local: 2, Remote: 5}, {Name: "b", Profile: "south", Local: 3, Remote: 6}}, Replication: ours("west", "a", "5")})
	if out.Replication != nil || out.Remove || out.Reason != ReasonReplication || len(out.Mapping.Spec.Mappings) != 2 {
		t.Errorf("%+v", out)
	}
}
