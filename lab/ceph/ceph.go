// Package ceph brings a Ceph cluster up in a lab that runs: it installs the
// operator from the repository's deploy directory, makes a CephCluster of all the
// lab's disks, follows it until Ceph is healthy and every PG is active and clean,
// and writes and reads back an object.
//
// It uses what a user would: the manifests, and the requests that kubectl would make. It
// must not reach into the operator or into Ceph in any other way.
package ceph

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/lab/ceph/kube"
)

//go:embed files/*.yaml
var files embed.FS

// Namespace of operator and cluster.
const Namespace = "rook-ceph"

// OperatorImage is the name under which the lab's nodes hold the operator.
const OperatorImage = "localhost/castellan:dev"

// Lab is where the cluster is to be.
type Lab struct {
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Deploy is the repository's deploy directory.
	Deploy string
	// OSDs is how many are expected: one for each disk.
	OSDs int
	// Patch is a JSON merge patch for the CephCluster; empty for none.
	Patch string
	// Out gets the lines for a person.
	Out io.Writer
	// Load puts the operator's image onto the nodes. nil: it is there.
	Load func(ctx context.Context) error
	// Image is the digest of the operator's image. With it, what Install has done is
	// recognized and not done again; empty does all.
	Image string
	// Begun is what times are counted from.
	Begun time.Time

	// Said is what `ceph status` and `ceph osd tree` said when Up was done.
	Said string

	mu   sync.Mutex
	api  *kube.Client // made when it is first needed
	tool *shell       // the ceph tool that Up keeps, not guarded; nil for none
}

// client talks to the API server.
func (l *Lab) client() (*kube.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api == nil {
		api, err := kube.New(l.Kubeconfig)
		if err != nil {
			return nil, err
		}
		l.api = api
	}
	return l.api, nil
}

func (l *Lab) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l.Out, "%6.1fs  %s\n", time.Since(l.Begun).Seconds(), fmt.Sprintf(format, args...))
}

// Up installs the operator and makes the cluster.
func (l *Lab) Up(ctx context.Context) ([]Stage, error) {
	if err := l.Install(ctx); err != nil {
		return nil, err
	}
	if err := l.rolledOut(ctx, "rook-ceph-operator"); err != nil {
		return nil, err
	}
	l.say("operator is installed")
	cluster, err := files.ReadFile("files/cluster.yaml")
	if err != nil {
		return nil, err
	}
	if l.Patch != "" {
		if cluster, err = patched(cluster, l.Patch); err != nil {
			return nil, fmt.Errorf("changing the CephCluster: %w", err)
		}
	}
	if err := l.apply(ctx, cluster); err != nil {
		return nil, err
	}
	applied := time.Now()
	l.say("CephCluster is applied")
	t := newTimeline(applied)
	defer l.drop()
	if err := l.follow(ctx, t); err != nil {
		return t.Stages(), err
	}
	if err := l.use(ctx, t); err != nil {
		return t.Stages(), err
	}
	l.Said, err = l.last(ctx, "status", "osd tree")
	return t.Stages(), err
}

// use waits until every PG is active and clean, since Ceph says HEALTH_OK also while PGs
// are being made, has Ceph keep an object in a pool, and waits for that pool's PGs.
func (l *Lab) use(ctx context.Context, t *timeline) error {
	if err := l.rolledOut(ctx, "rook-ceph-tools"); err != nil {
		return err
	}
	if err := l.clean(ctx, t); err != nil {
		return err
	}
	if err := l.have(ctx, "a pool", "osd pool create "+poolName+" 8"); err != nil {
		return err
	}
	var trip error
	var all sync.WaitGroup
	all.Go(func() { trip = l.roundTrip(ctx) })
	err := l.have(ctx, "the pool's application", "osd pool application enable "+poolName+" rados")
	if err == nil {
		err = l.clean(ctx, nil)
	}
	all.Wait()
	return errors.Join(trip, err)
}

// rolloutTime is how long a Deployment's pods may take to be there.
const rolloutTime = time.Minute

// rolledOut waits until a Deployment's pods are those that it asks for, and ready.
func (l *Lab) rolledOut(ctx context.Context, name string) error {
	api, err := l.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rolloutTime)
	defer cancel()
	last := appsv1.Deployment{}
	err = kube.Watch(ctx, api, "/apis/apps/v1/namespaces/"+Namespace+"/deployments", "fieldSelector=metadata.name%3D"+name, func(d appsv1.Deployment) (bool, error) {
		last = d
		return !complete(d), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the pods of %s, of which %d of %d are available: %w", name, last.Status.AvailableReplicas, last.Status.Replicas, err)
	}
	return nil
}

