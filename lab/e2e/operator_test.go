package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/testlab"
)

// clockTicks is the unit of times in /proc/PID/stat (USER_HZ, proc(5)): 100 on
// every architecture that Linux still runs on.
const clockTicks = 100

// process is the operator's process as the machine sees it.
type process struct {
	pid int
	// started is counted from the machine's boot.
	started time.Duration
	cpu     time.Duration
	// childFaults are page faults of children that have ended. A program cannot be
	// run without any.
	childFaults int
	children    string
	// rss and anon are resident bytes: all, and those that are no file's.
	rss, anon int64
}

// operatorPod is the operator's only pod that is not about to go.
func (c *cluster) operatorPod(ctx context.Context) (*corev1.Pod, error) {
	list, err := c.lab.Kube().CoreV1().Pods(ceph.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=rook-ceph-operator"})
	if err != nil {
		return nil, err
	}
	var found *corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil {
			if found != nil {
				return nil, fmt.Errorf("there are several operators: %s and %s", found.Name, p.Name)
			}
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("there is no operator")
	}
	return found, nil
}

// operatorProcess finds the operator's process by its pod's cgroup.
func (c *cluster) operatorProcess(ctx context.Context) (process, error) {
	pod, err := c.operatorPod(ctx)
	if err != nil {
		return process{}, err
	}
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return process{}, err
	}
	for _, path := range comms {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != "castellan" {
			continue // ended meanwhile, or another program
		}
		dir := filepath.Dir(path)
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err == nil && bytes.Contains(group, []byte(pod.UID)) {
			return readProcess(dir)
		}
	}
	return process{}, fmt.Errorf("pod %s has no process of the operator", pod.Name)
}

// readProcess reads /proc/PID (proc_pid_stat(5), proc_pid_status(5)).
func readProcess(dir string) (process, error) {
	p := process{}
	var err error
	if p.pid, err = strconv.Atoi(filepath.Base(dir)); err != nil {
		return p, err
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, err
	}
	// The second field is the name in brackets; those after it are numbers.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 20 {
		return p, fmt.Errorf("reading %s/stat: %q", dir, stat)
	}
	number := func(field int) int64 { // counted as the manual does
		n, errN := strconv.ParseInt(f[field-3], 10, 64)
		if errN != nil {
			err = errN
		}
		return n
	}
	p.childFaults = int(number(11) + number(13))
	p.cpu = time.Duration(number(14)+number(15)) * time.Second / clockTicks
	p.started = time.Duration(number(22)) * time.Second / clockTicks
	if err != nil {
		return p, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return p, err
	}
	for _, line := range strings.Split(string(status), "\n") {
		var kb int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			p.rss = kb << 10
		}
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kb); n == 1 {
			p.anon = kb << 10
		}
	}
	tasks, err := filepath.Glob(filepath.Join(dir, "task/*/children"))
	for _, t := range tasks {
		if b, err := os.ReadFile(t); err == nil {
			p.children += string(b)
		}
	}
	return p, err
}

// sinceBoot is the clock that process.started is of.
func sinceBoot() (time.Duration, error) {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	var s float64
	if _, err := fmt.Sscan(string(b), &s); err != nil {
		return 0, fmt.Errorf("reading /proc/uptime: %w", err)
	}
	return time.Duration(s * float64(time.Second)), nil
}

const metricsReader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: e2e-metrics, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: castellan-metrics-reader}
subjects: [{kind: ServiceAccount, name: e2e-metrics, namespace: default}]
`

// metrics are the operator's, each by its name with labels.
func (c *cluster) metrics(ctx context.Context) (map[string]float64, error) {
	pod, err := c.operatorPod(ctx)
	if err != nil {
		return nil, err
	}
	if pod.Status.PodIP == "" {
		return nil, fmt.Errorf("pod %s has no address", pod.Name)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext:       c.lab.Control.Dial,
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the operator makes its own certificate
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+pod.Status.PodIP+":8443/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for metrics: %s: %s", resp.Status, body)
	}
	out := map[string]float64{}
	for _, line := range strings.Split(string(body), "\n") {
		name, value, ok := cutLast(line, " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("reading the metric %s: %w", name, err)
		}
	}
	return out, nil
}

// commands counts by name what the operator has asked Ceph since then, as Ceph's audit
// log has it.
func (c *cluster) commands(ctx context.Context, since time.Time) (map[string]int, error) {
	pod, err := c.operatorPod(ctx)
	if err != nil {
		return nil, err
	}
	var log []struct{ Stamp, Message string }
	if err := c.ask(ctx, &log, "log", "last", "10000", "debug", "audit"); err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, l := range log {
		at, err := time.Parse("2006-01-02T15:04:05.999999-0700", l.Stamp)
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		// Besides this line there is one for the end of each change.
		if at.Before(since) || !strings.Contains(l.Message, pod.Status.PodIP+":") || !strings.HasSuffix(l.Message, ": dispatch") {
			continue
		}
		if m := commandPrefix.FindStringSubmatch(l.Message); m != nil {
			out[m[1]]++
		}
	}
	return out, nil
}

// commandPrefix finds the command's name in a line of the audit log.
var commandPrefix = regexp.MustCompile(`"prefix"\s*:\s*"([^"]+)"`)

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// sum adds the metrics whose names begin so.
func sum(m map[string]float64, prefix string) float64 {
	total := 0.0
	for name, v := range m {
		if strings.HasPrefix(name, prefix) {
			total += v
		}
	}
	return total
}

