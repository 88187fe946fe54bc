package rawosd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/run"
)

const (
	fsid = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"
	key  = "AgA-this-is-the-key-of-an-OSD-and-nobody-may-see-it-anywhere"
	size = 3 << 30
)

// encode is a label as BlueStore writes it.
func encode(uuid string, meta map[string]string) []byte {
	le := binary.LittleEndian
	str := func(b []byte, s string) []byte { return append(le.AppendUint32(b, uint32(len(s))), s...) }
	body := make([]byte, 16) // the uuid as bytes
	body = le.AppendUint64(body, size)
	body = le.AppendUint64(body, 0) // time
	body = str(body, "main")
	body = le.AppendUint32(body, uint32(len(meta)))
	for k, v := range meta {
		body = str(str(body, k), v)
	}
	out := append([]byte("bluestore block device\n"+uuid+"\n"), 2, 1)
	out = le.AppendUint32(out, uint32(len(body)))
	out = append(out, body...)
	return append(out, make([]byte, label.Size-len(out))...)
}

// world is a node with one disk, and Ceph.
type world struct {
	t    *testing.T
	root string
	// osds that Ceph knows: id to uuid; ran are those that have booted.
	osds map[int]string
	ran  map[int]bool
	// args are all that was run; fail says what fails at which program's nth call.
	args  []string
	calls map[string]int
	fail  func(program string, n int) error
	// die is called before and after each outside effect: a panic is a crash.
	die   func()
	notes []Begun
	// second is where mkfs leaves a copy of the label.
	second int64
}

type crash struct{}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), osds: map[int]string{0: "other"}, ran: map[int]bool{0: true}, calls: map[string]int{}, second: 1 << 30, die: func() {}}
	if err := os.MkdirAll(filepath.Join(w.root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.root, "dev/sdb"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(w.root, "dev/sdb"), size); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) Get(context.Context) ([]Begun, error) { return slices.Clone(w.notes), nil }

func (w *world) Set(_ context.Context, b []Begun) error {
	w.die()
	w.notes = slices.Clone(b)
	w.die()
	return nil
}

func (w *world) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return w.Feed(ctx, nil, name, args...)
}

func (w *world) Feed(_ context.Context, in []byte, name string, args ...string) ([]byte, error) {
	w.args = append(w.args, name+" "+strings.Join(args, " "))
	w.calls[name]++
	if w.fail != nil {
		if err := w.fail(name, w.calls[name]); err != nil {
			return nil, err
		}
	}
	w.die()
	defer w.die()
	switch name {
	case "ceph-authtool":
		return []byte(key + "\n"), nil
	case "ceph":
		i := slices.Index(args, "osd")
		if args[i+1] == "new" && len(args) == i+4 {
			return w.osdRenew(in, args[i+2], args[i+3])
		}
		if args[i+1] == "new" {
			return w.osdNew(in, args[i+2])
		}
		return nil, w.purgeNew(args[i+1:])
	case "ceph-osd":
		return nil, w.mkfs(in, args)
	}
	return nil, fmt.Errorf("%s is not there", name)
}

func (w *world) osdNew(in []byte, uuid string) ([]byte, error) {
	if in != nil {
		var s map[string]string
		if err := json.Unmarshal(in, &s); err != nil || s["cephx_secret"] != key {
			w.t.Errorf("secrets %q: %v", in, err)
		}
	}
	for id, u := range w.osds {
		if u == uuid {
			return fmt.Appendln(nil, id), nil
		}
	}
	for id := 0; ; id++ {
		if w.osds[id] == "" {
			w.osds[id] = uuid
			return fmt.Appendln(nil, id), nil
		}
	}
}

