package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/plugin"
)

var server envtestx.Server

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(envtestx.Main(m, &server))
}

// world is a namespace with a CephCluster and osd.5.
type world struct {
	*testing.T
	client.Client
	ns      string
	out     bytes.Buffer
	plugin  *plugin.Plugin
	cluster *cephv1.CephCluster
	osd     *appsv1.Deployment
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme, csiv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{T: t, Client: server.Client(t, s), ns: server.Namespace(t)}
	w.plugin = &plugin.Plugin{Client: w.Client, In: strings.NewReader(""), Out: &w.out, Now: time.Now, Every: 20 * time.Millisecond}
	w.cluster = &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: w.ns}}
	w.cluster.Spec.DataDirHostPath = "/var/lib/rook"
	w.create(w.cluster)
	labels := map[string]string{"app": spec.App, spec.IDLabel: "5"}
	w.osd = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: spec.Name(5), Namespace: w.ns, Labels: labels, Annotations: map[string]string{"mine": "stays"}},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "osd", Image: "x"}}},
		}},
	}
	w.create(w.osd)
	return w
}

func (w *world) create(o client.Object) {
	w.Helper()
	if err := w.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *world) where() plugin.Where { return plugin.Where{Namespace: w.ns, Explicit: true} }

// annotations are those of osd.5 now.
func (w *world) annotations() map[string]string {
	w.Helper()
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(w.osd), w.osd); err != nil {
		w.Fatal(err)
	}
	return w.osd.Annotations
}

// annotate sets annotations of osd.5 as the operator does; "" takes one away.
func (w *world) annotate(pairs ...string) {
	w.Helper()
	before := w.osd.DeepCopy()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(w.osd.Annotations, pairs[i])
		} else {
			w.osd.Annotations[pairs[i]] = pairs[i+1]
		}
	}
	if err := w.Patch(w.Context(), w.osd, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

// report has the operator's status say where replacements are.
func (w *world) report(list ...cephv1.OSDReplacement) {
	w.Helper()
	before := w.cluster.DeepCopy()
	w.cluster.Status.CephStorage = &cephv1.CephStorage{Replacements: list}
	if err := w.Status().Patch(w.Context(), w.cluster, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) ask(request func(plugin.OSD) (plugin.Request, error)) error {
	w.Helper()
	_, err := w.plugin.Ask(w.Context(), w.where(), 5, request)
	return err
}

func replace(with string) func(plugin.OSD) (plugin.Request, error) {
	return func(o plugin.OSD) (plugin.Request, error) { return plugin.AskReplace(o, with) }
}

// A replacement is asked for, named a disk, refused to be cancelled when it is too late,
// and given up; nothing else of the Deployment changes.
func TestWrites(t *testing.T) {
	w := newWorld(t)
	if err := w.ask(replace("")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"mine": "stays", "osd.rook.io/replace": "yes-really-replace-osd-5"}, w.annotations()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	version := w.osd.ResourceVersion
	if err := w.ask(replace("")); err != nil {
		t.Fatal(err)
	}
	if w.annotations(); w.osd.ResourceVersion != version {
		t.Error("asking again has written")
	}
	if err := w.ask(plugin.AskCancel); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"mine": "stays"}, w.annotations()); diff != "" {
		t.Errorf("cancelled (-want +got):\n%s", diff)
	}
	const disk = "/dev/disk/by-id/wwn-0x1"
	if err := w.ask(replace(disk)); err != nil {
		t.Fatal(err)
	}
	w.annotations()
	w.annotate(spec.InProgressAnnotation, "true", spec.ReadyAnnotation, "true")
	w.report(cephv1.OSDReplacement{ID: 5, Phase: cephv1.OSDReplacementReadyForSwap})
	if err := w.ask(plugin.AskCancel); err == nil || !strings.Contains(err.Error(), "destroyed already") {
		t.Errorf("cancelling a destroyed OSD: %v", err)
	}
	confirm := func(given string) func(plugin.OSD) (plugin.Request, error) {
		return func(o plugin.OSD) (plugin.Request, error) {
			r, err := plugin.AskAbandon(o)
			if err != nil {
				return r, err
			}
			return r, w.plugin.Confirm("It is purged.", spec.AbandonConfirmation(5), given)
		}
	}
	for _, given := range []string{"", "yes", "yes-really-purge-osd-6"} {
		if err := w.ask(confirm(given)); err == nil || w.annotations()[spec.AbandonAnnotation] != "" {
			t.Errorf("%q: %v, %v", given, err, w.annotations())
		}
	}
	w.plugin.Interactive = true
	for _, typed := range []string{"yes\n", ""} {
		w.plugin.In = strings.NewReader(typed)
		if err := w.ask(confirm("")); err == nil || w.annotations()[spec.AbandonAnnotation] != "" {
			t.Errorf("typed %q: %v", typed, err)
		}
	}
	w.plugin.In = strings.NewReader("yes-really-purge-osd-5\n")
	if err := w.ask(confirm("")); err != nil {
		t.Fatal(err)
	}
	if got := w.annotations()[spec.AbandonAnnotation]; got != "yes-really-purge-osd-5" {
		t.Errorf("abandoned: %q", got)
	}
}