// complete reports whether the pods of a Deployment are those that it asks for, and ready.
func complete(d appsv1.Deployment) bool {
	want := int32(1) // the default
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

// patched gives a manifest of one object, changed by a JSON merge patch.
func patched(manifest []byte, patch string) ([]byte, error) {
	var object, change map[string]any
	if err := yaml.Unmarshal(manifest, &object); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if err := json.Unmarshal([]byte(patch), &change); err != nil {
		return nil, fmt.Errorf("reading the patch: %w", err)
	}
	return yaml.Marshal(merge(object, change))
}

// merge is RFC 7396: maps are merged, null removes, all else replaces.
func merge(object, change map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for k, v := range change {
		switch v := v.(type) {
		case nil:
			delete(object, k)
		case map[string]any:
			below, _ := object[k].(map[string]any)
			object[k] = merge(below, v)
		default:
			object[k] = v
		}
	}
	return object
}

// installedAnnotation on the namespace says what Install has applied last.
const installedAnnotation = "lab.castellan.ceph.io/installed"

// Install applies everything in deploy, with the lab's image and settings, unless just
// that was applied before. It does not wait for the operator, and needs no nodes.
func (l *Lab) Install(ctx context.Context) error {
	sum, err := l.sum()
	if err != nil {
		return err
	}
	api, err := l.client()
	if err != nil {
		return err
	}
	const path = "/api/v1/namespaces/" + Namespace
	if l.Image != "" {
		var now struct {
			Metadata struct{ Annotations map[string]string }
		}
		err := api.Get(ctx, path, &now)
		if err == nil && now.Metadata.Annotations[installedAnnotation] == sum {
			return nil
		}
		if err != nil && !kube.IsNotFound(err) {
			return err
		}
	}
	if err := l.install(ctx); err != nil {
		return err
	}
	note, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{installedAnnotation: sum}}})
	if err == nil {
		err = api.Merge(ctx, path, note)
	}
	if err != nil {
		return fmt.Errorf("noting what is installed: %w", err)
	}
	return nil
}