// osdRenew claims an id; what is destroyed has an empty uuid here.
func (w *world) osdRenew(in []byte, uuid, want string) ([]byte, error) {
	var s map[string]string
	if err := json.Unmarshal(in, &s); err != nil || s["cephx_secret"] != key || s["crush_device_class"] != "ssd" {
		w.t.Errorf("secrets %q: %v", in, err)
	}
	id, err := strconv.Atoi(want)
	if old, exists := w.osds[id]; err != nil || exists && old != "" {
		return nil, &run.Error{Name: "ceph", Code: 22, Err: fmt.Errorf("id %s already in use and does not match uuid %s", want, uuid)}
	}
	w.osds[id] = uuid
	return fmt.Appendln(nil, id), nil
}

func (w *world) purgeNew(args []string) error {
	var id int
	if _, err := fmt.Sscanf(strings.Join(args, " "), "purge-new osd.%d --yes-i-really-mean-it", &id); err != nil {
		w.t.Errorf("purge-new: %q", args)
	}
	if w.ran[id] {
		return errors.New("osd is not new")
	}
	delete(w.osds, id)
	return nil
}

func (w *world) mkfs(in []byte, args []string) error {
	arg := func(name string) string { return args[slices.Index(args, name)+1] }
	dir := filepath.Join(w.root, arg("--osd-data"))
	ring, err := os.ReadFile(filepath.Join(dir, "keyring"))
	if err != nil || !strings.Contains(string(ring), "[osd."+arg("-i")+"]") || !strings.Contains(string(ring), key) || string(in) != key {
		w.t.Errorf("mkfs without its key: %v", err)
	}
	dev, err := os.Readlink(filepath.Join(dir, "block"))
	if err != nil {
		w.t.Fatal(err)
	}
	meta := map[string]string{}
	w.write(dev, encode(arg("--osd-uuid"), meta), 0)
	w.write(dev, encode(arg("--osd-uuid"), meta), w.second)
	w.die()
	meta["whoami"], meta["ceph_fsid"], meta["osd_key"] = arg("-i"), fsid, key
	w.write(dev, encode(arg("--osd-uuid"), meta), 0)
	w.die()
	meta["ready"] = "ready"
	w.write(dev, encode(arg("--osd-uuid"), meta), 0)
	return nil
}

