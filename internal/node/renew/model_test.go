package renew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/activate"
	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/request"
)

const (
	fsid   = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"
	oldID  = "11111111-0000-4000-8000-000000000005"
	sibID  = "22222222-0000-4000-8000-000000000006"
	gib    = 1 << 30
	newDev = "/dev/sdb"
)

// errCrash ends a run like a kill: nothing that follows happens.
var errCrash = errors.New("killed")

// lv is a volume of the model.
type lv struct {
	uuid string
	size uint64
	tags map[string]string
	dev  string
	head []byte
	// half: mkfs in an encrypted volume has not finished.
	half bool
}

// world is a node and a Ceph that behave like what was captured of real ones: the
// rollback of ceph-volume, a mapping left open, a claimed id.
type world struct {
	disks   map[string]*device.Device // by path
	raw     map[string][]byte         // heads of disks
	lvs     map[string]*lv            // by vg/lv
	vgs     map[string]string         // name to disk
	free    map[string]uint64
	open    map[string]string // mapping name to vg/lv
	held    map[string]bool   // mappings that somebody uses
	slot    string            // destroyed, new, used, gone
	uuid    string            // that claims the id
	made    int
	serial  int
	ran     []string
	writes  []string // what was written to
	broken  map[string]bool
	rejects map[string]string
	// failAt says at which stage ceph-volume fails: "before", "claimed", "mkfs".
	failAt string
	// lies: ceph-volume says yes and leaves the volume as it was (DANGER 1).
	lies bool
	// crashAt ends the run before this call, counted from 1.
	crashAt, calls int
	// crashAfter ends the run after this program.
	crashAfter string
	// fail is the beginning of a call that fails.
	fail string
	// At call swapAt the disk at swapPath is pulled and a blank one comes, which gets its
	// name, unless somebody has it open. holds counts those.
	swapAt   int
	swapPath string
	holds    map[string]int
	// deaf: udev misses that a disk has no volume group any more; heard is what it believes of
	// disks.
	deaf  bool
	heard map[string]string
	// opens is a volume that somebody opens while the data volume is being made.
	opens string
}

func newWorld(mode string, db, encrypted bool) *world {
	w := &world{
		disks: map[string]*device.Device{
			newDev:     {Name: "sdb", Path: newDev, Type: device.Disk, Size: 100 * gib, HasNode: true, Serial: "NEW", Links: []string{"/dev/disk/by-id/x-NEW"}},
			"/dev/nvm": {Name: "nvm", Path: "/dev/nvm", Type: device.Disk, Size: 50 * gib, HasNode: true, Serial: "FAST", Links: []string{"/dev/disk/by-id/x-FAST"}},
		},
		raw: map[string][]byte{}, lvs: map[string]*lv{}, vgs: map[string]string{}, free: map[string]uint64{}, open: map[string]string{}, held: map[string]bool{}, holds: map[string]int{},
		heard: map[string]string{},
		slot:  "destroyed", broken: map[string]bool{}, rejects: map[string]string{},
	}
	if mode == "lvm" && db {
		w.vgs["fast"], w.free["fast"] = "/dev/nvm", 10*gib
		w.lvs["fast/db5"] = &lv{uuid: "LV-DB5", size: 20 * gib, dev: "/dev/nvm", tags: tagsOf(5, oldID, "db", encrypted), head: headOf(encrypted, "old", oldID, 5)}
		w.lvs["fast/db6"] = &lv{uuid: "LV-DB6", size: 20 * gib, dev: "/dev/nvm", tags: tagsOf(6, sibID, "db", encrypted), head: headOf(encrypted, "sib", sibID, 6)}
	}
	return w
}

func tagsOf(id int, uuid, kind string, encrypted bool) map[string]string {
	return map[string]string{
		"ceph.osd_id": strconv.Itoa(id), "ceph.osd_fsid": uuid, "ceph.cluster_fsid": fsid, "ceph.type": kind,
		"ceph.encrypted": map[bool]string{true: "1", false: "0"}[encrypted],
	}
}

// headOf is a LUKS header with some salt, or the label of an OSD.
func headOf(encrypted bool, salt, uuid string, id int) []byte {
	if encrypted {
		return append([]byte(luks), salt...)
	}
	return labelOf(uuid, id, true)
}