// What somebody else writes between the look and the request is not overwritten: the
// request is checked again.
func TestRace(t *testing.T) {
	w := newWorld(t)
	raced := false
	err := w.ask(func(o plugin.OSD) (plugin.Request, error) {
		if !raced {
			raced = true
			w.annotations()
			w.annotate(spec.InProgressAnnotation, "true", spec.ReplaceAnnotation, "yes-really-replace-osd-5", spec.ReadyAnnotation, "true")
			return plugin.Request{Remove: []string{spec.ReplaceAnnotation}, Message: "made on an old state"}, nil
		}
		return plugin.AskCancel(o)
	})
	if err == nil || !strings.Contains(err.Error(), "destroyed already") {
		t.Errorf("%v", err)
	}
	if w.annotations()[spec.ReplaceAnnotation] == "" {
		t.Error("the request made on an old state was carried out")
	}
}

func TestNoSuchOSD(t *testing.T) {
	w := newWorld(t)
	_, err := w.plugin.Ask(t.Context(), w.where(), 7, replace(""))
	if err == nil || !strings.Contains(err.Error(), "no osd.7") || !strings.Contains(err.Error(), "OSDs there: 5") {
		t.Errorf("%v", err)
	}
	_, err = w.plugin.Ask(t.Context(), plugin.Where{Namespace: "default", Explicit: true}, 5, replace(""))
	if err == nil || !strings.Contains(err.Error(), "no CephCluster in namespace default") {
		t.Errorf("%v", err)
	}
}

// A replacement is followed to its end.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	if err := w.ask(replace("")); err != nil {
		t.Fatal(err)
	}
	w.annotations()
	done := make(chan error, 1)
	seen := make(chan string, 100)
	w.plugin.Out = lines(seen)
	go func() { done <- w.plugin.Follow(t.Context(), w.cluster, 5) }()
	expect := func(part string) {
		t.Helper()
		for {
			select {
			case line := <-seen:
				if strings.Contains(line, part) {
					return
				}
			case err := <-done:
				t.Fatalf("it ended before %q: %v", part, err)
			case <-time.After(10 * time.Second):
				t.Fatalf("%q is not shown", part)
			}
		}
	}
	expect("waiting for the operator")
	w.annotate(spec.InProgressAnnotation, "true")
	w.report(cephv1.OSDReplacement{ID: 5, Phase: cephv1.OSDReplacementDraining, Progress: "10% (9 of 10 PGs left)", Since: metav1.Now()})
	expect("Draining  10%")
	w.annotate(spec.ReadyAnnotation, "true")
	w.report(cephv1.OSDReplacement{ID: 5, Phase: cephv1.OSDReplacementReadyForSwap, WaitingFor: "pull the disk (serial S1)", Since: metav1.Now()})
	expect("pull the disk (serial S1)")
	w.report(cephv1.OSDReplacement{ID: 5, Phase: cephv1.OSDReplacementProvisioning, Since: metav1.Now()})
	expect("Provisioning")
	w.annotate(spec.InProgressAnnotation, "", spec.ReadyAnnotation, "", spec.ReplaceAnnotation, "")
	w.report()
	expect("starting")
	before := w.osd.DeepCopy()
	w.osd.Status.Replicas, w.osd.Status.ReadyReplicas, w.osd.Status.AvailableReplicas = 1, 1, 1
	if err := w.Status().Patch(t.Context(), w.osd, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expectEnd := <-seen
	if !strings.Contains(expectEnd, "replaced, and running on its new disk") {
		t.Errorf("the end is %q", expectEnd)
	}
}

