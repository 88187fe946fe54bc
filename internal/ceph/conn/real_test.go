//go:build cgo

package conn

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/pool"
)

// realCluster connects to the cluster that the contract suite uses too; see
// cephtest/contract for how to run it.
func realCluster(t *testing.T) *Cluster {
	t.Helper()
	host, ring := os.Getenv("CASTELLAN_CONTRACT_MON_HOST"), os.Getenv("CASTELLAN_CONTRACT_KEYRING")
	if host == "" || ring == "" {
		t.Skip("needs a real cluster: CASTELLAN_CONTRACT_MON_HOST and CASTELLAN_CONTRACT_KEYRING")
	}
	b, err := os.ReadFile(ring)
	if err != nil {
		t.Fatal(err)
	}
	key := ""
	for _, l := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(l, "="); ok && strings.TrimSpace(k) == "key" {
			key = strings.TrimSpace(v)
		}
	}
	p := New()
	t.Cleanup(p.Close)
	return p.Cluster("real", Config{MonHost: host, User: "client.admin", Key: ceph.NewSecret(key)})
}

func TestRealLatency(t *testing.T) {
	c := realCluster(t)
	for _, to := range []ceph.Target{ceph.ToMon, ceph.ToMgr} {
		cmd := ceph.Cmd("osd dump")
		if to == ceph.ToMgr {
			cmd = ceph.Cmd("pg stat")
		}
		rss := rssKiB(t)
		start := time.Now()
		if _, err := ceph.Do(t.Context(), c, to, cmd); err != nil {
			t.Fatal(err)
		}
		first := time.Since(start)
		const n = 200
		start = time.Now()
		for range n {
			if _, err := ceph.Do(t.Context(), c, to, cmd); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s: first %v with connecting (%d KiB more), then %v a command", to, first, rssKiB(t)-rss, time.Since(start)/n)
	}
}

func rssKiB(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "VmRSS:")
	n, _ := strconv.Atoi(strings.Fields(after)[0])
	return n
}

func TestRealTell(t *testing.T) {
	c := realCluster(t)
	for _, to := range []string{"mon.a", "osd.0"} {
		r, err := c.Tell(t.Context(), to, ceph.Cmd("version"))
		if err != nil || !strings.Contains(string(r.Out), "ceph version") && !strings.Contains(string(r.Out), "version") {
			t.Errorf("%s: %q %v", to, r.Out, err)
		}
	}
	if _, err := c.Tell(t.Context(), "mds.x", ceph.Cmd("version")); err == nil || ceph.Unreachable(err) {
		t.Errorf("a daemon that librados cannot address: %v", err)
	}
}

func TestRealWrongKey(t *testing.T) {
	c := realCluster(t)
	cfg := c.cfg
	cfg.Key = ceph.NewSecret("AgARvAxrTK56ESAAWIDa4dMj1AUJ1Fx+Ke7wVk//J3BoZzPk78C6d+MxoqI=")
	bad := New().Cluster("bad", cfg)
	_, err := bad.Mon(t.Context(), ceph.Cmd("status"))
	if !ceph.Unreachable(err) || strings.Contains(err.Error(), cfg.Key.Reveal()) {
		t.Errorf("%v", err)
	}
	t.Log(err)
}

func TestRealObjects(t *testing.T) {
	c := realCluster(t)
	p := pool.New(c)
	if err := p.Create(t.Context(), pool.Spec{Name: "conn-test", PGNum: 4, AutoscaleMode: "off"}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Delete(t.Context(), "conn-test"); err != nil {
			t.Error(err)
		}
	}()
	at := ceph.Object{Pool: "conn-test", Namespace: "n", Name: "o"}
	if _, err := c.ReadObject(t.Context(), at, 10); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
	if err := c.WriteObject(t.Context(), ceph.Object{Pool: "conn-none", Name: "o"}, []byte("x")); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
	if err := c.WriteObject(t.Context(), at, []byte("data")); err != nil {
		t.Fatal(err)
	}
	if b, err := c.ReadObject(t.Context(), at, 10); err != nil || string(b) != "data" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := c.ReadObject(t.Context(), at, 3); ceph.Errno(err) != syscall.EFBIG {
		t.Errorf("%v", err)
	}
	if err := c.SetOmap(t.Context(), at, map[string][]byte{"k": []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Omap(t.Context(), at); err != nil || string(m["k"]) != "v" {
		t.Errorf("%v %v", m, err)
	}
	if err := c.RemoveObject(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveObject(t.Context(), at); !ceph.NotFound(err) {
		t.Errorf("%v", err)
	}
}

// TestRealHangingDaemons stops daemons by signal: CASTELLAN_CONTRACT_MGR_PID is the
// active mgr, CASTELLAN_CONTRACT_MON_PIDS enough mons to lose the quorum.
func TestRealHangingDaemons(t *testing.T) {
	c := realCluster(t)
	for _, tc := range []struct {
		env string
		to  ceph.Target
		cmd ceph.Command
	}{
		{"CASTELLAN_CONTRACT_MGR_PID", ceph.ToMgr, ceph.Cmd("pg stat")},
		{"CASTELLAN_CONTRACT_MON_PIDS", ceph.ToMon, ceph.Cmd("osd dump")},
	} {
		pids := strings.Fields(os.Getenv(tc.env))
		if len(pids) == 0 {
			t.Logf("%s is not set", tc.env)
			continue
		}
		if _, err := ceph.Do(t.Context(), c, tc.to, tc.cmd); err != nil {
			t.Fatal(err)
		}
		signal := func(s syscall.Signal) {
			for _, p := range pids {
				n, err := strconv.Atoi(p)
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(n, s); err != nil {
					t.Fatal(err)
				}
			}
		}
		signal(syscall.SIGSTOP)
		for i := range maxAbandoned + 1 {
			start := time.Now()
			_, err := ceph.Do(t.Context(), c, tc.to, tc.cmd.WithTimeout(500*time.Millisecond))
			if d := time.Since(start); !ceph.Unreachable(err) || d > 2*time.Second {
				t.Errorf("%s: %v after %v", tc.env, err, d)
			} else {
				t.Logf("%s: call %d: %v after %v", tc.env, i, err, d.Round(time.Millisecond))
			}
		}
		signal(syscall.SIGCONT)
		start := time.Now()
		for {
			_, err := ceph.Do(t.Context(), c, tc.to, tc.cmd.WithTimeout(time.Second))
			if err == nil {
				break
			}
			if time.Since(start) > time.Minute {
				t.Fatalf("%s: never back: %v", tc.env, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("%s: back after %v", tc.env, time.Since(start).Round(time.Millisecond))
	}
}
