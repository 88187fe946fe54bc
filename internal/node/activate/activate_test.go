package activate

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
)

const (
	fsid    = "627e53b7-f65c-45df-97d0-53630004e530"
	uuid    = "f0796fd5-dc1b-4ce3-be4e-9ef64f30abc6"
	lockbox = "AgCOwAxrUkJDNiAAbrkoDKdBWjRWER7uC1v54JGttEO0VV4e5CZMhHBn5gk="
	luksKey = "the-key-that-opens-the-volumes"
)

// node has an OSD on volumes beside the old disk of the same id, a sibling, and another
// cluster's.
type node struct {
	t         *testing.T
	dir       string
	encrypted bool
	// partition: the database is a partition, not a volume.
	partition bool
	tags      string
	// label is what the disk says of itself: id, uuid, cluster.
	label [3]string
	open  map[string]bool
	lies  bool // cryptsetup ends well and opens nothing
	fail  string
	ran   []string
	fed   []string
}

func newNode(t *testing.T) *node {
	return &node{
		t: t, dir: filepath.Join(t.TempDir(), "ceph-2"), open: map[string]bool{}, label: [3]string{"2", uuid, fsid},
		tags: "ceph.block_uuid=L-block,ceph.cephx_lockbox_secret=" + lockbox + ",ceph.db_uuid=L-db,ceph.encrypted=0,ceph.osd_id=2,ceph.with_tpm=0",
	}
}

func (n *node) request() Request {
	return Request{ID: 2, UUID: uuid, FSID: fsid, Mode: "lvm", Dir: n.dir, UID: os.Getuid(), GID: os.Getgid()}
}

func (n *node) Look(context.Context) (inspect.Result, error) {
	part := func(uuid, fsid string, id int, role device.Role, vg, lv string) device.Found {
		return device.Found{
			OSD: device.OSD{ID: id, UUID: uuid, FSID: fsid, Role: role}, Mode: "lvm", Path: "/dev/" + vg + "/" + lv,
			VG: vg, LV: lv, LVUUID: "L-" + string(role), Encrypted: n.encrypted, Devices: []string{"/dev/" + vg + "-disk"},
		}
	}
	found := []device.Found{
		part("old", fsid, 2, device.RoleBlock, "ceph-old", "osd-block"),
		part("old", fsid, 2, device.RoleDB, "ceph-fast", "osd-db-old"),
		part("sibling", fsid, 3, device.RoleDB, "ceph-fast", "osd-db-3"),
		part(uuid, "another", 2, device.RoleBlock, "ceph-foreign", "osd-block"),
		part(uuid, fsid, 2, device.RoleBlock, "ceph-data", "osd-block"),
	}
	if !n.partition {
		found = append(found, part(uuid, fsid, 2, device.RoleDB, "ceph-fast", "osd-db-2"))
	}
	return inspect.Result{Found: found, Devices: []device.Device{{Name: "sdb", Path: "/dev/ceph-data-disk", Rotational: true}}}, nil
}

func (n *node) Open(lvs []request.LV) ([]crypt.Mapping, error) {
	var open []crypt.Mapping
	for _, lv := range lvs {
		if n.open[lv.UUID] {
			open = append(open, crypt.Mapping{Name: lv.UUID})
		}
	}
	return open, nil
}

// Device is the OSD's data with its label, by the path that is linked in the end.
func (n *node) Device(path string) (Device, error) {
	if want := map[bool]string{false: "/dev/ceph-data/osd-block", true: "/dev/mapper/L-block"}[n.encrypted]; path != want {
		n.t.Errorf("opened %s, not %s", path, want)
	}
	if n.label[0] == "none" {
		return nothing{bytes.NewReader(make([]byte, label.Size))}, nil
	}
	return nothing{bytes.NewReader(labelOf(n.label))}, nil
}

// labelOf is the label of an OSD's data: id, uuid, cluster.
func labelOf(l [3]string) []byte {
	str := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	body := str(make([]byte, 16+8+8), "main")
	meta := []string{"whoami", l[0], "ceph_fsid", l[2], "ready", "ready", "osd_key", "the-osds-own-key"}
	body = binary.LittleEndian.AppendUint32(body, uint32(len(meta)/2))
	for _, s := range meta {
		body = str(body, s)
	}
	b := fmt.Appendf(nil, "bluestore block device\n%-36s\n\x02\x01", l[1])
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(body))), body...)
	return append(b, make([]byte, label.Size-len(b))...)
}