// labelOf is a BlueStore label as ceph-osd's mkfs writes it.
func labelOf(uuid string, id int, ready bool) []byte {
	str := func(s string) []byte { return append(u32(len(s)), s...) }
	meta := map[string]string{"ceph_fsid": fsid, "whoami": strconv.Itoa(id)}
	if id < 0 {
		clear(meta) // of a label that mkfs has just begun
	}
	if ready {
		meta["ready"] = "ready"
	}
	body := slices.Concat(make([]byte, 16), make([]byte, 8), make([]byte, 8), str("main"), u32(len(meta)))
	for _, k := range slices.Sorted(maps.Keys(meta)) {
		body = slices.Concat(body, str(k), str(meta[k]))
	}
	return slices.Concat([]byte("bluestore block device\n"+uuid+"\n"), []byte{2, 1}, u32(len(body)), body, make([]byte, 64))
}

func u32(n int) []byte { return []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)} }

// call counts what is done to the node, and crashes on the way.
func (w *world) call(what string) error {
	w.calls++
	if w.crashAt > 0 && w.calls >= w.crashAt {
		return errCrash
	}
	if w.calls == w.swapAt {
		w.swap()
	}
	w.ran = append(w.ran, what)
	if w.fail != "" && strings.HasPrefix(what, w.fail) {
		return errors.New("no answer")
	}
	return nil
}

func (w *world) Look(context.Context) (inspect.Result, error) {
	if err := w.call("look"); err != nil {
		return inspect.Result{}, err
	}
	var devices []device.Device
	for _, p := range slices.Sorted(maps.Keys(w.disks)) {
		d := *w.disks[p]
		if kind := w.heard[p]; w.deaf && kind != "" {
			d.FSType = kind
		}
		for vg, on := range w.vgs {
			if on == p {
				d.FSType = "LVM2_member"
				for full := range w.lvs {
					if strings.HasPrefix(full, vg+"/") {
						d.Children = append(d.Children, full)
					}
				}
			}
		}
		devices = append(devices, d)
	}
	var found []device.Found
	for p, head := range w.raw {
		if l, err := label.Parse(head); err == nil {
			found = append(found, device.Found{OSD: device.OSD{ID: l.ID, UUID: l.UUID, FSID: l.FSID, Role: device.RoleBlock}, Path: p, Mode: "raw"})
		}
	}
	for full, l := range w.lvs {
		id, err := strconv.Atoi(l.tags["ceph.osd_id"])
		if err != nil {
			continue
		}
		vg, name, _ := strings.Cut(full, "/")
		found = append(found, device.Found{
			OSD: device.OSD{ID: id, UUID: l.tags["ceph.osd_fsid"], FSID: fsid, Role: device.Role(l.tags["ceph.type"])}, Path: "/dev/" + full, Mode: "lvm",
			Encrypted: l.tags["ceph.encrypted"] == "1", VG: vg, LV: name, LVUUID: l.uuid, LVSize: l.size, Devices: []string{l.dev},
		})
	}
	// What is in an open mapping is seen as on any device, and first.
	for name, full := range w.open {
		l := w.lvs[full]
		if l == nil {
			continue // its disk was pulled
		}
		if id, err := strconv.Atoi(l.tags["ceph.osd_id"]); err == nil && l.tags["ceph.type"] == "block" {
			found = slices.Insert(found, 0, device.Found{
				OSD: device.OSD{ID: id, UUID: l.tags["ceph.osd_fsid"], FSID: fsid, Role: device.RoleBlock}, Path: "/dev/mapper/" + name, Mode: "raw",
			})
		}
	}
	return inspect.Result{Devices: device.Merge(devices, found), Found: found, Unreadable: map[string]error{}}, nil
}

func (w *world) Inventory(_ context.Context, path string) (device.Inventory, error) {
	if why := w.rejects[path]; why != "" {
		return device.Inventory{Rejected: []string{why}}, nil
	}
	return device.Inventory{Available: true}, w.call("inventory " + path)
}

// swap pulls the disk and plugs in another one.
func (w *world) swap() {
	was := *w.disks[w.swapPath]
	delete(w.disks, w.swapPath)
	delete(w.raw, w.swapPath)
	for vg, on := range w.vgs {
		if on == w.swapPath {
			delete(w.vgs, vg)
			maps.DeleteFunc(w.lvs, func(full string, _ *lv) bool { return strings.HasPrefix(full, vg+"/") })
		}
	}
	maps.DeleteFunc(w.open, func(_, full string) bool { return w.lvs[full] == nil })
	if w.holds[w.swapPath] == 0 {
		w.disks[was.Path] = &device.Device{Name: was.Name, Path: was.Path, Type: was.Type, Size: was.Size, HasNode: true, Serial: "SOMEBODY'S"}
	}
}

