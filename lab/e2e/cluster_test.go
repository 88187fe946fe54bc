package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/ceph"
	labstate "github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/image"
	"github.com/castellan-storage/castellan/lab/load"
	"github.com/castellan-storage/castellan/lab/testlab"
)

// Environment of the tests.
const (
	// envBin says where the operator's binaries are; the default is the repository's
	// bin directory.
	envBin = "CASTELLAN_BIN"
	// envSeed makes a run of the random test the same as an earlier one.
	envSeed = "CASTELLAN_E2E_SEED"
)

// repository is its root as seen from this package.
const repository = "../.."

var clusters = schema.GroupVersionResource{Group: "ceph.rook.io", Version: "v1", Resource: "cephclusters"}

// cluster is a CephCluster in a lab.
type cluster struct {
	lab  *testlab.Lab
	ceph ceph.Lab
	dyn  dynamic.Interface
	// found: the lab had the CephCluster before the test.
	found bool
	// token may read the operator's metrics.
	token string
	// log is what operators have logged that are gone.
	log bytes.Buffer
	// kept is what must be read back at any time.
	kept []byte
}

// start starts a lab that has the operator's image. more are disks besides the one
// that each node has, by node. With CASTELLAN_LAB_NAME set it is the lab of that name,
// which is left running: a part of a test can so be run again and again.
func start(t *testing.T, name string, nodes int, more ...string) *cluster {
	t.Helper()
	return startWith(t, name, testlab.Options{Nodes: nodes, Disks: 1}, more...)
}

// startWith is start for a lab that may have other disks.
func startWith(t *testing.T, name string, opts testlab.Options, more ...string) *cluster {
	t.Helper()
	loadOperator(t)
	var lab *testlab.Lab
	if os.Getenv(labstate.EnvName) != "" {
		lab = testlab.Start(t, opts)
	} else {
		lab = testlab.StartNamed(t, name, opts)
	}
	c := &cluster{lab: lab, ceph: ceph.Lab{
		Kubeconfig: lab.Kubeconfig, Deploy: filepath.Join(repository, "deploy"),
		OSDs: opts.Nodes + len(more), Out: lineWriter{t}, Begun: time.Now(),
	}}
	var err error
	if c.dyn, err = dynamic.NewForConfig(lab.Config()); err != nil {
		t.Fatal(err)
	}
	_, err = c.state(t.Context())
	if c.found = err == nil; c.found {
		return c
	}
	if !apierrors.IsNotFound(err) {
		t.Fatalf("looking for a CephCluster: %v", err)
	}
	// A lab of an earlier run may have had a cluster that was deleted since.
	for _, n := range more {
		if len(lab.Disks(t, n)) < 2 {
			lab.AddDisk(t, n, "10Gi")
		}
	}
	c.ceph.OSDs = 0
	for _, n := range lab.Status(t).Nodes {
		c.ceph.OSDs += len(n.Disks)
	}
	return c
}

// up makes the cluster, and keeps an object in it. One that the lab has from an earlier
// run gets the operator that is to be tested now.
func (c *cluster) up(t *testing.T) {
	t.Helper()
	if !c.found {
		testBringUp(t, c)
		return
	}
	if _, _, err := load.Image(t.Context(), ceph.OperatorImage, "ceph", image.Config{Cmd: []string{"castellan", "operator"}}, binaries(t), build.Options{NoInstall: true}); err != nil {
		t.Fatal(err)
	}
	c.readMetrics(t)
	c.end(t, true)
	c.idle(t, long)
	var ids []int
	if err := c.ask(t.Context(), &ids, "osd", "ls"); err != nil {
		t.Fatal(err)
	}
	c.ceph.OSDs = len(ids)
	c.untilHealthy(t, long, c.ceph.OSDs)
	c.keep(t)
}