// nothing is done when it is closed.
type nothing struct{ io.ReaderAt }

func (nothing) Close() error { return nil }

func (n *node) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return n.Feed(ctx, nil, name, args...)
}

func (n *node) Feed(_ context.Context, in []byte, name string, args ...string) ([]byte, error) {
	line := strings.ReplaceAll(strings.Join(append([]string{name}, args...), " "), n.dir, "DIR")
	if name == "ceph" {
		ring := args[slices.Index(args, "--keyring")+1]
		b, err := os.ReadFile(ring)
		st, _ := os.Stat(ring)
		if err != nil || !strings.Contains(string(b), lockbox) || st.Mode().Perm() != 0o600 {
			n.t.Errorf("the lockbox's keyring: %q, %v", b, err)
		}
		line = strings.Replace(line, filepath.Base(ring), "RING", 1)
	}
	n.ran = append(n.ran, line)
	if in != nil {
		n.fed = append(n.fed, string(in))
	}
	if n.fail != "" && strings.HasPrefix(line, n.fail) {
		return nil, &run.Error{Name: name, Code: 2, Err: errors.New("exit status 2")}
	}
	switch name {
	case "lvs":
		return []byte("  " + n.tags + "\n"), nil
	case "ceph":
		return []byte(luksKey + "\n"), nil
	case "blkid":
		return []byte("/dev/sdc2\n"), nil
	case "cryptsetup":
		if slices.Contains(args, "--test-passphrase") {
			break
		}
		n.open[args[slices.Index(args, "luksOpen")+2]] = !n.lies
	}
	return nil, nil
}

func (n *node) links() string {
	var all []string
	for _, l := range []string{"block", "block.db", "block.wal"} {
		if to, err := os.Readlink(filepath.Join(n.dir, l)); err == nil {
			all = append(all, l+" -> "+to)
		}
	}
	return strings.Join(all, ", ")
}

// The OSD's own volumes are made devices, and no others; nothing needs ceph-volume.
func TestPlain(t *testing.T) {
	n := newNode(t)
	for range 2 { // a second start finds what the first has left
		n.ran = nil
		if err := Run(t.Context(), n, n, n.request()); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"lvs --noheadings --options lv_tags ceph-data/osd-block",
			"lvchange --activate y ceph-data/osd-block ceph-fast/osd-db-2",
		}
		if diff := cmp.Diff(want, n.ran); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got, want := n.links(), "block -> /dev/ceph-data/osd-block, block.db -> /dev/ceph-fast/osd-db-2"; got != want {
			t.Errorf("links %s, want %s", got, want)
		}
	}
}

// rawNode has an OSD on a whole disk, and starts it without any program: also when no mon
// answers.
type rawNode struct {
	*node
	found device.Found
}

func (n rawNode) Look(context.Context) (inspect.Result, error) {
	return inspect.Result{Found: []device.Found{n.found}}, nil
}