// same is nil if the disk that was chosen is where it was.
func (w *world) same(d device.Device) error {
	if now := w.disks[d.Path]; now == nil || now.Serial != d.Serial {
		return errors.New(d.Path + " is not the same disk")
	}
	return nil
}

func (w *world) Hold(_ context.Context, d device.Device) (func(), error) {
	if err := w.call("hold " + d.Path); err != nil {
		return nil, err
	}
	if err := w.same(d); err != nil {
		return nil, err
	}
	w.holds[d.Path]++
	return func() { w.holds[d.Path]-- }, nil
}

func (w *world) Free(_ context.Context, d device.Device) error {
	if err := w.call("free " + d.Path); err != nil {
		return err
	}
	return w.same(d)
}

func (w *world) Changed(d device.Device) error {
	delete(w.heard, d.Path)
	return w.call("changed " + d.Path)
}

func (w *world) Probe(_ context.Context, path string) error {
	if err := w.call("probe " + path); err != nil {
		return err
	}
	w.wrote(path)
	if w.broken[path] || w.disks[path] == nil {
		return errors.New("input/output error")
	}
	return nil
}

// wrote notes what was written to, and whose disk that is when it is nobody's to write to.
func (w *world) wrote(path string) {
	if d := w.disks[path]; d != nil && d.Serial == "SOMEBODY'S" {
		path = d.Serial
	}
	w.writes = append(w.writes, path)
}

func (w *world) Head(_ context.Context, path string) ([]byte, error) {
	if err := w.call("head " + path); err != nil {
		return nil, err
	}
	if h, ok := w.raw[path]; ok {
		return h, nil
	}
	if w.disks[path] != nil {
		return make([]byte, HeadSize), nil
	}
	if l := w.lvs[w.open[strings.TrimPrefix(path, "/dev/mapper/")]]; l != nil {
		return labelOf(l.tags["ceph.osd_fsid"], 5, !l.half), nil
	}
	if l := w.lvs[strings.TrimPrefix(path, "/dev/")]; l != nil {
		return l.head, nil
	}
	return nil, errors.New("no such device " + path)
}

func (w *world) Erase(_ context.Context, path string, ours func(string) bool) error {
	if l, err := label.Parse(w.raw[path]); err != nil || !ours(l.UUID) {
		return fmt.Errorf("%s is left alone: %s, %w", path, l.UUID, err)
	}
	w.wrote(path)
	delete(w.raw, path)
	return w.call("erase " + path)
}

// Renew is rawosd: it claims the id, makes the store in two steps, and takes nothing back.
func (w *world) Renew(_ context.Context, d device.Device, id int, uuid, _ string) error {
	if err := w.call("renew " + d.Path); err != nil {
		return err
	}
	if id != 5 || w.failAt == "before" {
		return errors.New("registering OSD: no")
	}
	if w.slot != "destroyed" && w.slot != "gone" {
		return errors.New("id 5 already in use and does not match uuid")
	}
	w.slot, w.uuid = "new", uuid
	if err := w.call("claimed"); err != nil || w.failAt == "claimed" {
		return errors.Join(err, errors.New("making the store of osd.5: the disk has gone"))
	}
	w.wrote(d.Path)
	w.raw[d.Path] = labelOf(uuid, -1, false)
	if err := w.call("half a store"); err != nil || w.failAt == "mkfs" {
		return errors.Join(err, errors.New("making the store of osd.5: exit status 1"))
	}
	w.raw[d.Path] = labelOf(uuid, 5, true)
	w.made++
	return w.call("made")
}

// Unlock opens what is encrypted with the key of the OSD that it is tagged for.
func (w *world) Unlock(_ context.Context, data device.Found) (string, error) {
	l := w.lvs[data.VG+"/"+data.LV]
	if err := w.call("unlock " + data.Path); err != nil {
		return "", err
	}
	if !strings.HasPrefix(string(l.head), luks+data.UUID) {
		return "", activate.ErrKey
	}
	w.open[l.uuid] = data.VG + "/" + data.LV
	return "/dev/mapper/" + l.uuid, nil
}