// subjects are the controllers that every CephCluster has.
var subjects = [...]string{"cluster", "mon", "mgr", "osd-provision", "osd", "config", "status"}

// quiet is how long nothing may happen for the operator to count as idle.
const quiet = 3 * time.Second

// idle waits until every controller has made a pass and no further one follows,
// and returns when the last one was seen, counted from the start of the operator's
// process.
func (c *cluster) idle(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	passes, changed := -1.0, time.Duration(0)
	var p process
	testlab.Until(t, limit, "the operator is idle", func(ctx context.Context) error {
		m, err := c.metrics(ctx)
		if err != nil {
			return err
		}
		now, err := sinceBoot()
		if err != nil {
			return err
		}
		for _, s := range subjects {
			if sum(m, `castellan_passes_total{controller="`+s+`"`) == 0 {
				return fmt.Errorf("%s has made no pass", s)
			}
		}
		if n := sum(m, "castellan_passes_total"); n != passes {
			passes, changed = n, now
			return fmt.Errorf("%v passes so far", n)
		}
		if now-changed < quiet {
			return fmt.Errorf("the last pass was %v ago", now-changed)
		}
		p, err = c.operatorProcess(ctx)
		return err
	})
	return changed - p.started
}

// kill kills the operator's process at once. What it has logged is kept.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	c.keepLog(t)
	if _, err := c.lab.Control.KillOperator(t.Context()); err != nil {
		t.Fatalf("killing the operator: %v", err)
	}
}

// keepLog adds what the operator's containers have logged so far to what is
// searched at the end. One that has not logged yet is passed over.
func (c *cluster) keepLog(t *testing.T) {
	t.Helper()
	pods := c.lab.Kube().CoreV1().Pods(ceph.Namespace)
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=rook-ceph-operator"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		for _, previous := range []bool{true, false} {
			if b, err := pods.GetLogs(p.Name, &corev1.PodLogOptions{Previous: previous}).DoRaw(t.Context()); err == nil {
				_, _ = c.log.Write(b) // never fails
			}
		}
	}
}

var panicked = regexp.MustCompile(`(?i)panic|goroutine \d+ \[`)

// searchSecrets fails the test when a key of the cluster is anywhere but in
// Secrets, or when the operator has panicked.
func (c *cluster) searchSecrets(t *testing.T) {
	t.Helper()
	c.keepLog(t)
	log := c.log.String()
	if len(log) < 1000 {
		t.Fatalf("the operator's log cannot be had: %q", log)
	}
	for _, line := range strings.Split(log, "\n") {
		if panicked.MatchString(line) {
			t.Errorf("the operator panicked: %s", line)
			break
		}
	}
	places := map[string]string{"the operator's log": log}
	for _, kind := range []string{"cephclusters", "configmaps", "events", "pods", "deployments", "jobs"} {
		places[kind] = c.lab.MustKubectl(t, "-n", ceph.Namespace, "get", kind, "-o", "yaml", "--show-managed-fields")
	}
	for name, key := range c.keys(t) {
		for place, text := range places {
			if strings.Contains(text, key) {
				t.Errorf("%s of Secret %s is in %s", "a key", name, place)
			}
		}
	}
}

// cephKey is the form of a Ceph key: a type, a time, a length and the key, in
// base64 (CryptoKey::encode).
var cephKey = regexp.MustCompile(`\bA[Qg][A-Za-z0-9+/]{36,58}={0,2}`)

// keys are all Ceph keys of the namespace's Secrets, by the Secret's name.
func (c *cluster) keys(t *testing.T) map[string]string {
	t.Helper()
	list, err := c.lab.Kube().CoreV1().Secrets(ceph.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{}
	for _, s := range list.Items {
		for field, v := range s.Data {
			for i, key := range cephKey.FindAllString(string(v), -1) {
				keys[fmt.Sprintf("%s/%s/%d", s.Name, field, i)] = key
			}
		}
	}
	if len(keys) < 4 {
		t.Fatalf("only %d keys were found in the Secrets: the search would show nothing", len(keys))
	}
	return keys
}
