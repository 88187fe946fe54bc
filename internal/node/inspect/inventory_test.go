package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/run"
)

// bluestore is the head of an OSD's device.
func bluestore() []byte {
	b := make([]byte, label.Size)
	copy(b, "bluestore block device\nee0f97f8-6bb3-4d5c-9b4f-000000000001\n")
	return b
}

func TestJudge(t *testing.T) {
	disk := func(change ...func(*evidence)) evidence {
		e := evidence{device: device.Device{Name: "sdb", Path: "/dev/sdb", Type: device.Disk, Size: 10 << 30}, head: make([]byte, label.Size)}
		for _, c := range change {
			c(&e)
		}
		return e
	}
	partition := func(change ...func(*evidence)) evidence {
		e := disk(change...)
		e.device.Type = device.Partition
		if e.parentHead == nil {
			e.parentHead = make([]byte, label.Size)
		}
		return e
	}
	tag := func(kv ...string) func(*evidence) {
		return func(e *evidence) {
			e.signatures = map[string]string{}
			for i := 0; i < len(kv); i += 2 {
				e.signatures[kv[i]] = kv[i+1]
			}
		}
	}
	for name, tc := range map[string]struct {
		e    evidence
		want []string
	}{
		"blank disk":        {disk(), nil},
		"blank partition":   {partition(tag("PART_ENTRY_NAME", "data", "PART_ENTRY_TYPE", "0fc63daf-8483-4772-8e79-3d69d8477de4", "PART_ENTRY_SIZE", "9")), nil},
		"volume":            {disk(func(e *evidence) { e.device.Type = device.LVM }), nil},
		"loop":              {disk(func(e *evidence) { e.device.Type = device.Loop }), nil},
		"multipath":         {disk(func(e *evidence) { e.device.Type = device.Multipath }), nil},
		"RAID":              {disk(func(e *evidence) { e.device.Type = "raid1" }), []string{"Device type is not acceptable. It should be raw device or partition"}},
		"open dm-crypt":     {disk(func(e *evidence) { e.device.Type = device.Crypt }), []string{"Device type is not acceptable. It should be raw device or partition"}},
		"small":             {disk(func(e *evidence) { e.device.Size = 5<<30 - 1 }), []string{"Insufficient space (<5GB)"}},
		"read-only":         {disk(func(e *evidence) { e.device.ReadOnly = true }), []string{"read-only"}},
		"USB":               {disk(func(e *evidence) { e.usb = true }), []string{"id_bus"}},
		"open":              {disk(func(e *evidence) { e.busy = true }), []string{"locked"}},
		"mounted":           {disk(func(e *evidence) { e.device.Mounts = []string{"/mnt"} }), []string{"Has a mounted FileSystem"}},
		"holder":            {disk(func(e *evidence) { e.holders = []string{"md0"} }), []string{"Has holders: md0"}},
		"partitions":        {disk(func(e *evidence) { e.device.Children = []string{"sdb1"} }), []string{"Has partitions"}},
		"OSD":               {disk(func(e *evidence) { e.head = bluestore() }), []string{"Has BlueStore device label"}},
		"OSD below":         {partition(func(e *evidence) { e.parentHead = bluestore() }), []string{"Parent has BlueStore device label"}},
		"being replaced":    {disk(func(e *evidence) { copy(e.head, replacedHeader) }), []string{"Is being replaced"}},
		"GPT":               {disk(tag("PTTYPE", "gpt", "PTUUID", "x")), []string{"Has GPT headers"}},
		"GPT, by udev":      {disk(func(e *evidence) { e.device.PartTable = "gpt" }), []string{"Has GPT headers"}},
		"DOS":               {disk(tag("PTTYPE", "dos")), []string{"Has a dos partition table"}},
		"DOS, by udev":      {disk(func(e *evidence) { e.device.PartTable = "dos" }), []string{"Has a dos partition table"}},
		"nested table":      {partition(tag("PTTYPE", "dos")), []string{"Has a dos partition table"}},
		"ext4":              {disk(tag("TYPE", "ext4", "USAGE", "filesystem")), []string{"Has a FileSystem"}},
		"multipath member":  {disk(func(e *evidence) { e.device.FSType = "mpath_member" }), []string{"Has a FileSystem"}},
		"RAID member":       {disk(tag("TYPE", "linux_raid_member", "USAGE", "raid")), []string{"Has a FileSystem"}},
		"only a usage":      {disk(tag("USAGE", "other")), []string{"Has a FileSystem"}},
		"LVM":               {disk(tag("TYPE", "LVM2_member", "USAGE", "raid")), []string{"LVM detected"}},
		"ceph-disk by name": {partition(tag("PART_ENTRY_NAME", "ceph data")), []string{"Used by ceph-disk"}},
		"ceph-disk by type": {partition(tag("PART_ENTRY_TYPE", "4fbd7e29-9d25-41b8-afd0-062c0ceff05d")), []string{"Used by ceph-disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(tc.e)
			if diff := cmp.Diff(tc.want, got.Rejected); diff != "" {
				t.Errorf("rejected (-want +got):\n%s", diff)
			}
			if got.Available != (len(tc.want) == 0) {
				t.Errorf("available = %v", got.Available)
			}
			if got.BeingReplaced != (name == "being replaced") {
				t.Errorf("being replaced = %v", got.BeingReplaced)
			}
		})
	}
}

