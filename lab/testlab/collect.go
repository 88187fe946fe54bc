package testlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/lab/cluster"
)

// collectLimit bounds a collection: the lab may be in any state.
const collectLimit = time.Minute

// collectOnFailure collects when the test has failed, before the lab goes.
func (l *Lab) collectOnFailure(t testing.TB) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		root := os.Getenv(EnvArtifacts)
		if root == "" {
			root = filepath.Join(os.TempDir(), "castellan-lab-artifacts")
		}
		dir := filepath.Join(root, dirName(t.Name()), l.Name)
		ctx, cancel := context.WithTimeout(context.Background(), collectLimit)
		defer cancel()
		if err := l.Collect(ctx, dir); err != nil {
			t.Logf("collecting logs: %v", err)
		}
		t.Logf("logs, events and objects of the lab are in %s", dir)
	})
}

// Collect writes what explains a failure into dir: events, pods and nodes of
// all namespaces, logs of all containers with those of their previous run,
// logs of the lab's programs, and its status. It goes on after an error.
func (l *Lab) Collect(ctx context.Context, dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o755); err != nil {
		return fmt.Errorf("collecting into %s: %w", dir, err)
	}
	errs := []error{l.copyLogs(dir)}
	status, err := l.Control.Status(ctx)
	errs = append(errs, err, writeJSON(filepath.Join(dir, "status.json"), status))
	events, err := l.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "events.txt"), []byte(eventLines(events.Items)), 0o644))
	}
	nodes, err := l.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, writeJSON(filepath.Join(dir, "nodes.json"), nodes))
	}
	pods, err := l.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	errs = append(errs, err)
	if err == nil {
		errs = append(errs, writeJSON(filepath.Join(dir, "pods.json"), pods))
		for _, p := range pods.Items {
			errs = append(errs, l.podLogs(ctx, filepath.Join(dir, "pods"), p))
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) copyLogs(dir string) error {
	logs, err := cluster.Logs(l.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, lg := range logs {
		b, err := os.ReadFile(lg.Path)
		errs = append(errs, err)
		name := filepath.Join(dir, "lab", lg.Name+".log")
		errs = append(errs, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, 0o644))
	}
	return errors.Join(errs...)
}

// podLogs writes the logs of a pod's containers. A container that has none is
// no error: its pod's status in pods.json says why.
func (l *Lab) podLogs(ctx context.Context, dir string, p corev1.Pod) error {
	var errs []error
	all := append(append([]corev1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...)
	for _, c := range all {
		for _, previous := range []bool{false, true} {
			if previous && c.RestartCount == 0 {
				continue
			}
			stream, err := l.kube.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name, Previous: previous}).Stream(ctx)
			if err != nil {
				continue
			}
			b, err := io.ReadAll(stream)
			errs = append(errs, err, stream.Close())
			name := fmt.Sprintf("%s_%s_%s.log", p.Namespace, p.Name, c.Name)
			if previous {
				name = strings.TrimSuffix(name, ".log") + ".previous.log"
			}
			errs = append(errs, os.WriteFile(filepath.Join(dir, name), b, 0o644))
		}
	}
	return errors.Join(errs...)
}

func eventLines(events []corev1.Event) string {
	var b strings.Builder
	for _, e := range events {
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		_, _ = fmt.Fprintf(&b, "%s %s %s/%s/%s %s: %s\n", at.UTC().Format(time.RFC3339), e.Type, e.InvolvedObject.Namespace, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return b.String()
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.WriteFile(path, b, 0o644)
}
