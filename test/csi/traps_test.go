package csi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/destination"
	"github.com/castellan-storage/castellan/internal/csi/publish"
)

// hold is a finalizer of somebody else.
const hold = "example.com/hold"

// Each test is one of the traps that the facts on ClientProfileReplication list.

func TestTrap01SameSecond(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	for {
		a, b := w.replication("a", "p", "ra"), w.replication("b", "p", "rb")
		w.create(b)
		w.judged("b", accepted)
		w.create(a)
		if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
			break
		}
		w.delete(a)
		w.delete(b)
		w.gone(a)
		w.gone(b)
		w.nextSecond()
	}
	w.judged("a", accepted, "b", lostTo("a", "p"))
	w.published("p>ra")
}

// TestTrap02OlderNewcomer: a real API server sets the time itself, so the object
// with the older time is one that moves in.
func TestTrap02OlderNewcomer(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	old := w.replication("old", "elsewhere", "ro")
	w.create(old)
	w.nextSecond()
	w.create(w.replication("new", "p", "rn"))
	w.judged("new", accepted, "old", notFound("elsewhere"))
	change(w, old, func(r *csiv1.ClientProfileReplication) { r.Spec.LocalClientProfile = "p" })
	w.judged("old", accepted, "new", lostTo("old", "p"))
	w.published("p>ro")
}

func TestTrap03DeleteWinner(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	a := w.replication("a", "p", "ra")
	w.create(a)
	w.nextSecond()
	w.create(w.replication("b", "p", "rb"))
	w.judged("a", accepted, "b", lostTo("a", "p"))
	w.delete(a)
	w.judged("b", accepted)
	w.published("p>rb")
}

func TestTrap04MoveBetweenProfiles(t *testing.T) {
	w := newWorld(t)
	w.start("pa", "pb")
	mover := w.replication("mover", "pa", "rm")
	w.create(mover)
	w.nextSecond()
	w.create(w.replication("second", "pa", "rs"), w.replication("inb", "pb", "rb"))
	w.judged("mover", accepted, "second", lostTo("mover", "pa"), "inb", accepted)
	change(w, mover, func(r *csiv1.ClientProfileReplication) { r.Spec.LocalClientProfile = "pb" })
	w.judged("mover", accepted, "second", accepted, "inb", lostTo("mover", "pb"))
	w.published("pa>rs pb>rm")
}

func TestTrap05StoredPhaseIsNotTrusted(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	w.create(w.replication("a", "p", "ra"))
	w.nextSecond()
	b := w.replication("b", "p", "rb")
	w.create(b)
	w.judged("a", accepted, "b", lostTo("a", "p"))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Ready","message":"accepted"}}`))
	if err := w.Status().Patch(w.Context(), b, patch); err != nil {
		t.Fatal(err)
	}
	w.judged("b", lostTo("a", "p"))
	w.published("p>ra")
}

// TestTrap06StatusWritesEnd: own status writes lead to no further ones.
func TestTrap06StatusWritesEnd(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	w.create(w.replication("a", "p", "ra"), w.replication("b", "p", "rb"))
	w.published("p>ra")
	a := w.replication("a", "", "")
	w.condition(a, csiv1.ConditionReady, metav1.ConditionTrue, "Published")
	if a.Status.ObservedGeneration != a.Generation {
		t.Errorf("observedGeneration %d, generation %d", a.Status.ObservedGeneration, a.Generation)
	}
	w.quiet(time.Second)
}

