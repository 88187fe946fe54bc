package observe

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
)

// unreported is a Ceph to which OSDs have not reported their usage yet: it lists them
// with a size of 0.
type unreported struct{ ceph.Commander }

func (u unreported) Mgr(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return u.ask(ctx, cmd, u.Commander.Mgr)
}

func (u unreported) Mon(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return u.ask(ctx, cmd, u.Commander.Mon)
}

func (u unreported) ask(ctx context.Context, cmd ceph.Command, to func(context.Context, ceph.Command) (ceph.Reply, error)) (ceph.Reply, error) {
	r, err := to(ctx, cmd)
	if err != nil || cmd.Prefix != "osd df" {
		return r, err
	}
	var all map[string]any
	if err := json.Unmarshal(r.Out, &all); err != nil {
		return r, err
	}
	for _, n := range all["nodes"].([]any) {
		n.(map[string]any)["kb"] = 0
	}
	r.Out, err = json.Marshal(all)
	return r, err
}

// A new OSD need not have reported its usage for its weight to be right: an OSD without a
// database of its own says at its boot how large it is.
func TestTheWeightDoesNotWaitForTheFirstReport(t *testing.T) {
	const tib = int64(1) << 40
	for _, c := range []struct {
		name   string
		bytes  int64
		db     bool
		weigh  float64
		waited bool
	}{
		{"of the same size", tib, false, 0, false},
		{"larger", 2 * tib, false, 2, false},
		{"with a database of its own", tib, true, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := cephtest.Healthy(t, 3, 1)
			id := mem.AddOSD(cephtest.OSDSpec{Host: "host0", Class: "ssd", Bytes: c.bytes, DB: c.db})
			if _, err := mem.Mon(t.Context(), ceph.Cmd("osd crush reweight", "name", "osd.3", "weight", ceph.Float(1))); err != nil {
				t.Fatal(err)
			}
			m, err := cephosd.New(mem).Dump(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o, _ := m.Find(id)
			s := facts{State: plan.State{ID: id, Exists: true, Up: bool(o.Up), In: bool(o.In), UUID: o.UUID}}
			s.Note = &plan.Note{UUID: "old", Replaced: o.UUID, Record: prepare.Result{ID: id}, Before: plan.Before{CrushWeight: 1, Bytes: tib}}
			s.weigh(t.Context(), &view.View{Stored: access.Cluster{Ceph: unreported{mem}}})
			if (s.Unweighed != "") != c.waited || s.Weigh != c.weigh {
				t.Errorf("weight %v, waits: %q", s.Weigh, s.Unweighed)
			}
		})
	}
}
