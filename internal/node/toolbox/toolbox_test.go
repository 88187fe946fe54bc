package toolbox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func start(t *testing.T) Files {
	t.Helper()
	d := t.TempDir()
	f := Files{Secret: filepath.Join(d, "secret"), Endpoints: filepath.Join(d, "mon-endpoints"), Override: filepath.Join(d, "override"), Out: filepath.Join(d, "out")}
	for _, dir := range []string{f.Secret, f.Out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(f.Secret, "fsid"), "e9e2a1c4-0000-4000-8000-000000000001")
	put(t, filepath.Join(f.Secret, "ceph-username"), "client.admin")
	put(t, filepath.Join(f.Secret, "ceph-secret"), "AQ-one==\n")
	put(t, f.Endpoints, "a=10.0.0.1:3300,b=10.0.0.2:6789,c=[fd00::3]:3300")
	return f
}

func put(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, f Files) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(f.Out)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(f.Out, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()+" "+info.Mode().String()] = strings.ReplaceAll(string(b), f.Out, "OUT")
	}
	return got
}

func TestSync(t *testing.T) {
	f := start(t)
	sync := func(want bool) {
		t.Helper()
		changed, err := f.Sync()
		if err != nil || changed != want {
			t.Fatalf("Sync() = %v, %v, want %v", changed, err, want)
		}
	}
	sync(true)
	conf := "[global]\nfsid = e9e2a1c4-0000-4000-8000-000000000001\n" +
		"mon_host = [v2:10.0.0.1:3300],[v2:10.0.0.2:3300,v1:10.0.0.2:6789],[v2:[fd00::3]:3300]\n[client.admin]\nkeyring = OUT/keyring\n"
	want := map[string]string{
		"ceph.conf -rw-r--r--": conf,
		"keyring -rw-------":   "[client.admin]\n\tkey = AQ-one==\n",
	}
	if diff := cmp.Diff(want, content(t, f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sync(false)
	// A mon moves, the key is rotated, the user adds an override.
	put(t, f.Endpoints, "a=10.0.0.9:3300\n")
	put(t, filepath.Join(f.Secret, "ceph-secret"), "AQ-two==")
	put(t, f.Override, "[global]\nlog_to_stderr = false")
	sync(true)
	want = map[string]string{
		"ceph.conf -rw-r--r--": "[global]\nlog_to_stderr = false\n[global]\nfsid = e9e2a1c4-0000-4000-8000-000000000001\nmon_host = [v2:10.0.0.9:3300]\n[client.admin]\nkeyring = OUT/keyring\n",
		"keyring -rw-------":   "[client.admin]\n\tkey = AQ-two==\n",
	}
	if diff := cmp.Diff(want, content(t, f)); diff != "" {
		t.Errorf("after changes (-want +got):\n%s", diff)
	}
}

// The Secret as older manifests mount it: the key alone.
func TestSyncKeyOnly(t *testing.T) {
	f := start(t)
	for _, name := range []string{"fsid", "ceph-username", "ceph-secret"} {
		if err := os.Remove(filepath.Join(f.Secret, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(f.Secret, "secret.keyring"), "AQ-old==")
	put(t, f.Endpoints, "a=10.0.0.1:3300")
	if _, err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"ceph.conf -rw-r--r--": "[global]\nmon_host = [v2:10.0.0.1:3300]\n[client.admin]\nkeyring = OUT/keyring\n",
		"keyring -rw-------":   "[client.admin]\n\tkey = AQ-old==\n",
	}
	if diff := cmp.Diff(want, content(t, f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What cannot be understood leaves the files as they are.
func TestSyncRefuses(t *testing.T) {
	tests := map[string]func(t *testing.T, f Files){
		"no mons":           func(t *testing.T, f Files) { put(t, f.Endpoints, " \n") },
		"mons unreadable":   func(t *testing.T, f Files) { put(t, f.Endpoints, "a:10.0.0.1") },
		"two lines of user": func(t *testing.T, f Files) { put(t, filepath.Join(f.Secret, "ceph-username"), "client.x\n[global]") },
		"a section as key":  func(t *testing.T, f Files) { put(t, filepath.Join(f.Secret, "ceph-secret"), "x]\n[global") },
		"no key": func(t *testing.T, f Files) {
			if err := os.Remove(filepath.Join(f.Secret, "ceph-secret")); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, breakIt := range tests {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			if _, err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			before := content(t, f)
			breakIt(t, f)
			_, err := f.Sync()
			if err == nil {
				t.Error("no error")
			} else if strings.Contains(err.Error(), "AQ-") {
				t.Errorf("the error holds a key: %v", err)
			}
			if diff := cmp.Diff(before, content(t, f)); diff != "" {
				t.Errorf("the files have changed:\n%s", diff)
			}
		})
	}
}

func TestRun(t *testing.T) {
	f := start(t)
	if err := os.Rename(f.Endpoints, f.Endpoints+".away"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ticks, said, done := make(chan time.Time), make(chan string, 10), make(chan struct{})
	go func() { defer close(done); f.Run(ctx, ticks, func(s string) { said <- s }) }()
	if s := <-said; !strings.Contains(s, "mon-endpoints") {
		t.Errorf("a missing file is told as %q", s)
	}
	ticks <- time.Time{}
	ticks <- time.Time{} // the problem is not told again
	if err := os.Rename(f.Endpoints+".away", f.Endpoints); err != nil {
		t.Fatal(err)
	}
	ticks <- time.Time{}
	if s := <-said; !strings.Contains(s, "up to date") {
		t.Errorf("then: %q", s)
	}
	cancel()
	<-done
	if len(said) > 0 {
		t.Errorf("said too much: %q", <-said)
	}
}