// TestTrap07PhaseAndMessageMatch: no version of the object that anybody can see has
// the message of another phase.
func TestTrap07PhaseAndMessageMatch(t *testing.T) {
	w := newWorld(t)
	watch, err := w.Watch(w.Context(), &csiv1.ClientProfileReplicationList{}, client.InNamespace(w.ns))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var bad []string
	go func() {
		for e := range watch.ResultChan() {
			r, ok := e.Object.(*csiv1.ClientProfileReplication)
			if !ok {
				continue
			}
			s := r.Status
			ok = s.Phase == "" && s.Message == "" || s.Phase == "Ready" && s.Message == "accepted" || s.Phase == "Rejected" && strings.HasPrefix(s.Message, "rejected: ")
			if !ok {
				mu.Lock()
				bad = append(bad, fmt.Sprintf("%s: %q %q", r.Name, s.Phase, s.Message))
				mu.Unlock()
			}
		}
	}()
	a := w.replication("a", "p", "ra")
	w.create(a)
	w.judged("a", notFound("p"))
	w.start("p")
	w.nextSecond()
	w.create(w.replication("b", "p", "rb"))
	w.judged("a", accepted, "b", lostTo("a", "p"))
	w.delete(a)
	w.judged("b", accepted)
	watch.Stop()
	mu.Lock()
	defer mu.Unlock()
	if len(bad) > 0 {
		t.Errorf("phase and message do not match:\n%s", strings.Join(bad, "\n"))
	}
}

func TestTrap08Terminating(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	a := w.replication("a", "p", "ra")
	a.Finalizers = []string{hold}
	w.create(a)
	w.nextSecond()
	b := w.replication("b", "p", "rb")
	w.create(b)
	w.judged("a", accepted)
	w.delete(a)
	w.judged("a", "Rejected: rejected: this ClientProfileReplication is being deleted", "b", accepted)
	w.published("p>rb")
	w.delete(b)
	w.published("p")
	// It still protects the profile.
	p := w.profile("p")
	w.delete(p)
	w.blocked(p, "a")
	change(w, a, func(r *csiv1.ClientProfileReplication) { r.Finalizers = nil })
	w.gone(p)
	w.published("")
}

// blocked waits until a profile says which replications keep it.
func (w *world) blocked(p *csiv1.ClientProfile, names ...string) {
	w.Helper()
	want := "Failed: cannot delete: ClientProfileReplication CRs still reference this profile: [" + strings.Join(names, ", ") + "]"
	w.eventually("profile "+p.Name, func() string {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err.Error()
		}
		if got := p.Status.Phase + ": " + p.Status.Message; got != want {
			return fmt.Sprintf("%q, want %q", got, want)
		}
		return ""
	})
}

func TestTrap09ProfileDeletionBlocked(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	a, b := w.replication("a", "p", "ra"), w.replication("b", "p", "rb")
	w.create(a, b)
	w.published("p>ra")
	p := w.profile("p")
	w.delete(p)
	w.blocked(p, "a", "b")
	w.published("p>ra")
	w.quiet(2 * time.Second)
	w.delete(a)
	w.blocked(p, "b")
	w.published("p>rb")
	w.delete(b)
	w.gone(p)
	w.published("")
}

// TestTrap10DeletionInAnyOrder: as when a namespace is deleted.
func TestTrap10DeletionInAnyOrder(t *testing.T) {
	for _, order := range []string{"cpr", "crp", "pcr", "prc", "rcp", "rpc"} {
		t.Run(order, func(t *testing.T) {
			w := newWorld(t)
			w.start("p")
			r := w.replication("r", "p", "x")
			w.create(r)
			w.published("p>x")
			objs := map[rune]client.Object{'c': w.connection("c"), 'p': w.profile("p"), 'r': r}
			for _, k := range order {
				w.delete(objs[k])
			}
			for _, o := range objs {
				w.gone(o)
			}
			w.published("")
		})
	}
}

// TestTrap11NoOwnerReferences: garbage collection must not go past the finalizer,
// nor take a connection along.
func TestTrap11NoOwnerReferences(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	r := w.replication("r", "p", "x")
	w.create(r)
	w.judged("r", accepted)
	c := w.connection("c")
	w.condition(c, csiv1.ConditionReady, metav1.ConditionTrue, "Accepted")
	for _, o := range []client.Object{r, c} {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if refs := o.GetOwnerReferences(); len(refs) > 0 {
			t.Errorf("%T has owners %v", o, refs)
		}
	}
}

func TestTrap12ProfileComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.create(w.replication("r", "p", "x"))
	w.judged("r", notFound("p"))
	w.start("p")
	w.judged("r", accepted)
	w.published("p>x")
	p := w.profile("p")
	w.delete(p)
	w.blocked(p, "r")
	change(w, p, func(p *csiv1.ClientProfile) { p.Finalizers = nil })
	w.gone(p)
	w.judged("r", notFound("p"))
	w.published("")
}