// binaries are the operator's, as additions to Ceph's image.
func binaries(t *testing.T) []image.Add {
	t.Helper()
	dir := os.Getenv(envBin)
	if dir == "" {
		dir = filepath.Join(repository, "bin")
	}
	var adds []image.Add
	for _, b := range []string{"castellan", "castellan-node"} {
		path := filepath.Join(dir, b)
		if _, err := os.Stat(path); err != nil {
			unavailable(t, fmt.Errorf("%w (make binaries builds it)", err))
		}
		a, err := image.ParseAdd(path + ":/usr/local/bin/" + b)
		if err != nil {
			t.Fatal(err)
		}
		adds = append(adds, a)
	}
	return adds
}

// unavailable skips the test, or fails it where a lab is required.
func unavailable(t *testing.T, why error) {
	t.Helper()
	if os.Getenv(testlab.EnvRequire) != "" {
		t.Fatalf("no operator, and %s is set: %v", testlab.EnvRequire, why)
	}
	t.Skipf("no operator: %v", why)
}

// loadOperator puts the operator's image where new nodes start from.
func loadOperator(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, errors.New("a lab needs root"))
	}
	if _, err := build.Lookup("bin", "cni", "golden", "images"); err != nil {
		unavailable(t, err)
	}
	if _, _, err := build.Load(t.Context(), ceph.OperatorImage, "ceph", image.Config{Cmd: []string{"castellan", "operator"}}, binaries(t), build.Options{NoInstall: true}); err != nil {
		t.Fatal(err)
	}
}

// lineWriter writes to a test's log.
type lineWriter struct{ t *testing.T }

