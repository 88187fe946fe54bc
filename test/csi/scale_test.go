package csi_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
)

// TestLatency measures the time from a change of a ClientProfileReplication to
// config.json.
func TestLatency(t *testing.T) {
	n := 20
	if os.Getenv("CASTELLAN_SCALE") != "" {
		n = 200
	}
	w := newWorld(t)
	w.start("p")
	r := w.replication("r", "p", "start")
	w.create(r)
	w.published("p>start")
	changes, err := w.Watch(w.Context(), &corev1.ConfigMapList{}, client.InNamespace(w.ns))
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	var took []time.Duration
	for i := range n {
		remote := fmt.Sprintf("remote-%d", i)
		change(w, r, func(r *csiv1.ClientProfileReplication) { r.Spec.RemoteClientProfile = remote })
		started := time.Now()
		seen(changes.ResultChan(), `"`+remote+`"`)
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	t.Logf("%d changes: p50 %s, p99 %s, max %s", n, took[n/2], took[n*99/100], took[n-1])
	if took[n/2] > 5*time.Second {
		t.Errorf("half of the changes take more than %s", took[n/2])
	}
}

// seen waits for a version of the ConfigMap with a text in config.json.
func seen(events <-chan watch.Event, text string) {
	for e := range events {
		if cm, ok := e.Object.(*corev1.ConfigMap); ok && strings.Contains(cm.Data[clusterconfig.ConfigKey], text) {
			return
		}
	}
}

// TestThousand makes many profiles with a replication each and measures how long it
// takes until all of them are published and told.
func TestThousand(t *testing.T) {
	n := 50
	if os.Getenv("CASTELLAN_SCALE") != "" {
		n = 1000
	}
	w := newWorld(t)
	w.create(w.connection("c"))
	started := time.Now()
	var wg sync.WaitGroup
	for worker := range 10 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := worker; i < n; i += 10 {
				w.create(w.profile(fmt.Sprintf("p%d", i)), w.replication(fmt.Sprintf("r%d", i), fmt.Sprintf("p%d", i), "remote", "rbd", "5"))
			}
		}()
	}
	wg.Wait()
	made := time.Since(started)
	deadline := time.Now().Add(5 * time.Minute)
	for {
		problem := w.unfinished(n)
		if problem == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(problem)
		}
		time.Sleep(100 * time.Millisecond)
	}
	total := time.Since(started)
	writes := map[string]int{}
	for _, line := range w.writesHere() {
		parts := strings.Split(line, "/")
		kind := parts[0] + parts[slices.Index(parts, "namespaces")+2]
		if strings.HasSuffix(line, "/status") {
			kind += " status"
		}
		writes[kind]++
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("%d profiles with %d replications: made in %s, converged %s later; writes %v; heap %d MiB; config.json %d KiB",
		n, n, made.Round(time.Millisecond), (total - made).Round(time.Millisecond), writes, mem.HeapAlloc>>20, len(w.files().Data[clusterconfig.ConfigKey])>>10)
	w.quiet(2 * time.Second)
}

// unfinished says what is not as it should be yet.
func (w *world) unfinished(n int) string {
	f, err := clusterconfig.Parse(w.files().Data[clusterconfig.ConfigKey])
	if err != nil || f.Len() != n {
		return fmt.Sprintf("%d records of %d (%v)", f.Len(), n, err)
	}
	for _, id := range f.IDs() {
		if r, _, err := f.Get(id); err != nil || r.ReplicationDestination == nil {
			return fmt.Sprintf("%s has no destination (%v)", id, err)
		}
	}
	var profiles csiv1.ClientProfileList
	var replications csiv1.ClientProfileReplicationList
	for _, list := range []client.ObjectList{&profiles, &replications} {
		if err := w.List(w.Context(), list, client.InNamespace(w.ns)); err != nil {
			return err.Error()
		}
	}
	for _, p := range profiles.Items {
		if p.Status.Phase != "Ready" || p.Status.ActiveReplication == "" || p.Status.Published == nil {
			return fmt.Sprintf("%s: %+v", p.Name, p.Status)
		}
	}
	for _, r := range replications.Items {
		if r.Status.Phase != "Ready" || r.Status.Published == nil {
			return fmt.Sprintf("%s: %+v", r.Name, r.Status)
		}
	}
	return ""
}