func TestTrap13ProfileBeingDeleted(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	w.create(w.replication("a", "p", "ra"))
	w.judged("a", accepted)
	p := w.profile("p")
	w.delete(p)
	w.nextSecond()
	w.create(w.replication("b", "p", "rb"))
	w.judged("b", "Rejected: rejected: ClientProfile 'p' is being deleted", "a", accepted)
	w.blocked(p, "a", "b")
}

func TestTrap14Namespaces(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.start("p")
	other.create(other.replication("r", "p", "x"))
	other.judged("r", notFound("p"))
	other.start("p")
	other.published("p>x")
	w.published("p")
}

// TestTrap15Races: profiles, mappings, a Driver and a person write the same
// ConfigMap at the same time, and nothing is lost.
func TestTrap15Races(t *testing.T) {
	w := newWorld(t)
	w.start("p0")
	const n = 20
	var wg sync.WaitGroup
	for i := 1; i <= n; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w.create(w.profile(fmt.Sprintf("p%d", i)), &csiv1.ClientProfileMapping{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%02d", i)},
				Spec: csiv1.ClientProfileMappingSpec{Mappings: []csiv1.MappingsSpec{{LocalClientProfile: fmt.Sprintf("l%02d", i), RemoteClientProfile: "r"}}}})
		}()
	}
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: clusterconfig.ConfigMapName, Namespace: w.ns}}
		change(w, cm, func(cm *corev1.ConfigMap) {
			f, err := clusterconfig.Parse(cm.Data[clusterconfig.ConfigKey])
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimSuffix(f.String(), "]")
			if f.Len() > 0 {
				text += ","
			}
			cm.Data[clusterconfig.ConfigKey] = text + fmt.Sprintf(`{"clusterID":"hand%d","mine":true}]`, i)
			cm.Data["notes"] = fmt.Sprint(i)
		})
	}
	wg.Wait()
	w.eventually("the ConfigMap", func() string {
		cm := w.files()
		ids, text := brief(cm.Data[clusterconfig.ConfigKey]), cm.Data[clusterconfig.ConfigKey]
		for i := range n {
			if !strings.Contains(text, fmt.Sprintf(`{"clusterID":"hand%d","mine":true}`, i)) {
				return fmt.Sprintf("hand%d is lost: %s", i, ids)
			}
			if !strings.Contains(" "+ids+" ", fmt.Sprintf(" p%d ", i+1)) || !strings.Contains(cm.Data[clusterconfig.MappingKey], fmt.Sprintf(`"l%02d":"r"`, i+1)) {
				return fmt.Sprintf("p%d or its mapping is missing: %s", i+1, ids)
			}
		}
		if cm.Data["notes"] != fmt.Sprint(n-1) {
			return "the notes are lost"
		}
		return ""
	})
	owners := map[string]bool{}
	for _, m := range w.files().ManagedFields {
		owners[m.Manager] = true
	}
	if !owners["castellan-csi-config"] || !owners["castellan-csi-mapping"] {
		t.Errorf("field owners: %v", owners)
	}
}

