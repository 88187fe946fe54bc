package view

import (
	"syscall"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
)

// What Ceph's map proves to be without data. The combinations are those of captured maps: an
// id that is claimed for the first time is "new" and in; one that was destroyed before is
// "new", out, and has been up as what it was.
func TestWhatHasNoData(t *testing.T) {
	for _, c := range []struct {
		name string
		osd  cephosd.OSD
		want bool
	}{
		{"destroyed", cephosd.OSD{UpFrom: 7, State: []string{"destroyed", "exists"}}, true},
		{"claimed after it was destroyed", cephosd.OSD{UpFrom: 7, State: []string{"exists", "new"}}, true},
		{"claimed for the first time", cephosd.OSD{In: true, State: []string{"exists", "new"}}, true},
		{"claimed for the first time, and it has been up without being marked in", cephosd.OSD{In: true, UpFrom: 9, State: []string{"exists", "new"}}, false},
		{"claimed, and up", cephosd.OSD{Up: true, UpFrom: 9, State: []string{"exists", "new", "up"}}, false},
		{"down and out, as a failed one is", cephosd.OSD{UpFrom: 7, State: []string{"exists"}}, false},
		{"down and out by itself", cephosd.OSD{UpFrom: 7, State: []string{"autoout", "exists"}}, false},
		{"down", cephosd.OSD{In: true, UpFrom: 7, State: []string{"exists"}}, false},
	} {
		if got := empty(c.osd); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// In a cluster that stays degraded Ceph calls no OSD safe that is down. An id that was
// claimed and never used does not have to wait for that; one with data does.
func TestADegradedClusterDoesNotHoldUpAnEmptySlot(t *testing.T) {
	ctx := t.Context()
	mem := cephtest.Healthy(t, 4, 1)
	mon := func(prefix string, args ...any) {
		t.Helper()
		if _, err := mem.Mon(ctx, ceph.Cmd(prefix, args...)); err != nil {
			t.Fatal(err)
		}
	}
	mon("osd pool create", "pool", "data", "pg_num", 8, "pool_type", "replicated", "size", 3)
	mem.Settle()
	osds := cephosd.New(mem)
	find := func(id int) cephosd.OSD {
		t.Helper()
		m, err := osds.Dump(ctx)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := m.Find(id)
		return o
	}
	if err := osds.Out(ctx, 0); err != nil {
		t.Fatal(err)
	}
	mem.Settle()
	mem.StopOSD(0)
	mem.Settle()
	if err := osds.Destroy(ctx, 0); err != nil {
		t.Fatal(err)
	}
	// Another host fails: three copies, and two hosts are left.
	mem.StopOSD(1)
	mem.Tick(3)
	ask := func(id int) (safe, nothing bool) {
		t.Helper()
		s, err := osds.Safety(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return s.Safe, Void(find(id), s)
	}
	if safe, nothing := ask(0); safe || !nothing {
		t.Errorf("the destroyed slot: safe %v, without data %v", safe, nothing)
	}
	if _, err := osds.NewOSD(ctx, "55555555-0000-4000-8000-000000000000", 0, cephosd.Secrets{}); err != nil {
		t.Fatal(err)
	}
	if o := find(0); !o.New() || bool(o.In) {
		t.Fatalf("the claimed slot is %+v", o)
	}
	if safe, nothing := ask(0); safe || !nothing {
		t.Errorf("the claimed slot: safe %v, without data %v", safe, nothing)
	}
	if safe, nothing := ask(1); safe || nothing {
		t.Errorf("the failed OSD: safe %v, without data %v", safe, nothing)
	}
	// Whatever the map says: PGs on it count, and no answer is no proof.
	for name, f := range map[string]cephtest.Fault{
		"PGs are mapped to it":    {Answer: []byte(`{"safe_to_destroy":[],"active":[0],"missing_stats":[],"stored_pgs":[]}`)},
		"it stores PGs":           {Answer: []byte(`{"safe_to_destroy":[],"active":[],"missing_stats":[],"stored_pgs":[0]}`)},
		"it is not mentioned":     {Answer: []byte(`{"safe_to_destroy":[],"active":[],"missing_stats":[],"stored_pgs":[]}`)},
		"the mgr does not answer": {Errno: syscall.ETIMEDOUT},
	} {
		f.Prefix, f.Times = "osd safe-to-destroy", 1
		mem.Inject(f)
		s, err := osds.Safety(ctx, 0)
		if nothing := Void(find(0), s); nothing || (err != nil) != (f.Errno != 0) {
			t.Errorf("%s: %v, %v", name, nothing, err)
		}
	}
	mem.Inject(cephtest.Fault{Prefix: "osd safe-to-destroy", Times: 1, Errno: syscall.EAGAIN})
	s, err := osds.Safety(ctx, 0)
	if nothing := Void(find(0), s); !nothing || err != nil {
		t.Errorf("PGs of others have not been reported: %v, %v", nothing, err)
	}
	if err := osds.Destroy(ctx, 0); err == nil {
		t.Error("Ceph destroys the claimed slot by its own check: this test shows nothing")
	}
	if err := osds.DestroyUnchecked(ctx, 0); err != nil || !find(0).Destroyed() {
		t.Errorf("%v, %+v", err, find(0))
	}
}