// answers is a runner with fixed answers by program.
type answers map[string]answer

type answer struct {
	out  string
	code int
}

func (a answers) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	r, ok := a[name]
	if !ok {
		return nil, fmt.Errorf("%s is not there", name)
	}
	if r.code != 0 {
		return []byte(r.out), &run.Error{Name: name, Args: args, Code: r.code, Err: errors.New("exit status")}
	}
	return []byte(r.out), nil
}

const lsblkSDB = `{"blockdevices":[{"name":"sdb","kname":"sdb","path":"/dev/sdb","type":"disk","size":10737418240,"ro":false,"rota":true,
	"pkname":null,"mountpoints":[null],"fstype":null,"pttype":null,"serial":null,"wwn":null,"model":null,"vendor":null,"maj:min":"8:16"}]}`

// root is a file system with one device of this content.
func root(t *testing.T, content []byte, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"dev/sdb": string(content), "sys/class/block/sdb/holders/.": ""}
	for k, v := range more {
		files[k] = v
	}
	for name, data := range files {
		p := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/.") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestInventory(t *testing.T) {
	nothing := answer{code: blkidNothing}
	for name, tc := range map[string]struct {
		run   answers
		head  []byte
		more  map[string]string
		want  device.Inventory
		fails string
	}{
		"blank":    {run: answers{"lsblk": {out: lsblkSDB}, "blkid": nothing}, head: make([]byte, label.Size), want: device.Inventory{Available: true}},
		"ext4":     {run: answers{"lsblk": {out: lsblkSDB}, "blkid": {out: "DEVNAME=/dev/sdb\nTYPE=ext4\nUSAGE=filesystem\n"}}, head: make([]byte, label.Size), want: device.Inventory{Rejected: []string{"Has a FileSystem"}}},
		"OSD":      {run: answers{"lsblk": {out: lsblkSDB}, "blkid": nothing}, head: bluestore(), want: device.Inventory{Rejected: []string{"Has BlueStore device label"}}},
		"USB":      {run: answers{"lsblk": {out: lsblkSDB}, "blkid": nothing}, head: make([]byte, label.Size), more: map[string]string{"run/udev/data/b8:16": "E:ID_BUS=usb\n"}, want: device.Inventory{Rejected: []string{"id_bus"}}},
		"holder":   {run: answers{"lsblk": {out: lsblkSDB}, "blkid": nothing}, head: make([]byte, label.Size), more: map[string]string{"sys/class/block/sdb/holders/dm-0": ""}, want: device.Inventory{Rejected: []string{"Has holders: dm-0"}}},
		"several":  {run: answers{"lsblk": {out: lsblkSDB}, "blkid": {code: 8}}, head: make([]byte, label.Size), fails: "looking for signatures"},
		"bad args": {run: answers{"lsblk": {out: lsblkSDB}, "blkid": {code: 4}}, head: make([]byte, label.Size), fails: "looking for signatures"},
		"no blkid": {run: answers{"lsblk": {out: lsblkSDB}}, head: make([]byte, label.Size), fails: "blkid"},
		"no lsblk": {run: answers{"blkid": nothing}, head: make([]byte, label.Size), fails: "lsblk"},
		"other":    {run: answers{"lsblk": {out: strings.ReplaceAll(lsblkSDB, "sdb", "sdc")}, "blkid": nothing}, head: make([]byte, label.Size), fails: "something else"},
		"short":    {run: answers{"lsblk": {out: lsblkSDB}, "blkid": nothing}, head: make([]byte, 100), fails: "reading the head"},
		"two exits": {
			run: answers{"lsblk": {out: lsblkSDB}, "blkid": {out: "TYPE=ext4\n", code: blkidNothing}}, head: make([]byte, label.Size), fails: "looking for signatures",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Node{Root: root(t, tc.head, tc.more), Run: tc.run}.Inventory(t.Context(), "/dev/sdb")
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) || got.Available {
					t.Errorf("got %+v, %v; want an error with %q", got, err, tc.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("inventory (-want +got):\n%s", diff)
			}
		})
	}
}