func TestTrap16ForeignRecords(t *testing.T) {
	w := newWorld(t)
	const hand = `{"clusterID":"hand","monitors":["m"],"replicationDestination":{"remoteClusterID":"x","later":1}}`
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: clusterconfig.ConfigMapName},
		Data: map[string]string{clusterconfig.ConfigKey: "[" + hand + `,{"clusterID":"p","future":{"a":[1]},"rbd":{"netNamespaceFilePath":"/x"}}]`, "other": "kept"}})
	w.create(w.connection("c"))
	p := w.profile("p")
	w.create(p)
	w.condition(p, csiv1.ConditionReady, metav1.ConditionTrue, csi.ReasonPublished)
	cm := w.files()
	text := cm.Data[clusterconfig.ConfigKey]
	for _, want := range []string{hand, `"future":{"a":[1]}`, `"netNamespaceFilePath":"/x"`, `"monitors":["10.0.0.1:3300"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
	w.delete(p)
	w.gone(p)
	cm = w.files()
	if cm.Data[clusterconfig.ConfigKey] != "["+hand+"]" || cm.Data["other"] != "kept" {
		t.Errorf("after the deletion: %v", cm.Data)
	}
}

func TestTrap17RemoteIDs(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"five", "", " 5", "5 ", "0x10", "9223372036854775808", "-1", "0005", "+5", "0"} {
		err := w.Create(w.Context(), w.replication("bad", "p", "r", "pool", id))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "remoteID must be the id of a pool: a decimal number from 1 to 9223372036854775807") {
			t.Errorf("remoteID %q: %v", id, err)
		}
	}
	w.start("p")
	w.create(w.replication("good", "p", "r", "a", "1", "b", "9223372036854775807"))
	w.published("p>r(a=1,b=9223372036854775807)")
}

func TestTrap18Pools(t *testing.T) {
	w := newWorld(t)
	w.start("p", "q")
	w.create(w.replication("twice", "p", "r", "a", "1", "a", "2"))
	w.judged("twice", "Rejected: rejected: spec.rbd.poolMapping[1].name: pool 'a' is listed twice, first as poolMapping[0]; list it once")
	shared := w.replication("shared", "q", "r", "a", "1", "b", "1")
	w.create(shared)
	w.judged("shared", accepted)
	c := w.condition(shared, "Suspicious", metav1.ConditionTrue, "SharedRemotePool")
	if want := "pools 'a' and 'b' both lead to remote pool 1"; c.Message != want {
		t.Errorf("message %q, want %q", c.Message, want)
	}
	w.published("p q>r(a=1,b=1)")
}

func TestTrap19SelfMapping(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	w.create(w.replication("self", "p", "p", "a", "2"))
	w.judged("self", accepted)
	w.published("p>p(a=2)")
}

func TestTrap20EmptyNames(t *testing.T) {
	w := newWorld(t)
	for _, r := range []*csiv1.ClientProfileReplication{w.replication("x", "p", ""), w.replication("x", "", "r"), w.replication("x", "p", "r", "", "1")} {
		if err := w.Create(w.Context(), r); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must not be empty") {
			t.Errorf("%+v: %v", r.Spec, err)
		}
	}
}

func TestTrap21LongRemote(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	if err := w.Create(w.Context(), w.replication("x", "p", strings.Repeat("r", 65))); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "64 bytes") {
		t.Errorf("65 bytes: %v", err)
	}
	// The schema counts characters; what it lets pass in bytes is rejected by phase.
	w.create(w.replication("bytes", "p", strings.Repeat("é", 33)))
	w.judged("bytes", "Rejected: rejected: spec.remoteClientProfile: has 66 bytes, a volume handle can hold 64; use a shorter profile name in the destination cluster")
	w.create(w.replication("ok", "p", strings.Repeat("r", 64)))
	w.published("p>" + strings.Repeat("r", 64))
}

const volume = "0001-0001-p-0000000000000007-b0285c97-a0ce-11eb-8c66-0242ac110002"

// translated gives the destination of a handle by the files as drivers see them,
// found at the first place, in a pool of a name.
func (w *world) translated(id, pool string) string {
	w.Helper()
	data := w.files().Data
	cfg, err := destination.Parse(data[clusterconfig.ConfigKey], data[clusterconfig.MappingKey])
	if err != nil {
		w.Fatal(err)
	}
	h, err := destination.Read(id)
	if err != nil {
		w.Fatal(err)
	}
	places, err := cfg.Places(h)
	if err != nil {
		return err.Error()
	}
	to, err := cfg.Volume(destination.Source{ID: id, Handle: h, Place: places[0], PoolName: pool})
	if err != nil {
		return err.Error()
	}
	return to
}

// TestTrap22UnknownPool: without access to Ceph the mapping of a pool that does not
// exist cannot be told from a good one; the pool that does exist keeps its id.
func TestTrap22UnknownPool(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	w.create(w.replication("r", "p", "r", "renamed", "3"))
	w.published("p>r(renamed=3)")
	if got, want := w.translated(volume, "real"), strings.Replace(volume, "-p-", "-r-", 1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTrap23PoolsOmitted(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	w.create(w.replication("r", "p", "r"))
	w.published("p>r")
	if text := w.files().Data[clusterconfig.ConfigKey]; !strings.Contains(text, `"replicationDestination":{"remoteClusterID":"r"}`) {
		t.Errorf("config.json: %s", text)
	}
	if got, want := w.translated(volume, "any"), strings.Replace(volume, "-p-", "-r-", 1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTrap24Migration plays the migration of the design: a mapping for handles of a
// cluster that is gone, a replication beside it, and in the end no mapping.
func TestTrap24Migration(t *testing.T) {
	const (
		stale   = "0001-0009-cluster-a-0000000000000001-b0285c97-a0ce-11eb-8c66-0242ac110002"
		current = "0001-0009-cluster-d-0000000000000003-b0285c97-a0ce-11eb-8c66-0242ac110002"
		want    = "0001-0009-cluster-b-0000000000000005-b0285c97-a0ce-11eb-8c66-0242ac110002"
	)
	w := newWorld(t)
	m := &csiv1.ClientProfileMapping{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: csiv1.ClientProfileMappingSpec{Mappings: []csiv1.MappingsSpec{
		{LocalClientProfile: "cluster-a", RemoteClientProfile: "cluster-d", BlockPoolIdMapping: []csiv1.BlockPoolIDPair{{"1", "3"}}}}}}
	w.create(m)
	w.start("cluster-d")
	w.condition(m, csiv1.ConditionReady, metav1.ConditionTrue, csi.ReasonPublished)
	mapping := w.files().Data[clusterconfig.MappingKey]
	if mapping != `[{"clusterIdMapping":{"cluster-a":"cluster-d"},"RBDPoolIDMapping":[{"1":"3"}]}]` {
		t.Errorf("cluster-mapping.json: %s", mapping)
	}
	w.create(w.replication("r", "cluster-d", "cluster-b", "rbd", "5"))
	w.published("cluster-d>cluster-b(rbd=5)")
	if got := w.files().Data[clusterconfig.MappingKey]; got != mapping {
		t.Errorf("the replication changed the mapping: %s", got)
	}
	for _, id := range []string{stale, current} {
		if got := w.translated(id, "rbd"); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
	w.delete(m)
	w.eventually("cluster-mapping.json", func() string {
		if got := w.files().Data[clusterconfig.MappingKey]; got != "[]" {
			return got
		}
		return ""
	})
	w.published("cluster-d>cluster-b(rbd=5)")
	if got := w.translated(current, "rbd"); got != want {
		t.Errorf("without the mapping: got %s, want %s", got, want)
	}
	if got := w.translated(stale, "rbd"); !strings.Contains(got, "not found") {
		t.Errorf("a stale handle without the mapping: got %s", got)
	}
}

func TestTrap25OnlyTheNamespaceOfTheProfile(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.create(w.driver("rbd"))
	other.create(other.driver("rbd"))
	w.start("p")
	w.create(w.replication("r", "p", "x"))
	w.published("p>x")
	other.published("")
	if text := other.files().Data[clusterconfig.ConfigKey]; text != "[]" {
		t.Errorf("the other namespace has %q", text)
	}
}

func TestTrap26SinceWhen(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	r := w.replication("r", "p", "x")
	w.create(r)
	c := w.condition(r, csiv1.ConditionReady, metav1.ConditionTrue, "Published")
	if r.Status.Published == nil || time.Since(r.Status.Published.Since.Time) > time.Minute || !strings.Contains(c.Message, r.Status.Published.Since.UTC().Format(time.RFC3339)) {
		t.Errorf("since when: %+v, %q", r.Status.Published, c.Message)
	}
	first := *r.Status.Published
	w.nextSecond()
	change(w, r, func(r *csiv1.ClientProfileReplication) { r.Spec.RemoteClientProfile = "y" })
	w.published("p>y")
	w.eventually("since when", func() string {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			return err.Error()
		}
		if p := r.Status.Published; p == nil || p.Digest == first.Digest || !p.Since.After(first.Since.Time) {
			return fmt.Sprintf("%+v after %+v", p, first)
		}
		return ""
	})
}

// TestTrap27EarlyQuestion: before the replication is there, the destination of a
// volume is not its source; a question asked then has to be asked again.
func TestTrap27EarlyQuestion(t *testing.T) {
	w := newWorld(t)
	w.start("p")
	if got := w.translated(volume, "any"); !strings.Contains(got, destination.ErrNotReplicated.Error()) {
		t.Errorf("too early: got %s", got)
	}
	w.create(w.replication("r", "p", "r"))
	w.published("p>r")
	if got, want := w.translated(volume, "any"), strings.Replace(volume, "-p-", "-r-", 1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTrap28IndexIsOfTheCache: the API server has no such index, so nothing may ask
// it for one.
func TestTrap28IndexIsOfTheCache(t *testing.T) {
	w := newWorld(t)
	err := w.List(w.Context(), &csiv1.ClientProfileReplicationList{}, client.InNamespace(w.ns), client.MatchingFields{publish.IndexLocalProfile: "p"})
	if err == nil {
		t.Error("the API server lists by spec.localClientProfile: the field was made selectable, which older servers do not have")
	}
	w.start("p")
	w.create(w.replication("r", "p", "x"))
	w.judged("r", accepted) // by the cache it works
}

func TestTrap29RemoteIDAsNumber(t *testing.T) {
	w := newWorld(t)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "csi.ceph.io/v1", "kind": "ClientProfileReplication", "metadata": map[string]any{"name": "n", "namespace": w.ns},
		"spec": map[string]any{"localClientProfile": "p", "remoteClientProfile": "r", "rbd": map[string]any{"poolMapping": []any{map[string]any{"name": "a", "remoteID": int64(5)}}}},
	}}
	if err := w.Create(w.Context(), u); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "remoteID") {
		t.Errorf("a number: %v", err)
	}
}

func TestTrap30BothHalvesInOneCluster(t *testing.T) {
	w := newWorld(t)
	w.start("primary-cluster")
	w.create(w.replication("primary-to-secondary", "primary-cluster", "secondary-cluster", "rbd", "5"),
		w.replication("secondary-to-primary", "secondary-cluster", "primary-cluster", "rbd", "1"))
	w.judged("primary-to-secondary", accepted, "secondary-to-primary", notFound("secondary-cluster"))
	w.published("primary-cluster>secondary-cluster(rbd=5)")
}

// TestTrap31ProfileThatNeverWas: events that lead to profiles that do not exist are
// no errors.
func TestTrap31ProfileThatNeverWas(t *testing.T) {
	w := newWorld(t)
	before := failedPasses(t, "csi-profile")
	r := w.replication("r", "nobody", "x")
	w.create(r)
	w.judged("r", notFound("nobody"))
	w.delete(r)
	w.gone(r)
	w.quiet(500 * time.Millisecond)
	if after := failedPasses(t, "csi-profile"); after != before {
		t.Errorf("%v failed passes more", after-before)
	}
}

// failedPasses reads controller-runtime's counter of errors of a controller.
func failedPasses(t *testing.T, controller string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "controller" && l.GetValue() == controller {
					total += m.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}

// TestTrap32SpecUpdatesByOthers: another controller updates the spec all the time,
// as Rook does with each change of the monitors.
func TestTrap32SpecUpdatesByOthers(t *testing.T) {
	w := newWorld(t)
	w.create(w.connection("c"))
	p := w.profile("p")
	w.create(p)
	for i := range 40 {
		change(w, p, func(p *csiv1.ClientProfile) {
			p.Spec.CephFs = &csiv1.CephFsConfigSpec{KernelMountOptions: map[string]string{"round": fmt.Sprint(i)}}
		})
	}
	w.eventually("the profile", func() string {
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err.Error()
		}
		got := []any{p.Status.Phase, p.Status.ObservedGeneration == p.Generation, p.Finalizers, p.Spec.CephFs.KernelMountOptions["round"],
			strings.Contains(w.files().Data[clusterconfig.ConfigKey], `"kernelMountOptions":"round=39"`)}
		return cmp.Diff([]any{"Ready", true, []string{csiv1.ClientProfileFinalizer}, "39", true}, got)
	})
}
