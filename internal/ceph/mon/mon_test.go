package mon

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/replay"
)

func client(t *testing.T, prefix, file string) Client {
	t.Helper()
	return New(replay.New(t, map[string]string{prefix: filepath.Join("testdata", file)}))
}

func TestQuorumStatus(t *testing.T) {
	q, err := client(t, "quorum_status", "fail-mon-down-quorum_status.json").QuorumStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !q.In("a") || !q.In("b") || q.In("c") || q.Leader != "a" || q.Age != 3 || len(q.Monmap.Mons) != 3 {
		t.Errorf("%+v", q)
	}
	m, ok := q.Monmap.Find("c")
	if !ok || m.Rank != 2 || m.PublicAddrs.String() != "[v2:127.0.0.3:3300,v1:127.0.0.3:6789]" {
		t.Errorf("%+v", m)
	}
	if q.Monmap.MinMonRelease != 20 || q.Monmap.MinMonReleaseName != "tentacle" || q.Monmap.ElectionStrategy != StrategyClassic {
		t.Errorf("%+v", q.Monmap)
	}
	if q, err = client(t, "quorum_status", "quorum_status.json").QuorumStatus(t.Context()); err != nil || !q.In("c") {
		t.Errorf("%+v %v", q, err)
	}
}

func TestDump(t *testing.T) {
	m, err := client(t, "mon dump", "mon-dump.json").Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 1, 2}, m.Quorum); d != "" || m.Epoch != 3 || m.FSID != "f2b79749-5c80-4051-8f99-2b3d36e8fb05" {
		t.Errorf("%s%+v", d, m)
	}
}

func TestVerdictComesFromTheExitCode(t *testing.T) {
	for _, tc := range []struct {
		err     error
		want    Verdict
		wantErr bool
	}{
		{nil, Verdict{OK: true, Why: "said"}, false},
		{&ceph.Error{Errno: syscall.EBUSY, Status: "no"}, Verdict{Why: "no"}, false},
		{&ceph.Error{Errno: syscall.EPERM}, Verdict{}, true},
		{&ceph.UnreachableError{Err: context.DeadlineExceeded}, Verdict{}, true},
		{errors.New("other"), Verdict{}, true},
	} {
		c := New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
			return ceph.Reply{Status: "said"}, tc.err
		}))
		for _, ask := range []func() (Verdict, error){
			func() (Verdict, error) { return c.OkToStop(t.Context(), "a") },
			func() (Verdict, error) { return c.OkToRemove(t.Context(), "a") },
			func() (Verdict, error) { return c.OkToAddOffline(t.Context()) },
		} {
			v, err := ask()
			if d := cmp.Diff(tc.want, v); d != "" || (err != nil) != tc.wantErr {
				t.Errorf("%v: %s %v", tc.err, d, err)
			}
		}
	}
}

func TestElectionStrategy(t *testing.T) {
	var got ceph.Command
	c := New(ceph.Func(func(_ context.Context, _ ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
		got = cmd
		return ceph.Reply{}, nil
	}))
	if err := c.SetElectionStrategy(t.Context(), StrategyConnectivity); err != nil || got.Args["strategy"] != "connectivity" {
		t.Errorf("%v %v", got, err)
	}
	if err := c.SetElectionStrategy(t.Context(), 9); err == nil {
		t.Error("strategy 9 was sent")
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte(`{"quorum":[0],"monmap":{"mons":[{"name":"a","crush_location":[]}]}}`))
	f.Add([]byte(`{"mons":[{"crush_location":"{datacenter=a}"}]}`))
	ctx := f.Context()
	f.Fuzz(func(_ *testing.T, in []byte) {
		c := New(ceph.Func(func(context.Context, ceph.Target, ceph.Command) (ceph.Reply, error) {
			return ceph.Reply{Out: in}, nil
		}))
		if q, err := c.QuorumStatus(ctx); err == nil {
			q.In("a")
			q.Monmap.Find("a")
		}
		_, _ = c.Dump(ctx)
		_, _ = c.Metadata(ctx)
	})
}

// By an answer that names nobody, every mon could be taken out.
func TestAQuorumOfNobodyIsNoAnswer(t *testing.T) {
	for _, out := range []string{`{}`, `null`, `{"quorum_names":["a"]}`, `{"monmap":{"mons":[{"name":"a"}]}}`, `{"quorum_names":["a"],"monmap":{"mons":null}}`} {
		c := New(answers(out))
		if q, err := c.QuorumStatus(t.Context()); err == nil {
			t.Errorf("%s: %+v", out, q)
		}
	}
}

// answers says the same to every question.
type answers string

func (a answers) Mon(context.Context, ceph.Command) (ceph.Reply, error) {
	return ceph.Reply{Out: []byte(a)}, nil
}

func (a answers) Mgr(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return a.Mon(ctx, cmd)
}

func (a answers) Tell(ctx context.Context, _ string, cmd ceph.Command) (ceph.Reply, error) {
	return a.Mon(ctx, cmd)
}