func (w lineWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// measured prints a figure.
func measured(t *testing.T, name string, value any) {
	t.Helper()
	if d, ok := value.(time.Duration); ok {
		value = fmt.Sprintf("%.1fs", d.Seconds())
	}
	t.Logf("MEASURED %s %v", name, value)
}

// measuredStages prints when the stages of a bring-up were reached.
func measuredStages(t *testing.T, stages []ceph.Stage) {
	t.Helper()
	for _, s := range stages {
		if !s.Milestone {
			t.Logf("%6.1fs  %s", s.At.Seconds(), s.Name)
			continue
		}
		measured(t, "bring-up/"+strings.ReplaceAll(s.Name, " ", "-"), s.At)
	}
}

// state is what the tests look at in a CephCluster.
type state struct {
	Metadata metav1.ObjectMeta
	Status   struct {
		Phase, Message     string
		ObservedGeneration int64
		Ceph               struct{ Health string }
		OSD                struct{ Up, In, Total int }
		Mon                struct{ InQuorum int }
		Conditions         []struct{ Type, Status, Reason, Message string }
	}
}

func (s *state) condition(kind string) (status, message string) {
	for _, c := range s.Status.Conditions {
		if c.Type == kind {
			return c.Status, c.Message
		}
	}
	return "", ""
}

func (c *cluster) state(ctx context.Context) (state, error) {
	return c.stateOf(ctx, "rook-ceph")
}

func (c *cluster) stateOf(ctx context.Context, name string) (state, error) {
	var s state
	u, err := c.dyn.Resource(clusters).Namespace(ceph.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return s, err
	}
	b, err := u.MarshalJSON()
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// patch changes the CephCluster's spec or metadata.
func (c *cluster) patch(t *testing.T, merge string) {
	t.Helper()
	if _, err := c.dyn.Resource(clusters).Namespace(ceph.Namespace).Patch(t.Context(), "rook-ceph", types.MergePatchType, []byte(merge), metav1.PatchOptions{}); err != nil {
		t.Fatalf("patching the CephCluster with %s: %v", merge, err)
	}
}

// ask runs a Ceph command in the toolbox and decodes its answer.
func (c *cluster) ask(ctx context.Context, into any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := c.ceph.Tool(ctx, nil, append(append([]string{"ceph"}, args...), "-f", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("reading the answer to ceph %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// healthy is nil when Ceph is as well as it can be: HEALTH_OK, this many OSDs up
// and in, every PG active and clean.
func (c *cluster) healthy(ctx context.Context, osds int) error {
	var s struct {
		Health struct {
			Status string                     `json:"status"`
			Checks map[string]json.RawMessage `json:"checks"`
		} `json:"health"`
		OSDs struct {
			Up int `json:"num_up_osds"`
			In int `json:"num_in_osds"`
		} `json:"osdmap"`
		PGs struct {
			States []struct {
				Name string `json:"state_name"`
			} `json:"pgs_by_state"`
		} `json:"pgmap"`
	}
	if err := c.ask(ctx, &s, "status"); err != nil {
		return err
	}
	if s.Health.Status != "HEALTH_OK" || s.OSDs.Up != osds || s.OSDs.In != osds {
		return fmt.Errorf("%s %v, %d OSDs up, %d in", s.Health.Status, slices.Sorted(maps.Keys(s.Health.Checks)), s.OSDs.Up, s.OSDs.In)
	}
	if len(s.PGs.States) != 1 || s.PGs.States[0].Name != "active+clean" {
		return fmt.Errorf("PGs are %+v", s.PGs.States)
	}
	return nil
}

// ready is nil when the operator says that all is as the newest spec says.
func (c *cluster) ready(ctx context.Context) error {
	s, err := c.state(ctx)
	if err != nil {
		return err
	}
	if s.Status.Phase != "Ready" || s.Status.ObservedGeneration != s.Metadata.Generation {
		return fmt.Errorf("phase %s of generation %d/%d: %s", s.Status.Phase, s.Status.ObservedGeneration, s.Metadata.Generation, s.Status.Message)
	}
	return nil
}

// untilHealthy waits for both of them.
func (c *cluster) untilHealthy(t *testing.T, limit time.Duration, osds int) {
	t.Helper()
	testlab.Until(t, limit, fmt.Sprintf("Ready, HEALTH_OK with %d OSDs and all PGs active+clean", osds), func(ctx context.Context) error {
		return errors.Join(c.ready(ctx), c.healthy(ctx, osds))
	})
}

// keep writes an object that is read back later.
func (c *cluster) keep(t *testing.T) {
	t.Helper()
	c.kept = make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte([]byte("castellan keeps what it is given")))
	_, _ = r.Read(c.kept) // never fails
	if _, err := c.ceph.Tool(t.Context(), c.kept, "rados", "-p", "lab", "put", "kept", "-"); err != nil {
		t.Fatal(err)
	}
	c.readBack(t)
}

// readBack reads the object.
func (c *cluster) readBack(t *testing.T) {
	t.Helper()
	testlab.Until(t, time.Minute, "the object is read back", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		got, err := c.ceph.Tool(ctx, nil, "rados", "-p", "lab", "get", "kept", "-")
		if err == nil && !bytes.Equal(got, c.kept) {
			t.Fatalf("the object has %d bytes that are not the %d written", len(got), len(c.kept))
		}
		return err
	})
}

// written are the kinds that the operator writes.
var written = [...]schema.GroupVersionResource{
	clusters,
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "pods"},
}

// objects are those of all these kinds, with what tells a version of one from
// another. of chooses that.
func (c *cluster) objects(t *testing.T, of func(u *unstructured.Unstructured) string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, gvr := range written {
		list, err := c.dyn.Resource(gvr).Namespace(ceph.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].GetLabels()["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io" {
				continue // Kubernetes' own, made from a Service
			}
			out[gvr.Resource+"/"+list.Items[i].GetName()] = of(&list.Items[i])
		}
	}
	return out
}

func version(u *unstructured.Unstructured) string { return u.GetResourceVersion() }

// wish is what an operator sets: a change of status by others is none of it.
func wish(u *unstructured.Unstructured) string {
	return fmt.Sprint(u.GetUID(), u.GetGeneration(), u.GetLabels(), u.GetAnnotations())
}

// changes says which objects differ.
func changes(before, after map[string]string) []string {
	var out []string
	for name, v := range before {
		if after[name] != v {
			out = append(out, fmt.Sprintf("%s: %s, then %s", name, v, after[name]))
		}
	}
	for name := range after {
		if before[name] == "" {
			out = append(out, name+" is new")
		}
	}
	slices.Sort(out)
	return out
}
