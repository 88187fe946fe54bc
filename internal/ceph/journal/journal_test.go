package journal_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/journal"
)

const uuid = "b0285c97-a0ce-11eb-8c66-0242ac110002"

func TestJournal(t *testing.T) {
	c, ctx := cephtest.Healthy(t, 3, 1), t.Context()
	if _, err := c.Mon(ctx, ceph.Cmd("osd pool create", "pool", "rbd", "pool_type", "replicated")); err != nil {
		t.Fatal(err)
	}
	set := func(namespace, name string, kv map[string]string) {
		t.Helper()
		raw := map[string][]byte{}
		for k, v := range kv {
			raw[k] = []byte(v)
		}
		if err := c.SetOmap(ctx, ceph.Object{Pool: "rbd", Namespace: namespace, Name: name}, raw); err != nil {
			t.Fatal(err)
		}
	}
	set("", "csi.volume."+uuid, map[string]string{"csi.imagename": "csi-vol-" + uuid, "csi.imageid": "3f2a", "csi.volname": "pvc-1", "csi.volume.owner": "team"})
	set("tenant", "csi.volume."+uuid, map[string]string{"csi.imagename": "x-" + uuid, "csi.volname": "pvc-2"})
	set("", "csi.volume.11111111-a0ce-11eb-8c66-0242ac110002", map[string]string{"csi.volname": "pvc-3"})
	set("", "csi.volume.group."+uuid, map[string]string{"csi.groupname": "csi-vol-group-" + uuid, "csi.volname": "group-1", "csi.creationtime": "now", "0001-b": "", "0001-a": ""})
	set("", "csi.volume.group.11111111-a0ce-11eb-8c66-0242ac110002", map[string]string{"csi.volname": "group-2"})
	r, at := journal.New(c), journal.Place{Pool: "rbd"}

	v, err := r.Volume(ctx, at, uuid)
	if d := cmp.Diff(journal.Volume{Image: "csi-vol-" + uuid, ImageID: "3f2a"}, v); d != "" || err != nil {
		t.Errorf("Volume: %v\n%s", err, d)
	}
	v, err = r.Volume(ctx, journal.Place{Pool: "rbd", Namespace: "tenant"}, uuid)
	if d := cmp.Diff(journal.Volume{Image: "x-" + uuid}, v); d != "" || err != nil {
		t.Errorf("Volume in a namespace: %v\n%s", err, d)
	}
	g, err := r.Group(ctx, at, uuid)
	if d := cmp.Diff(journal.Group{Name: "csi-vol-group-" + uuid, Volumes: []string{"0001-a", "0001-b"}}, g); d != "" || err != nil {
		t.Errorf("Group: %v\n%s", err, d)
	}
	for what, read := range map[string]func(id string) error{
		"Volume": func(id string) error { _, err := r.Volume(ctx, at, id); return err },
		"Group":  func(id string) error { _, err := r.Group(ctx, at, id); return err },
	} {
		if err := read("22222222-a0ce-11eb-8c66-0242ac110002"); !ceph.NotFound(err) {
			t.Errorf("%s without an entry: %v", what, err)
		}
		if err := read("11111111-a0ce-11eb-8c66-0242ac110002"); !errors.Is(err, journal.ErrUnfinished) || ceph.NotFound(err) {
			t.Errorf("%s that is reserved only: %v", what, err)
		}
	}
	if _, err := r.Volume(ctx, journal.Place{Pool: "nowhere"}, uuid); !ceph.NotFound(err) {
		t.Errorf("a pool that does not exist: %v", err)
	}
	for _, m := range []string{"a", "b", "c"} {
		c.StopMon(m)
	}
	if _, err := r.Volume(ctx, at, uuid); !ceph.Unreachable(err) || ceph.NotFound(err) {
		t.Errorf("without an answer: %v", err)
	}
}
