package activate

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
)

const (
	fsid = "627e53b7-f65c-45df-97d0-53630004e530"
	uuid = "f0796fd5-dc1b-4ce3-be4e-9ef64f30abc6"
)

// node has an OSD with its database on a shared device, beside the old disk of the same
// id and a sibling.
type node struct {
	ran  []string
	fail string
}

func (n *node) Look(context.Context) (inspect.Result, error) {
	part := func(uuid, fsid string, id int, role device.Role, vg, lv string) device.Found {
		return device.Found{OSD: device.OSD{ID: id, UUID: uuid, FSID: fsid, Role: role}, Mode: "lvm", Path: "/dev/" + vg + "/" + lv, VG: vg, LV: lv}
	}
	return inspect.Result{Found: []device.Found{
		part("old", fsid, 2, device.RoleBlock, "ceph-old", "osd-block"),
		part("sibling", fsid, 3, device.RoleDB, "ceph-fast", "osd-db-3"),
		part(uuid, fsid, 2, device.RoleDB, "ceph-fast", "osd-db-2"),
		part(uuid, fsid, 2, device.RoleBlock, "ceph-data", "osd-block"),
		part(uuid, "another", 2, device.RoleBlock, "ceph-foreign", "osd-block"),
	}}, nil
}

func (n *node) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	n.ran = append(n.ran, name+" "+strings.Join(args, " "))
	if name == n.fail {
		return nil, os.ErrDeadlineExceeded
	}
	return nil, nil
}

// After a restart of the node the OSD's own volumes are made devices first, and no
// others: one that is broken beside them must not keep it down.
func TestVolumesAreActivated(t *testing.T) {
	n := &node{}
	req := Request{ID: 2, UUID: uuid, FSID: fsid, Mode: "lvm", Dir: filepath.Join(t.TempDir(), "ceph-2"), UID: os.Getuid(), GID: os.Getgid()}
	if err := Run(t.Context(), n, n, req); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"lvchange --activate y ceph-data/osd-block ceph-fast/osd-db-2",
		"ceph-volume lvm activate --no-systemd --no-tmpfs --bluestore 2 " + uuid,
	}
	if diff := cmp.Diff(want, n.ran); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, fails := range []string{"lvchange", "ceph-volume"} {
		if err := Run(t.Context(), n, &node{fail: fails}, req); err == nil {
			t.Errorf("%s failed, and the OSD was activated", fails)
		}
	}
}

func TestNothingIsActivatedWithoutProof(t *testing.T) {
	for name, change := range map[string]func(r *Request){
		"another uuid":    func(r *Request) { r.UUID = "other" },
		"another cluster": func(r *Request) { r.FSID = "other" },
		"another id":      func(r *Request) { r.ID = 7 },
		"another mode":    func(r *Request) { r.Mode = "raw" },
		"no uuid":         func(r *Request) { r.UUID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{}
			req := Request{ID: 2, UUID: uuid, FSID: fsid, Mode: "lvm", Dir: filepath.Join(t.TempDir(), "d"), UID: os.Getuid(), GID: os.Getgid()}
			change(&req)
			if err := Run(t.Context(), n, n, req); err == nil || len(n.ran) > 0 {
				t.Errorf("%v, ran %q", err, n.ran)
			}
		})
	}
}