// A disk that has taken the name of the chosen one is not written to.
func TestFree(t *testing.T) {
	chosen := device.Device{Name: "sdb", Path: "/dev/sdb", MajMin: "8:16", Serial: "A1", Size: label.Size}
	const udev = "run/udev/data/b8:16"
	for name, c := range map[string]struct {
		head  []byte
		more  map[string]string
		d     func(d *device.Device)
		fails string
	}{
		"the same":          {make([]byte, label.Size), map[string]string{udev: "E:ID_SERIAL_SHORT=A1\n"}, nil, ""},
		"udev is silent":    {make([]byte, label.Size), nil, nil, ""},
		"no serial known":   {make([]byte, label.Size), map[string]string{udev: "E:ID_SERIAL_SHORT=B2\n"}, func(d *device.Device) { d.Serial = "" }, ""},
		"another serial":    {make([]byte, label.Size), map[string]string{udev: "E:ID_SERIAL_SHORT=B2\n"}, nil, "not the same disk"},
		"another size":      {make([]byte, 2*label.Size), nil, nil, "not the same disk"},
		"an OSD by now":     {bluestore(), nil, nil, "BlueStore label"},
		"udev's is no file": {make([]byte, label.Size), map[string]string{udev + "/.": ""}, nil, "reading udev's data"},
		"gone":              {make([]byte, label.Size), nil, func(d *device.Device) { d.Path = "/dev/sdz" }, "opening /dev/sdz"},
	} {
		t.Run(name, func(t *testing.T) {
			d := chosen
			if c.d != nil {
				c.d(&d)
			}
			err := Node{Root: root(t, c.head, c.more)}.Free(t.Context(), d)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%v, want %q", err, c.fails)
			}
		})
	}
}

// A disk that is not the chosen one is not held; one that is, is open until it is released.
func TestHold(t *testing.T) {
	chosen := device.Device{Name: "sdb", Path: "/dev/sdb", MajMin: "8:16", Serial: "A1", Size: label.Size}
	const udev = "run/udev/data/b8:16"
	for name, c := range map[string]struct {
		head  []byte
		more  map[string]string
		path  string
		fails string
	}{
		"the same":            {bluestore(), map[string]string{udev: "E:ID_SERIAL_SHORT=A1\n"}, "", ""},
		"another serial":      {bluestore(), map[string]string{udev: "E:ID_SERIAL_SHORT=B2\n"}, "", "not the same disk"},
		"another size":        {make([]byte, 2*label.Size), nil, "", "not the same disk"},
		"gone":                {bluestore(), nil, "/dev/sdz", "no such file"},
		"another in its name": {bluestore(), nil, "/dev/null", "not the same disk"},
	} {
		t.Run(name, func(t *testing.T) {
			d, n := chosen, Node{Root: root(t, c.head, c.more)}
			if c.path != "" {
				d.Path = c.path
			}
			if d.Path == "/dev/null" {
				if err := os.Symlink("/dev/null", filepath.Join(n.Root, d.Path)); err != nil {
					t.Fatal(err)
				}
			}
			release, err := n.Hold(t.Context(), d)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("%v, want %q", err, c.fails)
			}
			if open := opened(t, filepath.Join(n.Root, d.Path)); open != (err == nil) {
				t.Errorf("open: %v, with %v", open, err)
			}
			if err == nil {
				release()
				if opened(t, filepath.Join(n.Root, d.Path)) {
					t.Error("it is open after it was released")
				}
			}
		})
	}
}

// opened reports whether this process has a file open.
func opened(t *testing.T, path string) bool {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatalf("%v, %v", fds, err)
	}
	return slices.ContainsFunc(fds, func(fd string) bool { at, err := os.Readlink(fd); return err == nil && at == path })
}

// A device that does not answer in time is given up; what it gives after all is handed on, or
// it would stay open.
func TestInTime(t *testing.T) {
	hangs, late := make(chan struct{}), make(chan int, 1)
	_, err := InTime(t.Context(), "reading it", time.Millisecond, func() (int, error) {
		<-hangs
		return 7, nil
	}, func(n int) { late <- n })
	if err == nil || err.Error() != "reading it: no answer within 1ms" {
		t.Errorf("%v", err)
	}
	close(hangs)
	if n := <-late; n != 7 {
		t.Errorf("%d came late", n)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	stuck := make(chan struct{})
	defer close(stuck)
	if _, err := InTime(gone, "reading it", time.Minute, func() (int, error) { <-stuck; return 0, nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if n, err := InTime(t.Context(), "reading it", time.Minute, func() (int, error) { return 3, nil }, nil); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