// Fits is true of volumes that were encrypted for the OSD.
func (w *world) Fits(_ context.Context, data device.Found, paths ...string) error {
	for _, p := range paths {
		if l := w.lvs[strings.TrimPrefix(p, "/dev/")]; l == nil || !strings.HasPrefix(string(l.head), luks+data.UUID) {
			return errors.Join(activate.ErrKey, w.call("fits "+p))
		}
	}
	return w.call("fits")
}

// mapped reports whether a mapping is of a volume, as package crypt tells it: by the
// volume's own uuid, and by its name only where no uuid is given.
func (w *world) mapped(name, full string, l request.LV) bool {
	if l.UUID == "" {
		return l.VG+"/"+l.Name == full
	}
	return name == l.UUID || w.lvs[full] != nil && w.lvs[full].uuid == l.UUID
}

func (w *world) Open(lvs []request.LV) ([]crypt.Mapping, error) {
	var all []crypt.Mapping
	for name, full := range w.open {
		if slices.ContainsFunc(lvs, func(l request.LV) bool { return w.mapped(name, full, l) }) {
			all = append(all, crypt.Mapping{Name: name, Of: full})
		}
	}
	return all, w.call("open mappings")
}

func (w *world) Close(_ context.Context, lvs []request.LV) ([]string, error) {
	if err := w.call("close"); err != nil {
		return nil, err
	}
	for _, l := range lvs {
		for name, full := range w.open {
			if !w.mapped(name, full, l) {
				continue
			}
			if w.held[name] {
				return nil, fmt.Errorf("%s is still in use", name)
			}
			delete(w.open, name)
		}
	}
	return nil, nil
}

func (w *world) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	if err := w.call(strings.Join(append([]string{name}, args...), " ")); err != nil {
		return nil, err
	}
	last := args[len(args)-1]
	arg := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 {
			return args[i+1]
		}
		return ""
	}
	switch name {
	case "ceph":
		return w.dump(), nil
	case "lvs":
		return w.listLVs(), nil
	case "vgs":
		return w.listVGs(), nil
	case "vgchange":
		if w.vgs[last] == "" {
			return nil, errors.New("no volume group " + last)
		}
	case "vgcreate":
		w.wrote(last)
		if w.disks[last] == nil || w.vgs[args[1]] != "" {
			return nil, errors.New("vgcreate " + args[1] + " on " + last)
		}
		w.vgs[args[1]], w.free[args[1]] = last, w.disks[last].Size
		w.heard[last] = "LVM2_member"
	case "lvcreate":
		if l := w.lvs[w.opens]; l != nil {
			w.open[l.uuid], w.held[l.uuid] = w.opens, true
		}
		return nil, w.lvcreate(arg("--name"), last, arg("--size"), arg("--extents"), arg("--addtag"))
	case "lvremove":
		vg, _, _ := strings.Cut(last, "/")
		w.writes = append(w.writes, last)
		if w.lvs[last] == nil {
			return nil, errors.New("no volume " + last)
		}
		w.free[vg] += w.lvs[last].size
		delete(w.lvs, last)
	case "vgremove":
		delete(w.vgs, last)
	case "pvremove":
		w.wrote(last)
	case "ceph-volume":
		err := w.volume(args, arg)
		if w.crashAfter == name {
			w.crashAt = w.calls
		}
		return nil, err
	default:
		return nil, errors.New("unknown program " + name)
	}
	return nil, nil
}

func (w *world) lvcreate(name, vg, size, extents, tag string) error {
	n, _ := strconv.ParseUint(strings.TrimSuffix(size, "b"), 10, 64)
	switch {
	case extents == "100%FREE":
		n = w.free[vg]
	case extents != "" && w.disks[w.vgs[vg]] != nil:
		p, _ := strconv.ParseUint(strings.TrimSuffix(extents, "%VG"), 10, 64)
		n = w.disks[w.vgs[vg]].Size * p / 100
	}
	if n == 0 || n > w.free[vg] || w.lvs[vg+"/"+name] != nil {
		return fmt.Errorf("lvcreate of %d bytes in %s with %d free", n, vg, w.free[vg])
	}
	w.free[vg] -= n
	w.serial++
	l := &lv{uuid: fmt.Sprintf("LV-%d", w.serial), size: n, tags: map[string]string{}, dev: w.vgs[vg]}
	if k, v, ok := strings.Cut(tag, "="); ok {
		l.tags[k] = v
	}
	w.lvs[vg+"/"+name] = l
	return nil
}