func (w *world) write(dev string, b []byte, at int64) {
	f, err := os.OpenFile(filepath.Join(w.root, dev), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b, at)
		_ = f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// maker is a new process on the node.
func (w *world) maker() *Maker {
	return &Maker{Run: w, Notes: w, Root: w.root, FSID: fsid, UID: os.Getuid(), GID: os.Getgid(), Random: rand.NewChaCha8([32]byte{byte(len(w.args))})}
}

func (w *world) disk() device.Device {
	return device.Device{Name: "sdb", Path: "/dev/sdb", Type: device.Disk, Size: size, Links: []string{"/dev/disk/by-id/wwn-1"}}
}

func (w *world) at(offset int64) (label.Label, error) {
	w.t.Helper()
	f, err := os.Open(filepath.Join(w.root, "dev/sdb"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, label.Size)
	if _, err := f.ReadAt(b, offset); err != nil {
		w.t.Fatal(err)
	}
	return label.Parse(b)
}

// nodeRun is what provisioning does: settle, and make an OSD of a blank disk.
func (w *world) nodeRun(ctx context.Context) error {
	m := w.maker()
	for _, p := range m.Settle(ctx, []device.Device{w.disk()}) {
		return errors.New(p)
	}
	if _, err := w.at(0); !errors.Is(err, label.ErrNone) {
		return nil
	}
	return m.Make(ctx, w.disk(), "ssd")
}

// check that there is one OSD, finished, that Ceph knows, and nothing else.
func (w *world) check() {
	w.t.Helper()
	l, err := w.at(0)
	if err != nil || !l.Ready || l.ID < 1 || w.osds[l.ID] != l.UUID {
		w.t.Errorf("label %+v, %v; Ceph knows %v", l, err, w.osds)
	}
	if len(w.osds) != 2 {
		w.t.Errorf("Ceph knows %v", w.osds)
	}
	if copied, err := w.at(w.second); err != nil || copied.UUID != l.UUID {
		w.t.Errorf("a copy of the label is of %q: %v", copied.UUID, err)
	}
	if len(w.notes) != 0 {
		w.t.Errorf("notes %v", w.notes)
	}
	for _, a := range w.args {
		if strings.Contains(a, key) {
			w.t.Errorf("a key is an argument: %s", a)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(w.root, Dir, "*/keyring")); len(left) > 0 {
		w.t.Errorf("keys are left in %v", left)
	}
}

func TestMake(t *testing.T) {
	w := newWorld(t)
	if err := w.nodeRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.check()
	if want := []string{"ceph-authtool", "ceph", "ceph-osd"}; len(w.args) != len(want) {
		t.Errorf("ran %q, want one each of %q", w.args, want)
	}
	if err := w.nodeRun(t.Context()); err != nil || len(w.args) != 3 {
		t.Errorf("a second run: %v, ran %q", err, w.args[3:])
	}
}

// Whatever fails, nothing is left behind, and the next run makes the OSD.
func TestFailure(t *testing.T) {
	for _, program := range []string{"ceph-authtool", "ceph", "ceph-osd"} {
		t.Run(program, func(t *testing.T) {
			w := newWorld(t)
			w.fail = func(p string, n int) error {
				if p == program && n == 1 {
					return &run.Error{Name: p, Code: 1, Err: errors.New("exit status 1")}
				}
				return nil
			}
			if err := w.nodeRun(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 1") {
				t.Errorf("first run: %v", err)
			}
			if len(w.osds) != 1 || len(w.notes) != 0 {
				t.Errorf("Ceph knows %v, notes %v", w.osds, w.notes)
			}
			if err := w.nodeRun(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.check()
		})
	}
}

// A lock that udevd holds for a moment is waited for.
func TestLockedForAMoment(t *testing.T) {
	w := newWorld(t)
	w.fail = func(p string, n int) error {
		if p == "ceph-osd" && n == 1 {
			return &run.Error{Name: p, Code: 11, Err: errors.New("exit status 11")}
		}
		return nil
	}
	if err := w.nodeRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.check()
}

// A crash at any moment, and another run, come to one OSD.
func TestCrash(t *testing.T) {
	total := 0
	for k := 1; ; k++ {
		w := newWorld(t)
		n := 0
		w.die = func() {
			if n++; n == k {
				panic(crash{})
			}
		}
		crashed := func() (crashed bool) {
			defer func() {
				if v := recover(); v != nil {
					if _, ok := v.(crash); !ok {
						panic(v)
					}
					crashed = true
				}
			}()
			if err := w.nodeRun(t.Context()); err != nil {
				t.Errorf("crash at %d: %v", k, err)
			}
			return false
		}()
		if !crashed {
			w.check()
			break
		}
		total++
		w.die = func() {}
		if err := w.nodeRun(t.Context()); err != nil {
			t.Errorf("run after a crash at %d: %v", k, err)
		}
		w.check()
	}
	if total < 12 {
		t.Errorf("only %d moments", total)
	}
	t.Logf("crashed at %d moments", total)
}

// A destroyed OSD is made anew under its id, in three programs, and nothing is noted.
func TestRenew(t *testing.T) {
	const uuid = "11111111-2222-8333-8444-555555555555"
	w := newWorld(t)
	w.osds[5] = ""
	if err := w.maker().Renew(t.Context(), w.disk(), 5, uuid, "ssd"); err != nil {
		t.Fatal(err)
	}
	if l, err := w.at(0); err != nil || l.ID != 5 || l.UUID != uuid || !l.Ready || w.osds[5] != uuid || len(w.args) != 3 {
		t.Errorf("label %+v, %v; Ceph knows %v; ran %q", l, err, w.osds, w.args)
	}
	if err := w.maker().Renew(t.Context(), w.disk(), 0, uuid, "ssd"); err == nil || w.osds[0] != "other" {
		t.Errorf("over a live OSD: %v, %v", err, w.osds)
	}
	if err := w.maker().Renew(t.Context(), w.disk(), -1, uuid, "ssd"); err == nil {
		t.Error("without an id")
	}
	for _, a := range w.args {
		if strings.Contains(a, key) {
			t.Errorf("a key is an argument: %s", a)
		}
	}
}

// The store of an OSD in a destroyed one's place is checked before it is said to be made;
// that of a new one, which nobody waits for with data, is not.
func TestWhichStoresAreChecked(t *testing.T) {
	checked := func(w *world) bool {
		mkfs := slices.IndexFunc(w.args, func(a string) bool { return strings.Contains(a, "--mkfs") })
		if mkfs < 0 {
			t.Fatalf("no store was made: %q", w.args)
		}
		return !strings.Contains(w.args[mkfs], "--bluestore-fsck-on-mkfs=false")
	}
	fresh, renewed := newWorld(t), newWorld(t)
	renewed.osds[5] = ""
	if err := errors.Join(fresh.maker().Make(t.Context(), fresh.disk(), "ssd"), renewed.maker().Renew(t.Context(), renewed.disk(), 5, "11111111-2222-8333-8444-555555555555", "ssd")); err != nil {
		t.Fatal(err)
	}
	if checked(fresh) || !checked(renewed) {
		t.Errorf("checked: a new OSD's store %v, a renewed one's %v", checked(fresh), checked(renewed))
	}
}

// When mkfs fails, the id stays claimed, with its weight and place, and is not purged.
func TestRenewFails(t *testing.T) {
	w := newWorld(t)
	w.osds[5] = ""
	w.fail = func(p string, _ int) error {
		if p == "ceph-osd" {
			return &run.Error{Name: p, Code: 1, Err: errors.New("exit status 1")}
		}
		return nil
	}
	if err := w.maker().Renew(t.Context(), w.disk(), 5, "11111111-2222-8333-8444-555555555555", "ssd"); err == nil {
		t.Error("no error")
	}
	if w.osds[5] == "" || w.calls["ceph"] != 1 || len(w.notes) != 0 {
		t.Errorf("Ceph knows %v, ran %q, notes %v", w.osds, w.args, w.notes)
	}
	if left, _ := filepath.Glob(filepath.Join(w.root, Dir, "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// An OSD that has run is never taken back, and neither is one whose disk is away.
func TestLeftAlone(t *testing.T) {
	w := newWorld(t)
	if err := w.nodeRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, _ := w.at(0)
	b := Begun{UUID: l.UUID, Path: "/dev/sdb", ByID: "/dev/disk/by-id/wwn-1", Size: size}
	w.notes, w.ran[l.ID] = []Begun{b}, true
	if err := w.nodeRun(t.Context()); err != nil {
		t.Error(err)
	}
	w.check()

	w.notes = []Begun{b}
	w.write("/dev/sdb", make([]byte, label.Size), 0) // somebody has wiped the disk
	if err := w.nodeRun(t.Context()); err == nil || !strings.Contains(err.Error(), "not new") {
		t.Errorf("taking back an OSD that has run: %v", err)
	}
	if diff := cmp.Diff(map[int]string{0: "other", l.ID: l.UUID}, w.osds); diff != "" {
		t.Errorf("Ceph knows (-want +got):\n%s", diff)
	}

	before := len(w.args)
	other := w.disk()
	other.Links = []string{"/dev/disk/by-id/wwn-2"}
	if p := w.maker().Settle(t.Context(), []device.Device{other}); len(p) != 1 || !strings.Contains(p[0], "not there") || len(w.args) != before || len(w.notes) != 1 {
		t.Errorf("a disk that is away: %q, ran %q, notes %v", p, w.args[before:], w.notes)
	}
}
