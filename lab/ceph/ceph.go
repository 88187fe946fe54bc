// Package ceph brings a Ceph cluster up in a lab that runs: it installs the
// operator from the repository's deploy directory, makes a CephCluster of all the
// lab's disks, follows it until Ceph is healthy and every PG is active and clean,
// and writes and reads back an object.
//
// It uses what a user would: kubectl and the manifests. It must not reach into the
// operator or into Ceph in any other way.
package ceph

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed files/*.yaml
var files embed.FS

// Namespace of operator and cluster.
const Namespace = "rook-ceph"

// OperatorImage is the name under which the lab's nodes hold the operator.
const OperatorImage = "localhost/castellan:dev"

// Lab is where the cluster is to be.
type Lab struct {
	// Kubectl is the binary, Kubeconfig the administrator's.
	Kubectl, Kubeconfig string
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
}

func (l *Lab) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l.Out, "%6.1fs  %s\n", time.Since(l.Begun).Seconds(), fmt.Sprintf(format, args...))
}

// Up installs the operator and makes the cluster.
func (l *Lab) Up(ctx context.Context) ([]Stage, error) {
	if err := l.Install(ctx); err != nil {
		return nil, err
	}
	if _, err := l.kubectl(ctx, nil, "-n", Namespace, "rollout", "status", "deployment/rook-ceph-operator", "--timeout=60s"); err != nil {
		return nil, fmt.Errorf("waiting for the operator: %w", err)
	}
	l.say("operator is installed")
	cluster, err := files.ReadFile("files/cluster.yaml")
	if err != nil {
		return nil, err
	}
	if l.Patch != "" {
		if cluster, err = l.kubectl(ctx, cluster, "patch", "--local", "-f", "-", "--type", "merge", "-p", l.Patch, "-o", "yaml"); err != nil {
			return nil, fmt.Errorf("changing the CephCluster: %w", err)
		}
	}
	if _, err := l.kubectl(ctx, cluster, "apply", "-f", "-"); err != nil {
		return nil, fmt.Errorf("applying the CephCluster: %w", err)
	}
	applied := time.Now()
	l.say("CephCluster is applied")
	t := newTimeline(applied)
	if err := l.follow(ctx, t); err != nil {
		return t.Stages(), err
	}
	// Ceph says HEALTH_OK also while PGs are being made.
	if err := l.clean(ctx, t); err != nil {
		return t.Stages(), err
	}
	if err := l.roundTrip(ctx); err != nil {
		return t.Stages(), err
	}
	return t.Stages(), l.clean(ctx, nil)
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
	if l.Image != "" {
		// No answer, as for a namespace that is not there, means that all is to be done.
		now, err := l.kubectl(ctx, nil, "get", "namespace", Namespace, "-o", "jsonpath={.metadata.annotations."+strings.ReplaceAll(installedAnnotation, ".", `\.`)+"}")
		if err == nil && string(now) == sum {
			return nil
		}
	}
	if err := l.install(ctx); err != nil {
		return err
	}
	if _, err := l.kubectl(ctx, nil, "annotate", "namespace", Namespace, installedAnnotation+"="+sum, "--overwrite"); err != nil {
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
	crds := filepath.Join(l.Deploy, "crds")
	if _, err := l.kubectl(ctx, nil, "apply", "--server-side", "-f", crds); err != nil {
		return fmt.Errorf("applying the CRDs: %w", err)
	}
	if _, err := l.kubectl(ctx, nil, "wait", "--for=condition=Established", "--timeout=30s", "-f", crds); err != nil {
		return fmt.Errorf("waiting for the CRDs: %w", err)
	}
	return nil
}

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
	_, err := l.kubectl(ctx, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
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

// kubectl runs the lab's kubectl.
func (l *Lab) kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, l.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// Tool runs a Ceph tool in the toolbox pod.
func (l *Lab) Tool(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	call := []string{"-n", Namespace, "exec", "-i", "deploy/rook-ceph-tools", "--"}
	return l.kubectl(ctx, stdin, append(call, args...)...)
}

// roundTrip writes an object into a pool of its own and reads it back.
func (l *Lab) roundTrip(ctx context.Context) error {
	data := bytes.Repeat([]byte("castellan keeps what it is given\n"), 4096)
	steps := []struct {
		stdin []byte
		args  []string
	}{
		// The ceph tool is Python: it is started once for both.
		{[]byte("osd pool create lab 8\nosd pool application enable lab rados\n"), []string{"ceph"}},
		{data, []string{"rados", "-p", "lab", "put", "hello", "-"}},
	}
	for _, s := range steps {
		if _, err := l.Tool(ctx, s.stdin, s.args...); err != nil {
			return err
		}
	}
	back, err := l.Tool(ctx, nil, "rados", "-p", "lab", "get", "hello", "-")
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

// clean waits until every PG is active and clean. t, which may be nil, is told.
func (l *Lab) clean(ctx context.Context, t *timeline) error {
	if _, err := l.kubectl(ctx, nil, "-n", Namespace, "rollout", "status", "deployment/rook-ceph-tools", "--timeout=60s"); err != nil {
		return fmt.Errorf("waiting for the toolbox: %w", err)
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	var tool *shell
	defer func() { tool.close() }()
	for {
		var err error
		if tool == nil {
			tool, err = l.shell(ctx)
		}
		pgs := 0
		if err == nil {
			pgs, err = tool.unclean()
		}
		if err == nil {
			if t != nil {
				t.reach(stageClean, time.Now())
			}
			l.say("all %d PGs are active+clean", pgs)
			return nil
		}
		if !errors.Is(err, errUnclean) {
			tool.close()
			tool = nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for clean PGs: %w; last seen: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}