// volume is ceph-volume's prepare, with its rollback.
func (w *world) volume(args []string, arg func(string) string) error {
	if w.failAt == "before" {
		return errors.New("ceph-volume: --block.db is not a vg/lv")
	}
	if w.slot != "destroyed" && w.slot != "gone" {
		return errors.New("the osd ID 5 is already in use or does not exist")
	}
	w.serial++
	uuid := fmt.Sprintf("99999999-0000-4000-8000-%012d", w.serial)
	w.slot, w.uuid = "new", uuid
	if w.failAt == "claimed" {
		return w.rollback()
	}
	encrypted := slices.Contains(args, "--dmcrypt")
	for flag, kind := range map[string]string{"--data": "block", "--block.db": "db"} {
		full := arg(flag)
		if full == "" {
			continue
		}
		w.writes = append(w.writes, full)
		l := w.lvs[full]
		if l == nil {
			return errors.New("no such volume " + full)
		}
		maps.Copy(l.tags, tagsOf(5, uuid, kind, encrypted))
		// With a mapping open luksFormat and luksOpen fail, and nobody notices.
		if w.open[l.uuid] == "" && (!w.lies || kind == "block") {
			l.head = headOf(encrypted, uuid, uuid, 5)
		}
		if encrypted {
			w.open[l.uuid] = full
		}
	}
	if w.failAt == "mkfs" {
		return w.rollback()
	}
	if w.failAt == "killed" {
		w.half(arg("--data"))
		return errCrash
	}
	w.made++
	return nil
}

// half is what a kill in the middle of mkfs leaves: mappings stay open.
func (w *world) half(full string) { w.lvs[full].half = true }

// rollback purges the id and destroys every volume with its tag.
func (w *world) rollback() error {
	w.slot, w.uuid = "gone", ""
	for full, l := range w.lvs {
		if l.tags["ceph.osd_id"] != "5" {
			continue
		}
		vg, _, _ := strings.Cut(full, "/")
		delete(w.lvs, full)
		delete(w.open, l.uuid)
		w.free[vg] += l.size
		if !slices.ContainsFunc(slices.Collect(maps.Keys(w.lvs)), func(f string) bool { return strings.HasPrefix(f, vg+"/") }) {
			delete(w.vgs, vg)
		}
	}
	return errors.New("ceph-volume: RuntimeError: Command failed with exit code 1: ceph-osd --mkfs")
}

func (w *world) dump() []byte {
	type entry struct {
		OSD   int      `json:"osd"`
		UUID  string   `json:"uuid"`
		State []string `json:"state"`
	}
	osds := []entry{{6, sibID, []string{"exists", "up"}}}
	switch w.slot {
	case "destroyed":
		osds = append(osds, entry{5, zeroUUID, []string{"destroyed", "exists"}})
	case "new":
		osds = append(osds, entry{5, w.uuid, []string{"exists", "new"}})
	case "used":
		osds = append(osds, entry{5, w.uuid, []string{"exists", "up"}})
	}
	b, err := json.Marshal(map[string]any{"osds": osds})
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) listLVs() []byte {
	var lines []map[string]string
	for full, l := range w.lvs {
		vg, name, _ := strings.Cut(full, "/")
		var tags []string
		for k, v := range l.tags {
			tags = append(tags, k+"="+v)
		}
		lines = append(lines, map[string]string{
			"vg_name": vg, "lv_name": name, "lv_uuid": l.uuid, "lv_size": strconv.FormatUint(l.size, 10), "lv_tags": strings.Join(tags, ","),
			"lv_path": "/dev/" + full, "devices": l.dev + "(0)",
		})
	}
	b, err := json.Marshal(map[string]any{"report": []any{map[string]any{"lv": lines}}})
	if err != nil {
		panic(err)
	}
	return b
}

func (w *world) listVGs() []byte {
	var lines []map[string]string
	for vg, dev := range w.vgs {
		lines = append(lines, map[string]string{
			"vg_name": vg, "vg_uuid": "U-" + vg, "vg_free": strconv.FormatUint(w.free[vg], 10), "vg_size": "1", "vg_extent_size": "4194304", "pv_name": dev,
		})
	}
	b, err := json.Marshal(map[string]any{"report": []any{map[string]any{"vg": lines}}})
	if err != nil {
		panic(err)
	}
	return b
}

// sibling is what must never change.
func (w *world) sibling() string {
	if l := w.lvs["fast/db6"]; l != nil {
		return fmt.Sprint(l.uuid, l.size, l.tags, string(l.head))
	}
	return ""
}
