package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUdevData(t *testing.T) {
	got := string(Disk{Slot: 2, Serial: "CL0011AABBCC", Number: 7}.UdevData())
	want := `S:disk/by-id/ata-CASTELLAN_LAB_DISK_CL0011AABBCC
S:disk/by-id/wwn-0x5256bbb1ac394196
S:disk/by-path/pci-0000:00:17.0-ata-2
I:1000000
E:ID_ATA=1
E:ID_BUS=ata
E:ID_MODEL=CASTELLAN_LAB_DISK
E:ID_PATH=pci-0000:00:17.0-ata-2
E:ID_PATH_TAG=pci-0000_00_17_0-ata-2
E:ID_SERIAL=CASTELLAN_LAB_DISK_CL0011AABBCC
E:ID_SERIAL_SHORT=CL0011AABBCC
E:ID_TYPE=disk
E:ID_WWN=0x5256bbb1ac394196
E:DEVLINKS=/dev/disk/by-id/ata-CASTELLAN_LAB_DISK_CL0011AABBCC /dev/disk/by-id/wwn-0x5256bbb1ac394196 /dev/disk/by-path/pci-0000:00:17.0-ata-2
G:systemd
Q:systemd
V:1
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestExposeAndHide(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making device nodes needs root")
	}
	root := t.TempDir()
	old := Disk{Slot: 1, Serial: "CLOLD", Number: 901}
	blank := Disk{Slot: 1, Serial: "CLNEW", Number: 902}
	for _, d := range []Disk{old, blank} {
		if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Expose(root, d); err != nil {
			t.Fatal(err)
		}
	}
	// The slot's link has passed to the new disk and must survive the old one.
	if err := Hide(root, old); err != nil {
		t.Fatal(err)
	}
	if err := Hide(root, old); err != nil {
		t.Errorf("hiding twice: %v", err)
	}
	var got []string
	for _, pattern := range []string{"dev/loop*", "dev/disk/*/*", "run/udev/data/*"} {
		m, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m {
			got = append(got, strings.TrimPrefix(p, root+"/"))
		}
	}
	want := []string{
		"dev/loop902",
		"dev/disk/by-id/ata-CASTELLAN_LAB_DISK_CLNEW",
		"dev/disk/by-id/wwn-" + WWN("CLNEW"),
		"dev/disk/by-path/pci-0000:00:17.0-ata-1",
		"run/udev/data/b7:902",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFind(t *testing.T) {
	disks := []Disk{{Slot: 1, Serial: "CLA", Number: 4}, {Slot: 2, Serial: "CLB", Number: 1}}
	tests := map[string]string{"1": "CLA", "2": "CLB", "loop1": "CLB", "/dev/loop4": "CLA", "clb": "CLB", "3": "", "loop2": "", "": ""}
	for what, want := range tests {
		if got, ok := Find(disks, what); got.Serial != want || ok != (want != "") {
			t.Errorf("Find(%q) = %v %v, want %q", what, got, ok, want)
		}
	}
}

func TestFreeSlot(t *testing.T) {
	disks := []Disk{{Slot: 1}, {Slot: 3}}
	if got := FreeSlot(disks); got != 2 {
		t.Errorf("got %d", got)
	}
	if got := FreeSlot(disks, 2); got != 4 {
		t.Errorf("without slot 2: got %d", got)
	}
}

func TestParseSize(t *testing.T) {
	tests := []struct {
		in   string
		want int64 // 0: an error
	}{
		{"10Gi", 10 << 30}, {"10G", 10 << 30}, {"10GiB", 10 << 30}, {"10GB", 10 << 30}, {"500M", 500 << 20}, {"1T", 1 << 40},
		{"1048577", 1 << 20}, {"4g", 4 << 30},
		{"", 0}, {"0", 0}, {"-1G", 0}, {"x", 0}, {"10X", 0}, {"1.5G", 0}, {"4096", 0}, {"9999999T", 0}, {"GG", 0}, {"5KM", 0},
	}
	for _, tt := range tests {
		got, err := ParseSize(tt.in)
		if got != tt.want || (err == nil) != (tt.want != 0) {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", tt.in, got, err, tt.want)
		}
	}
	for n, want := range map[int64]string{10 << 30: "10Gi", 500 << 20: "500Mi", 3 << 29: "1.5Gi", 100: "100"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

const testUUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"

// bluestore builds a label the way Ceph encodes it.
func bluestore(uuid string, meta [][2]string) []byte {
	le := binary.LittleEndian
	text := func(b []byte, s string) []byte { return append(le.AppendUint32(b, uint32(len(s))), s...) }
	raw, _ := hex.DecodeString(strings.ReplaceAll(testUUID, "-", ""))
	body := append([]byte{}, raw...)
	body = le.AppendUint64(body, 4<<30)
	body = le.AppendUint64(body, 1700000000)
	body = text(body, "main")
	body = le.AppendUint32(body, uint32(len(meta)))
	for _, kv := range meta {
		body = text(text(body, kv[0]), kv[1])
	}
	out := append([]byte("bluestore block device\n"+uuid+"\n"), 2, 1)
	out = le.AppendUint32(out, uint32(len(body)))
	out = append(out, body...)
	return append(out, make([]byte, 4096)...)
}

func TestIdentify(t *testing.T) {
	at := func(offset int, s string) []byte {
		return append(append(make([]byte, offset), s...), make([]byte, 4096)...)
	}
	full := bluestore(testUUID, [][2]string{{"ceph_fsid", "f51d"}, {"whoami", "7"}})
	tests := map[string]struct {
		disk []byte
		want Content
	}{
		"blank":               {make([]byte, 2<<20), Content{Kind: Blank}},
		"empty":               {nil, Content{Kind: Blank}},
		"osd":                 {full, Content{Kind: CephOSD, OSD: "7", FSID: "f51d", OSDUUID: testUUID}},
		"label without an id": {bluestore(testUUID, nil), Content{Kind: CephOSD, OSDUUID: testUUID}},
		"label cut off":       {full[:80], Content{Kind: Other, Signature: "broken Ceph label"}},
		"two uuids":           {bluestore(strings.Replace(testUUID, "0a", "ff", 1), nil), Content{Kind: Other, Signature: "broken Ceph label"}},
		"LUKS":                {at(0, "LUKS\xba\xbe"), Content{Kind: Other, Signature: "LUKS"}},
		"LVM2":                {at(512, "LABELONE"), Content{Kind: Other, Signature: "LVM2"}},
		"GPT before MBR":      {at(510, "\x55\xaaEFI PART"), Content{Kind: Other, Signature: "GPT"}},
		"ext4":                {at(1080, "\x53\xef"), Content{Kind: Other, Signature: "ext4"}},
		"anything":            {at(9000, "x"), Content{Kind: Other, Signature: "unknown data"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Identify(bytes.NewReader(tt.disk))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// FuzzIdentify: a disk holds anything.
func FuzzIdentify(f *testing.F) {
	f.Add(bluestore(testUUID, [][2]string{{"whoami", "0"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Identify(bytes.NewReader(b))
		if err != nil || c.Kind == "" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestLoop attaches a real device, breaks it while it is open, and sees that
// the kernel has taken it back afterwards.
func TestLoop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	if err := CheckLoop(); err != nil {
		t.Skip(err)
	}
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 4<<20); err != nil {
		t.Fatal(err)
	}
	l, err := Attach(image)
	if err != nil {
		t.Fatal(err)
	}
	dev := "/dev/" + Disk{Number: l.Number}.Name()
	user, err := os.OpenFile(dev, os.O_RDWR|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte("x"), 4096)
	if _, err := user.WriteAt(block, 1<<20); err != nil {
		t.Fatalf("writing a sound disk: %v", err)
	}
	if err := l.Fail(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := user.WriteAt(block, 1<<20); err == nil {
		t.Error("a failed disk was written")
	} else {
		t.Logf("writing a failed disk: %v", err)
	}
	if n, err := user.ReadAt(block, 1<<20); err == nil {
		t.Errorf("a failed disk was read: %d bytes", n)
	} else {
		t.Logf("reading a failed disk: %v", err)
	}
	if err := user.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := ListAttached()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range left {
		if strings.HasPrefix(a.Backing, image) {
			t.Errorf("still attached: %+v", a)
		}
	}
}

// TestLoopOverLoop makes what a kubelet makes for a block volume: a loop device
// that stays, over one of ours, which then cannot go either.
func TestLoopOverLoop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	if err := CheckLoop(); err != nil {
		t.Skip(err)
	}
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Attach(image)
	if err != nil {
		t.Fatal(err)
	}
	over, err := AttachKept("/dev/"+Disk{Number: l.Number}.Name(), "/dev")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	find := func() map[int]Attached {
		all, err := ListAttached()
		if err != nil {
			t.Fatal(err)
		}
		out := map[int]Attached{}
		for _, a := range all {
			if a.Number == l.Number || a.Number == over {
				out[a.Number] = a
			}
		}
		return out
	}
	got := find()
	if got[over].Over != l.Number || got[l.Number].Over != -1 {
		t.Errorf("attached: %+v", got)
	}
	if err := Detach(over); err != nil {
		t.Fatal(err)
	}
	if got := find(); len(got) != 0 {
		t.Errorf("still attached: %+v", got)
	}
}
