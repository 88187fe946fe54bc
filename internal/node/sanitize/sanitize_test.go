package sanitize

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

const (
	ours   = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"
	theirs = "aaaaaaaa-5c80-4051-8f99-2b3d36e8fb05"
	osd1   = "5d358cd6-fd92-46c1-b670-f3fcd440f5b6"
	osd2   = "6e358cd6-fd92-46c1-b670-f3fcd440f5b6"
)

// block writes a label as BlueStore does.
func block(uuid, description, fsid string, id int) []byte {
	str := func(b []byte, s string) []byte {
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	body := make([]byte, 16)
	body = binary.LittleEndian.AppendUint64(body, 6<<30)
	body = binary.LittleEndian.AppendUint64(body, 0)
	body = str(body, description)
	if fsid == "" {
		body = binary.LittleEndian.AppendUint32(body, 0)
	} else {
		body = binary.LittleEndian.AppendUint32(body, 2)
		body = str(str(body, "ceph_fsid"), fsid)
		body = str(str(body, "whoami"), fmt.Sprint(id))
	}
	b := []byte("bluestore block device\n" + uuid + "\n")
	b = append(b, 2, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	return append(b, make([]byte, label.Size-len(b))...)
}

// host is a directory that stands for a machine.
type host struct {
	t     *testing.T
	dir   string
	found []device.Found
	devs  []device.Device
	bad   map[string]error
	runs  []string
	// later is what lvs finds, where that is not what was found before.
	later []device.Found
	// then is called for each program.
	then func(name string, args []string) error
}

func newHost(t *testing.T) *host {
	h := &host{t: t, dir: t.TempDir()}
	for _, d := range []string{"dev/mapper", "data"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *host) Look(context.Context) (inspect.Result, error) {
	return inspect.Result{Devices: h.devs, Found: h.found, Unreadable: h.bad}, nil
}

func (h *host) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	if name == "lvs" {
		return h.lvs(), nil
	}
	h.runs = append(h.runs, strings.Join(append([]string{name}, args...), " "))
	if h.then != nil {
		if err := h.then(name, args); err != nil {
			return nil, err
		}
	}
	value := func(flag string) string {
		for _, a := range args {
			if v, ok := strings.CutPrefix(a, flag+"="); ok {
				return v
			}
		}
		return ""
	}
	switch name {
	case "ceph-mon":
		store := filepath.Join(value("--mon-data"), "store.db/000008.sst")
		fsid, err := os.ReadFile(store)
		if err != nil {
			return nil, err
		}
		// As the real one: what is opened is written to.
		if err := os.WriteFile(filepath.Join(filepath.Dir(store), "CURRENT"), []byte("changed"), 0o600); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(value("--extract-monmap"), fsid, 0o600)
	case "monmaptool":
		fsid, err := os.ReadFile(args[1])
		return []byte("monmaptool: monmap file\nepoch 1\nfsid " + string(fsid) + "\nlast_changed x\n"), err
	}
	return nil, nil
}

// lvs lists the volumes that were found, or what they are by now.
func (h *host) lvs() []byte {
	found := h.found
	if h.later != nil {
		found = h.later
	}
	var lines []string
	for _, f := range found {
		if f.Mode == "lvm" {
			tags := fmt.Sprintf("ceph.osd_fsid=%s,ceph.osd_id=%d,ceph.cluster_fsid=%s,ceph.type=%s", f.UUID, f.ID, f.FSID, f.Role)
			lines = append(lines, fmt.Sprintf(`{"vg_name":%q,"lv_name":%q,"lv_uuid":%q,"lv_size":"5","lv_tags":%q,"lv_path":%q,"devices":""}`, f.VG, f.LV, f.LVUUID, tags, f.Path))
		}
	}
	return []byte(`{"report":[{"lv":[` + strings.Join(lines, ",") + `]}]}`)
}

func (h *host) clean(req task.Request) task.Report {
	h.t.Helper()
	r, err := h.host().Clean(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *host) host() Host {
	return Host{Root: filepath.Join(h.dir, "data"), Dev: h.dir, Node: h, Run: h}
}

func request(osds ...task.OSD) task.Request {
	return task.Request{FSID: ours, Namespace: "rook-ceph", DataDir: "/var/lib/rook", OSDs: osds, Method: task.Quick, Source: task.Zero, Iterations: 1}
}

// disk plugs a sparse disk in and puts blocks at offsets.
func (h *host) disk(name string, size int64, blocks map[int64][]byte) string {
	h.t.Helper()
	p := filepath.Join(h.dir, "dev", name)
	f, err := os.Create(p)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(size); err != nil {
		h.t.Skipf("no sparse file of %d bytes here: %v", size, err)
	}
	for at, b := range blocks {
		if _, err := f.WriteAt(b, at); err != nil {
			h.t.Fatal(err)
		}
	}
	h.devs = append(h.devs, device.Device{Name: name, Path: "/dev/" + name, Type: device.Disk, Size: uint64(size), HasNode: true})
	return p
}

func (h *host) finds(name, mode, uuid, fsid string, id int, role device.Role) *device.Found {
	h.found = append(h.found, device.Found{OSD: device.OSD{ID: id, UUID: uuid, FSID: fsid, Role: role}, Path: "/dev/" + name, Mode: mode})
	return &h.found[len(h.found)-1]
}

func (h *host) read(p string, at int64, n int) []byte {
	h.t.Helper()
	f, err := os.Open(p)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil {
		h.t.Fatal(err)
	}
	return b
}

func outcomes(r task.Report) map[string]task.Outcome {
	m := map[string]task.Outcome{}
	for _, i := range r.Items {
		m[i.What+" "+i.Where] = i.Outcome
	}
	return m
}

func zero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

func TestQuickWipesLabelsWithAllTheirCopiesAndBothEnds(t *testing.T) {
	h := newHost(t)
	l, data := block(osd1, "main", ours, 1), []byte("somebody's data")
	const size = 1001 << 30
	p := h.disk("sdb", size, map[int64][]byte{
		0: l, 1 << 30: l, 10 << 30: block(osd2, "main", ours, 1), 100 << 30: data, 1000 << 30: l,
		8 << 20: data, size - 512: data, 500 << 30: data,
	})
	h.finds("sdb", "raw", osd1, ours, 1, device.RoleBlock)
	r := h.clean(request(task.OSD{ID: 1, UUID: osd1}))
	if diff := cmp.Diff(map[string]task.Outcome{"osd.1 /dev/sdb": task.Cleaned}, outcomes(r)); diff != "" {
		t.Fatalf("(-want +got):\n%s\n%v", diff, r)
	}
	for at, gone := range map[int64]bool{
		0: true, 8 << 20: true, size - 512: true, 1 << 30: true, 1000 << 30: true,
		10 << 30: false, 100 << 30: false, 500 << 30: false, // not this OSD's label: quick leaves data
	} {
		if got := zero(h.read(p, at, 15)); got != gone {
			t.Errorf("byte %d: zero %v", at, got)
		}
	}
}

func TestCompleteOverwritesEverything(t *testing.T) {
	for _, src := range []string{task.Zero, task.Random} {
		h := newHost(t)
		const size = 41<<20 + 512
		p := h.disk("sdb", size, map[int64][]byte{0: block(osd1, "main", ours, 1)})
		h.finds("sdb", "raw", osd1, ours, 1, device.RoleBlock)
		fill := make([]byte, size-label.Size)
		for i := range fill {
			fill[i] = 0xAA
		}
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(fill, label.Size); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		req := request(task.OSD{ID: 1, UUID: osd1})
		req.Method, req.Source, req.Iterations = task.Complete, src, 2
		if r := h.clean(req); len(r.Failures()) > 0 {
			t.Fatal(r)
		}
		b := h.read(p, 0, size)
		middle := b[edge : size-edge]
		if !zero(b[:edge]) || !zero(b[size-edge:]) || zero(middle) != (src == task.Zero) {
			t.Errorf("%s: the ends or the middle are not as they should be", src)
		}
		for i := 0; i+8 <= len(middle); i += 4096 {
			if string(middle[i:i+8]) == strings.Repeat("\xAA", 8) {
				t.Fatalf("%s: the old data is still there at %d", src, edge+i)
			}
		}
	}
}

// The disk was given to somebody else between the look and the opening.
func TestADiskThatIsNotTheClustersIsNotTouched(t *testing.T) {
	for name, c := range map[string]struct {
		on         []byte
		mode, fsid string
		want       task.Outcome
	}{
		"another cluster's":      {block(osd1, "main", theirs, 1), "raw", theirs, task.Absent},
		"another cluster by now": {block(osd1, "main", theirs, 1), "raw", ours, task.Failed},
		"another OSD by now":     {block(osd2, "main", ours, 2), "raw", ours, task.Failed},
		"no label any more":      {[]byte("a file system"), "raw", ours, task.Failed},
		"a database by now":      {block(osd1, "bluefs db", "", -1), "raw", ours, task.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.disk("sdb", 64<<20, map[int64][]byte{0: c.on})
			h.finds("sdb", c.mode, osd1, c.fsid, 1, device.RoleBlock)
			r := h.clean(request(task.OSD{ID: 1, UUID: osd1}))
			if r.Items[0].Outcome != c.want {
				t.Errorf("%v", r)
			}
			if string(h.read(p, 0, len(c.on))) != string(c.on) {
				t.Error("the disk was written to")
			}
		})
	}
}

func TestADatabaseIsKnownByItsOSD(t *testing.T) {
	h := newHost(t)
	h.disk("sdb", 64<<20, map[int64][]byte{0: block(osd1, "main", ours, 1)})
	mine := h.disk("nvme0n1p1", 64<<20, map[int64][]byte{0: block(osd1, "bluefs db", "", -1)})
	other := h.disk("nvme0n1p2", 64<<20, map[int64][]byte{0: block(osd2, "bluefs db", "", -1)})
	h.finds("sdb", "raw", osd1, ours, 1, device.RoleBlock)
	h.finds("nvme0n1p1", "raw", osd1, "", -1, device.RoleDB)
	h.finds("nvme0n1p2", "raw", osd2, "", -1, device.RoleDB)
	r := h.clean(request())
	if diff := cmp.Diff(map[string]task.Outcome{"osd.1 /dev/sdb": task.Cleaned, "db of osd.1 /dev/nvme0n1p1": task.Cleaned}, outcomes(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !zero(h.read(mine, 0, 64)) || zero(h.read(other, 0, 64)) {
		t.Error("the wrong database was wiped")
	}
}

func TestMissingOSDs(t *testing.T) {
	h := newHost(t)
	r := h.clean(request(task.OSD{ID: 1, UUID: osd1}))
	if r.Items[0].Outcome != task.Absent {
		t.Errorf("%v", r)
	}
	h.bad = map[string]error{"sdc": errors.New("no answer within 10s")}
	r = h.clean(request(task.OSD{ID: 1, UUID: osd1}))
	if r.Items[0].Outcome != task.Failed || !strings.Contains(r.Items[0].Message, "sdc: no answer") {
		t.Errorf("%v", r)
	}
}

func TestVolumes(t *testing.T) {
	const lv = "TGhIGb-7saw-2ZSa-vETE-07lr-1jhE-tejScT"
	h := newHost(t)
	h.disk("mapper/vg-lv", 2<<30, map[int64][]byte{0: block(osd1, "main", ours, 1), 1 << 30: block(osd1, "main", ours, 1)})
	p := filepath.Join(h.dir, "dev/mapper/vg-lv")
	f := h.finds("vg/lv", "lvm", osd1, ours, 1, device.RoleBlock)
	f.VG, f.LV, f.LVUUID = "vg", "lv", lv
	h.then = func(name string, args []string) error {
		if name == "ceph-volume" && slices.Contains(args, osd1) {
			h.found = nil
		}
		return nil
	}
	if r := h.clean(request(task.OSD{ID: 1, UUID: osd1})); len(r.Failures()) > 0 {
		t.Errorf("%v", r)
	}
	if diff := cmp.Diff([]string{"ceph-volume lvm zap --destroy --osd-fsid " + osd1}, h.runs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !zero(h.read(p, 1<<30, 64)) {
		t.Error("the copy of the label is still there")
	}
}

// An encrypted volume's mapping is closed first; its inside, which is listed as a
// raw OSD, is not a disk of its own.
func TestEncryptedVolumes(t *testing.T) {
	const lv = "TGhIGb-7saw-2ZSa-vETE-07lr-1jhE-tejScT"
	h := newHost(t)
	h.disk("mapper/vg-lv", 64<<20, map[int64][]byte{0: []byte("LUKS")})
	h.disk("mapper/"+lv, 64<<20, map[int64][]byte{0: block(osd1, "main", ours, 1)})
	f := h.finds("mapper/vg-lv", "lvm", osd1, ours, 1, device.RoleBlock)
	f.VG, f.LV, f.LVUUID, f.Encrypted = "vg", "lv", lv, true
	h.finds("mapper/"+lv, "raw", osd1, ours, 1, device.RoleBlock)
	r := h.clean(request(task.OSD{ID: 1, UUID: osd1}))
	if diff := cmp.Diff([]string{"cryptsetup close " + lv, "ceph-volume lvm zap --destroy --osd-fsid " + osd1}, h.runs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The listing still has it: success is not believed.
	if len(r.Failures()) != 1 || !strings.Contains(r.Failures()[0].Message, "still there") {
		t.Errorf("%v", r)
	}
}

func TestAVolumeThatIsNotOursIsNotZapped(t *testing.T) {
	h := newHost(t)
	h.disk("mapper/vg-lv", 64<<20, nil)
	h.finds("mapper/vg-lv", "lvm", osd1, theirs, 1, device.RoleBlock)
	h.clean(request(task.OSD{ID: 1, UUID: osd1}))
	if len(h.runs) > 0 {
		t.Errorf("ran %v", h.runs)
	}
}

func TestOnePathOfAMultipathDisk(t *testing.T) {
	h := newHost(t)
	l := block(osd1, "main", ours, 1)
	h.disk("sdb", 64<<20, map[int64][]byte{0: l})
	h.disk("dm-0", 64<<20, map[int64][]byte{0: l})
	h.devs[0].Children, h.devs[1].Type = []string{"dm-0"}, device.Multipath
	h.finds("sdb", "raw", osd1, ours, 1, device.RoleBlock)
	h.finds("dm-0", "raw", osd1, ours, 1, device.RoleBlock)
	if diff := cmp.Diff(map[string]task.Outcome{"osd.1 /dev/dm-0": task.Cleaned}, outcomes(h.clean(request()))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAWipeThatWasCutOffIsFoundAgain(t *testing.T) {
	h := newHost(t)
	p := h.disk("sdb", 64<<20, map[int64][]byte{0: block(osd1, "main", ours, 1)})
	h.finds("sdb", "raw", osd1, ours, 1, device.RoleBlock)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := h.host().Clean(ctx, request(task.OSD{ID: 1, UUID: osd1}))
	if err != nil || len(r.Failures()) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	if zero(h.read(p, 0, 64)) {
		t.Error("the label went before the rest was done")
	}
}

func (h *host) mkdir(p string) string {
	h.t.Helper()
	d := filepath.Join(h.dir, "data", p)
	if err := os.MkdirAll(d, 0o755); err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *host) touch(p string) string {
	h.t.Helper()
	h.mkdir(filepath.Dir(p))
	f := filepath.Join(h.dir, "data", p)
	if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return f
}

func there(p string) bool { _, err := os.Lstat(p); return err == nil }

func TestDirectories(t *testing.T) {
	h := newHost(t)
	mon := func(id, fsid string) string {
		h.touch("mon-" + id + "/data/store.db/LOCK")
		h.touch("mon-" + id + "/data/store.db/CURRENT")
		if err := os.WriteFile(h.touch("mon-"+id+"/data/store.db/000008.sst"), []byte(fsid), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(h.dir, "data", "mon-"+id)
	}
	a, b := mon("a", ours), mon("b", theirs)
	half := h.mkdir("mon-c/data")
	odd := h.touch("mon-d/data/keyring")
	used := mon("e", ours)
	outside := filepath.Join(h.dir, "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{"data/mon-f", "data/mon-a/data/link"} {
		if err := os.Symlink(outside, filepath.Join(h.dir, l)); err != nil {
			t.Fatal(err)
		}
	}
	h.touch("rook-ceph/log/ceph-osd.1.log")
	h.touch("rook-ceph/" + ours + "_" + osd1 + "/whoami")
	foreign := h.touch("rook-ceph/" + theirs + "_" + osd2 + "/whoami")
	user := h.touch("other/file")
	lock := holdLock(t, filepath.Join(used, "data/store.db/LOCK"))
	live := listen(t, filepath.Join(h.mkdir("exporter"), "ceph-mon.z.asok"))
	h.touch("exporter/old.asok")

	req := request()
	req.Mons = []string{"a", "g"}
	want := map[string]task.Outcome{
		"mon.a /var/lib/rook/mon-a": task.Cleaned, "mon.b /var/lib/rook/mon-b": task.Left, "mon.c /var/lib/rook/mon-c": task.Cleaned,
		"mon.d /var/lib/rook/mon-d": task.Failed, "mon.e /var/lib/rook/mon-e": task.Failed, "mon.g ": task.Absent,
		"directory /var/lib/rook/rook-ceph/" + theirs + "_" + osd2: task.Left, "directory /var/lib/rook/rook-ceph": task.Cleaned,
		"directory /var/lib/rook/exporter": task.Left,
	}
	r := h.clean(req)
	if diff := cmp.Diff(want, outcomes(r)); diff != "" {
		t.Errorf("(-want +got):\n%s\n%v", diff, r)
	}
	for p, stays := range map[string]bool{a: false, half: false, b: true, odd: true, used: true, foreign: true, user: true, outside: true,
		filepath.Join(h.dir, "data/rook-ceph/log"): false, filepath.Join(h.dir, "data/exporter/old.asok"): false, filepath.Join(h.dir, "data/mon-f"): true} {
		if there(p) != stays {
			t.Errorf("%s: there %v", p, there(p))
		}
	}
	if b, err := os.ReadFile(filepath.Join(b, "data/store.db/CURRENT")); err != nil || string(b) != "x" {
		t.Errorf("another cluster's store was written to: %s, %v", b, err)
	}
	if there(filepath.Join(h.dir, "data", scratch)) {
		t.Error("the copy of a store is left")
	}
	// Freed, it goes at the next try.
	lock()
	live()
	if err := os.Remove(odd); err != nil {
		t.Fatal(err)
	}
	if r := h.clean(req); len(r.Failures()) > 0 || there(used) || there(filepath.Join(h.dir, "data/exporter")) {
		t.Errorf("%v", r)
	}
	for _, line := range h.runs {
		if strings.HasPrefix(line, "ceph-mon ") && !strings.Contains(line, " --setuser-match-path=") {
			t.Errorf("a store is opened as another user than its owner: %s", line)
		}
	}
}

// holdLock locks a file in another process, as a running mon does.
func holdLock(t *testing.T, name string) (free func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=TestHelperLock")
	cmd.Env = append(os.Environ(), "LOCK_FILE="+name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	free = func() { _ = in.Close(); _ = cmd.Wait() }
	t.Cleanup(free)
	return free
}

func TestHelperLock(t *testing.T) {
	name := os.Getenv("LOCK_FILE")
	if name == "" {
		t.Skip("it is the other process of TestDirectories")
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("locked")
	_, _ = io.ReadAll(os.Stdin)
}

func listen(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Skipf("no sockets here: %v", err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close() }
}

func TestARequestThatMakesNoSenseDoesNothing(t *testing.T) {
	for name, change := range map[string]func(*task.Request){
		"no fsid":       func(r *task.Request) { r.FSID = "" },
		"no namespace":  func(r *task.Request) { r.Namespace = "" },
		"parent":        func(r *task.Request) { r.Namespace = ".." },
		"subdirectory":  func(r *task.Request) { r.Namespace = "a/b" },
		"method":        func(r *task.Request) { r.Method = "fast" },
		"source":        func(r *task.Request) { r.Source = "ones" },
		"no iterations": func(r *task.Request) { r.Iterations = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			keep := h.touch("rook-ceph/log/x")
			req := request()
			change(&req)
			if _, err := h.host().Clean(t.Context(), req); err == nil || !there(keep) {
				t.Errorf("%v, there %v", err, there(keep))
			}
		})
	}
}

// On a real block device the kernel says who holds it.
func TestADeviceInUseIsNotTouched(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loop devices need root")
	}
	img := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(img, append(block(osd1, "main", ours, 1), make([]byte, 64<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", img).Output()
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", dev).Run() })
	holder, err := os.OpenFile(dev, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	h := newHost(t)
	h.finds(strings.TrimPrefix(dev, "/dev/"), "raw", osd1, ours, 1, device.RoleBlock)
	clean := func() task.Report {
		host := h.host()
		host.Dev = ""
		r, err := host.Clean(t.Context(), request(task.OSD{ID: 1, UUID: osd1}))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := clean()
	if len(r.Failures()) != 1 || !strings.Contains(r.Failures()[0].Message, "held by somebody") {
		t.Fatalf("%v", r)
	}
	if _, err := label.Read(holder); err != nil {
		t.Fatalf("the label of a disk in use is gone: %v", err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if r := clean(); len(r.Failures()) > 0 {
		t.Fatalf("%v", r)
	}
	b, err := os.ReadFile(img)
	if err != nil || !zero(b[:edge]) {
		t.Errorf("the label is still in the image: %v", err)
	}
}