func TestRaw(t *testing.T) {
	n := newNode(t)
	disk := device.Found{OSD: device.OSD{ID: 2, UUID: uuid, FSID: fsid, Role: device.RoleBlock}, Mode: "raw", Path: "/dev/ceph-data/osd-block", LabelSize: 5, DeviceSize: 5}
	req := n.request()
	req.Mode = "raw"
	for range 2 {
		if err := Run(t.Context(), rawNode{n, disk}, n, req); err != nil || len(n.ran) > 0 {
			t.Fatalf("%v, ran %q", err, n.ran)
		}
	}
	if got, want := n.links(), "block -> /dev/ceph-data/osd-block"; got != want {
		t.Errorf("links %s, want %s", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(n.dir, "whoami")); err != nil || string(b) != "2\n" {
		t.Errorf("whoami: %q, %v", b, err)
	}
	disk.DeviceSize = 6
	if err := Run(t.Context(), rawNode{n, disk}, n, req); err != nil || !slices.Equal(n.ran, []string{"ceph-bluestore-tool bluefs-bdev-expand --path DIR"}) {
		t.Errorf("a disk that has grown: %v, ran %q", err, n.ran)
	}
	n.label[1] = "old"
	if err := Run(t.Context(), rawNode{n, disk}, n, req); err == nil || !strings.Contains(err.Error(), "uuid old") {
		t.Errorf("a disk that was swapped after the look: %v", err)
	}
}

func TestEncrypted(t *testing.T) {
	n := newNode(t)
	n.encrypted = true
	if err := Run(t.Context(), n, n, n.request()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"lvs --noheadings --options lv_tags ceph-data/osd-block",
		"lvchange --activate y ceph-data/osd-block ceph-fast/osd-db-2",
		"ceph --name client.osd-lockbox." + uuid + " --keyring DIR/RING --connect-timeout 60 config-key get dm-crypt/osd/" + uuid + "/luks",
		"cryptsetup --key-file - --allow-discards luksOpen /dev/ceph-data/osd-block L-block",
		"cryptsetup --key-file - --allow-discards luksOpen /dev/ceph-fast/osd-db-2 L-db --perf-no_read_workqueue --perf-no_write_workqueue",
	}
	if diff := cmp.Diff(want, n.ran); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{luksKey, luksKey}, n.fed); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got, want := n.links(), "block -> /dev/mapper/L-block, block.db -> /dev/mapper/L-db"; got != want {
		t.Errorf("links %s, want %s", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(n.dir, "lockbox*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// Open mappings serve as they are, without a mon.
	n.ran, n.fail = nil, "ceph "
	if err := Run(t.Context(), n, n, n.request()); err != nil || len(n.ran) != 2 {
		t.Errorf("with open mappings: %v, ran %q", err, n.ran)
	}
}

func TestUnlock(t *testing.T) {
	n := newNode(t)
	n.encrypted, n.dir = true, t.TempDir()
	seen, _ := n.Look(t.Context())
	data := seen.Found[4]
	for range 2 { // the second time it is open
		if path, err := Unlock(t.Context(), n, n, n.dir, data); err != nil || path != "/dev/mapper/L-block" || n.open["L-db"] {
			t.Errorf("%s, %v, open %v", path, err, n.open)
		}
	}
	if len(n.fed) != 1 {
		t.Errorf("opened %d times", len(n.fed))
	}
	clear(n.open)
	for fail, other := range map[string]bool{"cryptsetup": true, "ceph": false} {
		n.fail = fail
		if _, err := Unlock(t.Context(), n, n, n.dir, data); err == nil || errors.Is(err, ErrKey) != other {
			t.Errorf("%s failed: %v", fail, err)
		}
	}
}

// The key is tried and nothing is opened; that there is no answer is not that it does not fit.
func TestFits(t *testing.T) {
	n := newNode(t)
	n.encrypted, n.dir = true, t.TempDir()
	seen, _ := n.Look(t.Context())
	if err := Fits(t.Context(), n, n.dir, seen.Found[4], "/dev/a", "/dev/b"); err != nil || len(n.open) > 0 {
		t.Errorf("%v, open %v", err, n.open)
	}
	if want := []string{"cryptsetup --key-file - --test-passphrase luksOpen /dev/a", "cryptsetup --key-file - --test-passphrase luksOpen /dev/b"}; !slices.Equal(n.ran[2:], want) {
		t.Errorf("ran %q", n.ran)
	}
	if !slices.Equal(n.fed, []string{luksKey, luksKey}) {
		t.Errorf("keys %q", n.fed)
	}
	for fail, other := range map[string]bool{"cryptsetup --key-file - --test-passphrase luksOpen /dev/b": true, "ceph": false, "lvs": false} {
		n.fail = fail
		err := Fits(t.Context(), n, n.dir, seen.Found[4], "/dev/a", "/dev/b")
		if err == nil || errors.Is(err, ErrKey) != other || strings.Contains(err.Error(), luksKey) {
			t.Errorf("%s failed: %v", fail, err)
		}
	}
}

func TestDatabaseOnAPartition(t *testing.T) {
	n := newNode(t)
	n.partition = true
	if err := Run(t.Context(), n, n, n.request()); err != nil {
		t.Fatal(err)
	}
	if got, want := n.links(), "block -> /dev/ceph-data/osd-block, block.db -> /dev/sdc2"; got != want {
		t.Errorf("links %s, want %s", got, want)
	}
	if !slices.Contains(n.ran, "blkid -t PARTUUID=L-db -o device") || !slices.Contains(n.ran, "lvchange --activate y ceph-data/osd-block") {
		t.Errorf("ran %q", n.ran)
	}
	n.fail = "blkid"
	if err := Run(t.Context(), n, n, n.request()); err == nil || !strings.Contains(err.Error(), "the db of the OSD") {
		t.Errorf("without its database: %v", err)
	}
}

// Where udev has made a link for it, no disk is read to find a partition.
func TestAPartitionByItsLink(t *testing.T) {
	n := newNode(t)
	devices := []device.Device{{Name: "sdc2", Path: "/dev/sdc2", Type: device.Partition, HasNode: true, Links: []string{"/dev/disk/by-partuuid/l-db"}}}
	p, err := partition(t.Context(), n, device.RoleDB, "L-db", devices)
	if err != nil || p.path != "/dev/sdc2" || len(n.ran) > 0 {
		t.Errorf("%+v, %v, ran %q", p, err, n.ran)
	}
}

func TestKeyInTheTPM(t *testing.T) {
	n := newNode(t)
	n.encrypted, n.tags = true, strings.Replace(n.tags, "with_tpm=0", "with_tpm=1", 1)
	if err := Run(t.Context(), n, n, n.request()); err != nil {
		t.Fatal(err)
	}
	if last := n.ran[len(n.ran)-1]; last != "ceph-volume lvm activate --no-systemd --no-tmpfs --bluestore 2 "+uuid {
		t.Errorf("ran %q", n.ran)
	}
}

// Whatever goes wrong, the OSD is not started, and no key is in what is told.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *node, r *Request)
		want   string
	}{
		"another uuid":               {func(_ *node, r *Request) { r.UUID = "other" }, "no disk of this node carries uuid other"},
		"another cluster":            {func(_ *node, r *Request) { r.FSID = "other" }, "no disk of this node"},
		"another id":                 {func(_ *node, r *Request) { r.ID = 7 }, "holds osd.2"},
		"another mode":               {func(_ *node, r *Request) { r.Mode = "raw" }, "no disk of this node"},
		"no uuid":                    {func(_ *node, r *Request) { r.UUID = "" }, "must all be known"},
		"the label is of another id": {func(n *node, _ *Request) { n.label[0] = "3" }, "the label is of another OSD: osd.3,"},
		"the label is of another":    {func(n *node, _ *Request) { n.label[1] = "old" }, "uuid old"},
		"the label is of a stranger": {func(n *node, _ *Request) { n.label[2] = "x" }, "cluster x"},
		"no tags":                    {func(n *node, _ *Request) { n.fail = "lvs" }, "reading the tags"},
		"no devices":                 {func(n *node, _ *Request) { n.fail = "lvchange" }, "activating the volumes"},
		"no lockbox":                 {func(n *node, _ *Request) { n.encrypted, n.tags = true, "ceph.encrypted=1" }, "key to its lockbox"},
		"the mons are away":          {func(n *node, _ *Request) { n.encrypted, n.fail = true, "ceph --name" }, "asking the mons"},
		"another key":                {func(n *node, _ *Request) { n.encrypted, n.fail = true, "cryptsetup" }, "the key does not fit"},
		"not opened":                 {func(n *node, _ *Request) { n.encrypted, n.lies = true, true }, "there is no mapping"},
		"no label":                   {func(n *node, _ *Request) { n.label[0] = "none" }, "no BlueStore label"},
		"a file in the link's place": {func(n *node, _ *Request) {
			n.fail = "none"
			if err := errors.Join(os.MkdirAll(n.dir, 0o700), os.WriteFile(filepath.Join(n.dir, "block"), nil, 0o600)); err != nil {
				n.t.Fatal(err)
			}
		}, "is not a link"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.request()
			c.change(n, &r)
			err := Run(t.Context(), n, n, r)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if said := fmt.Sprint(err, n.ran); strings.Contains(said, lockbox) || strings.Contains(said, luksKey) {
				t.Errorf("a key is told: %s", said)
			}
			if left, _ := filepath.Glob(filepath.Join(n.dir, "lockbox*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