// sum tells two contents of deploy, settings and image apart.
func (l *Lab) sum() (string, error) {
	h := sha256.New()
	crds, err := filepath.Glob(filepath.Join(l.Deploy, "crds", "*.yaml"))
	if err != nil {
		return "", fmt.Errorf("listing the CRDs: %w", err)
	}
	for _, path := range append(crds, filepath.Join(l.Deploy, "common.yaml"), filepath.Join(l.Deploy, "toolbox.yaml"), filepath.Join(l.Deploy, "operator.yaml")) {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading the manifests: %w", err)
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", filepath.Base(path), len(b), b)
	}
	settings, err := files.ReadFile("files/settings.yaml")
	if err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(h, "%s\n%s", settings, l.Image)
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func (l *Lab) install(ctx context.Context) error {
	// Neither needs the others.
	steps := []struct {
		done string
		do   func(context.Context) error
	}{
		{"the API server knows all kinds", l.kinds},
		{"namespace, permissions, settings and toolbox are applied", l.surroundings},
		{"the operator's image is on all nodes", l.Load},
	}
	errs := make([]error, len(steps))
	var all sync.WaitGroup
	for i, step := range steps {
		if step.do == nil {
			continue
		}
		all.Go(func() {
			if errs[i] = step.do(ctx); errs[i] == nil {
				l.say("%s", step.done)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	operator, err := os.ReadFile(filepath.Join(l.Deploy, "operator.yaml"))
	if err != nil {
		return fmt.Errorf("reading deploy/operator.yaml: %w", err)
	}
	if err := l.apply(ctx, useImages(withoutSettings(operator))); err != nil {
		return fmt.Errorf("applying deploy/operator.yaml: %w", err)
	}
	return nil
}

// kinds applies the CRDs and waits until the API server knows them.
func (l *Lab) kinds(ctx context.Context) error {
	api, err := l.client()
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(l.Deploy, "crds", "*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the CRDs: %w", err)
	}
	var all []kube.Object
	var names []string
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the CRDs: %w", err)
		}
		objects, err := kube.Read(b)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, o := range objects {
			all, names = append(all, o), append(names, o.Name)
		}
	}
	if err := api.ApplyAny(ctx, all); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, kindsTime)
	defer cancel()
	return api.Served(ctx, names)
}

// kindsTime is how long the API server may take to serve kinds that it has been told of.
const kindsTime = 30 * time.Second

// surroundings applies what the operator finds when it starts: namespace, permissions,
// the lab's settings, and the toolbox.
func (l *Lab) surroundings(ctx context.Context) error {
	settings, err := files.ReadFile("files/settings.yaml")
	if err != nil {
		return err
	}
	all := []byte{}
	for _, name := range []string{"common.yaml", "toolbox.yaml"} {
		b, err := os.ReadFile(filepath.Join(l.Deploy, name))
		if err != nil {
			return fmt.Errorf("reading deploy/%s: %w", name, err)
		}
		all = append(append(all, "\n---\n"...), useImages(b)...)
	}
	all = append(append(all, "\n---\n"...), settings...)
	if err := l.apply(ctx, all); err != nil {
		return fmt.Errorf("applying deploy/common.yaml, deploy/toolbox.yaml and the lab's settings: %w", err)
	}
	return nil
}

// apply applies manifests as a user would.
func (l *Lab) apply(ctx context.Context, manifests []byte) error {
	api, err := l.client()
	if err != nil {
		return err
	}
	objects, err := kube.Read(manifests)
	if err != nil {
		return err
	}
	return api.Apply(ctx, objects)
}

// withoutSettings leaves out the operator's settings, in place of which the lab has its own.
func withoutSettings(manifest []byte) []byte {
	docs := strings.Split(string(manifest), "\n---")
	docs = slices.DeleteFunc(docs, func(doc string) bool { return strings.Contains(doc, "\nkind: ConfigMap\n") })
	return []byte(strings.Join(docs, "\n---"))
}

// useImages replaces the published images in a manifest by those that the lab's
// nodes hold.
func useImages(manifest []byte) []byte {
	lines := strings.Split(string(manifest), "\n")
	for i, line := range lines {
		at := strings.Index(line, "image:")
		if at < 0 || strings.Contains(line[:at], "#") {
			continue
		}
		image := OperatorImage
		if strings.Contains(line, "quay.io/ceph/ceph") {
			image = "localhost/ceph:20.2.4"
		}
		lines[i] = line[:at] + "image: " + image
	}
	return []byte(strings.Join(lines, "\n"))
}

// toolbox finds the pod with Ceph's tools.
const toolbox = "app=rook-ceph-tools"

// Exec runs a program in the toolbox pod.
func (l *Lab) Exec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args ...string) error {
	api, err := l.client()
	if err != nil {
		return err
	}
	return api.Exec(ctx, Namespace, toolbox, stdin, stdout, stderr, args...)
}

// Tool runs a Ceph tool in the toolbox pod.
func (l *Lab) Tool(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	var out, errOut bytes.Buffer
	if err := l.Exec(ctx, bytes.NewReader(stdin), &out, &errOut, args...); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// poolName is the pool that the lab's object is in.
const poolName = "lab"

// have has the ceph tool carry a command out. What goes wrong with it, the rados tool says.
func (l *Lab) have(ctx context.Context, what, command string) error {
	return again(ctx, what, func() error { return l.tell(ctx, command) })
}

// roundTrip writes an object into the pool and reads it back.
func (l *Lab) roundTrip(ctx context.Context) error {
	data := bytes.Repeat([]byte("castellan keeps what it is given\n"), 4096)
	if _, err := l.Tool(ctx, data, "rados", "-p", poolName, "put", "hello", "-"); err != nil {
		return err
	}
	back, err := l.Tool(ctx, nil, "rados", "-p", poolName, "get", "hello", "-")
	if err != nil {
		return err
	}
	if !bytes.Equal(back, data) {
		return errors.New("the object that was read back is not the one that was written")
	}
	l.say("an object of %d bytes was written and read back", len(data))
	return nil
}

// askTime bounds one question in the toolbox. One that was there before the cluster may
// still know the mons of another; Ceph's tools try those for five minutes.
const askTime = 20 * time.Second

// askEvery is how often the toolbox is asked. The tool that runs answers in milliseconds.
const askEvery = 200 * time.Millisecond

// again asks until it gets an answer: a toolbox that was there before the cluster may not
// know it yet.
func again(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last seen: %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// clean waits until every PG is active and clean. t, which may be nil, is told.
func (l *Lab) clean(ctx context.Context, t *timeline) error {
	return again(ctx, "clean PGs", func() error {
		pgs, err := l.unclean(ctx)
		if err == nil {
			if t != nil {
				t.reach(stageClean, time.Now())
			}
			l.say("all %d PGs are active+clean", pgs)
		}
		return err
	})
}
