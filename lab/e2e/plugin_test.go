package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/lab/testlab"
)

// output collects what a program writes while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// plugin runs kubectl-castellan; the command is running when it returns.
func (r *replacements) plugin(t *testing.T, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	dir := os.Getenv(envBin)
	if dir == "" {
		dir = filepath.Join(repository, "bin")
	}
	path := filepath.Join(dir, "kubectl-castellan")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no plugin: %v (make kubectl-plugin builds it)", err)
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", r.lab.Kubeconfig}, args...)...)
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// says waits until the plugin has written all of these.
func (o *output) says(t *testing.T, words ...string) {
	t.Helper()
	testlab.Until(t, long, fmt.Sprintf("the plugin says %q", words), func(context.Context) error {
		text := o.String()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("it has said: %s", text)
			}
		}
		return nil
	})
}

// testReplacePlugin takes a replacement back and carries one through, as a person at a
// terminal would.
func testReplacePlugin(t *testing.T, r *replacements) {
	o := r.osd(t, 2)
	id := strconv.Itoa(o.id)
	r.flags(t, "set", "norebalance", "nobackfill")
	r.seen.begin(o, time.Now())
	cmd, out := r.plugin(t, "osd", "replace", id)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.deploymentUntil(t, o.id, "accepted", has(runningAnnotation))
	testlab.Until(t, time.Minute, "the status tells of it", func(ctx context.Context) error {
		_, _, err := r.replacement(ctx, o.id)
		return err
	})
	cmd, out = r.plugin(t, "osd", "replace", "status")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "osd."+id) {
		t.Errorf("status of replacements: %v: %s", err, out)
	}
	t.Logf("osd replace status:\n%s", out)
	cmd, out = r.plugin(t, "osd", "replace", "cancel", id, "--watch")
	if err := cmd.Wait(); err != nil {
		t.Errorf("cancelling: %v: %s", err, out)
	}
	t.Logf("osd replace cancel --watch:\n%s", out)
	testlab.Until(t, time.Minute, "all is as it was", func(ctx context.Context) error { return r.asItWas(ctx, o) })
	r.flags(t, "unset", "norebalance", "nobackfill")

	r.seen.begin(o, time.Now())
	cmd, out = r.plugin(t, "osd", "replace", id, "--watch")
	r.untilReady(t, o)
	serial := r.diskOf(t, o).Serial
	out.says(t, serial)
	r.swap(t, o)
	r.untilBack(t, o, "plugin")
	if err := cmd.Wait(); err != nil {
		t.Errorf("watching a replacement: %v", err)
	}
	t.Logf("osd replace --watch:\n%s", out)
	cmd, out = r.plugin(t, "status")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "HEALTH_OK") {
		t.Errorf("status: %v: %s", err, out)
	}
	t.Logf("status:\n%s", out)
}