// lines hands on what is written, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// Who stops looking is told that it goes on.
func TestFollowInterrupted(t *testing.T) {
	w := newWorld(t)
	if err := w.ask(replace("")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := w.plugin.Follow(ctx, w.cluster, 5); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.out.String(), "it goes on") {
		t.Errorf("%s", w.out.String())
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	devices, err := json.Marshal([]provision.Device{{Path: "/dev/sdb", Type: "disk", Size: 1 << 40, Reason: "HasData", Message: "it has an ext4 file system"}})
	if err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: spec.StatusMap("worker-1"), Namespace: w.ns, Labels: map[string]string{"app": "rook-ceph-osd", "status": "provisioning", "node": "worker-1"}},
		Data:       map[string]string{"devices": string(devices)},
	})
	w.report(cephv1.OSDReplacement{ID: 5, Phase: cephv1.OSDReplacementDraining, Progress: "1%"})
	if err := w.plugin.Status(t.Context(), w.where()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{w.ns + "/rook-ceph", "does the operator run?", "osd.5", "Draining", "worker-1", "/dev/sdb", "1 TiB", "HasData", "it has an ext4 file system"} {
		if !strings.Contains(w.out.String(), want) {
			t.Errorf("status is without %q:\n%s", want, w.out.String())
		}
	}
	w.out.Reset()
	if err := w.plugin.Replacements(t.Context(), w.where(), ""); err != nil || !strings.Contains(w.out.String(), "osd.5") {
		t.Errorf("%v: %s", err, w.out.String())
	}
	w.out.Reset()
	var list []cephv1.OSDReplacement
	if err := errors.Join(w.plugin.Replacements(t.Context(), w.where(), "json"), json.Unmarshal(w.out.Bytes(), &list)); err != nil || len(list) != 1 || list[0].ID != 5 || list[0].Phase != cephv1.OSDReplacementDraining {
		t.Errorf("%v: %s", err, w.out.String())
	}
	if err := w.plugin.Replacements(t.Context(), w.where(), "yaml"); err == nil {
		t.Error("-o yaml is taken")
	}
}

const uuid = "b0285c97-a0ce-11eb-8c66-0242ac110002"

// The destination is found from the drivers' ConfigMap, and pool names from
// CephBlockPools.
func TestDestination(t *testing.T) {
	w := newWorld(t)
	handle := func(profile, pool string) string {
		return "0001-" + strings.Repeat("0", 2) + hex(len(profile)) + "-" + profile + "-000000000000000" + pool + "-" + uuid
	}
	w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ceph-csi-config", Namespace: w.ns}, Data: map[string]string{
		"config.json": `[{"clusterID":"` + w.ns + `","monitors":["10.0.0.1:3300"],"replicationDestination":{"remoteClusterID":"west","rbd":{"remotePoolMapping":{"replicapool":{"poolID":"5"}}}}}]`,
	}})
	pool := &cephv1.CephBlockPool{ObjectMeta: metav1.ObjectMeta{Name: "replicapool", Namespace: w.ns}}
	pool.Spec.Replicated.Size = 3
	w.create(pool)
	before := pool.DeepCopy()
	pool.Status.PoolID = 2
	if err := w.Status().Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := w.plugin.Destination(t.Context(), w.where(), handle(w.ns, "2"), nil); err != nil {
		t.Fatal(err)
	}
	if want := "0001-0004-west-0000000000000005-" + uuid; !strings.Contains(w.out.String(), want) || !strings.Contains(w.out.String(), `"replicapool" is mapped`) {
		t.Errorf("the answer is without %s:\n%s", want, w.out.String())
	}
	w.out.Reset()
	if err := w.plugin.Destination(t.Context(), w.where(), handle(w.ns, "7"), nil); err != nil || !strings.Contains(w.out.String(), "if it is any other") {
		t.Errorf("a pool that nobody knows: %v\n%s", err, w.out.String())
	}
	w.out.Reset()
	if err := w.plugin.Destination(t.Context(), w.where(), handle(w.ns, "7"), []string{w.ns + ":7=replicapool"}); err != nil || !strings.Contains(w.out.String(), "0001-0004-west-0000000000000005-"+uuid) {
		t.Errorf("a pool that the user told: %v\n%s", err, w.out.String())
	}
	if err := w.plugin.Destination(t.Context(), w.where(), "my-volume", nil); err == nil || !strings.Contains(err.Error(), "spec.csi.volumeHandle") {
		t.Errorf("no handle: %v", err)
	}
	if err := w.plugin.Destination(t.Context(), plugin.Where{Namespace: "default", Explicit: true}, handle(w.ns, "2"), nil); err == nil || !strings.Contains(err.Error(), "no CSI driver is installed") {
		t.Errorf("no configuration: %v", err)
	}
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[n>>4], digits[n&15]})
}
