package check_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/crush"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

func request(change ...func(*check.Request)) check.Request {
	r := check.Request{
		ID: 5, Value: "yes-really-replace-osd-5", Exists: true, Host: "n1", Spec: &cephv1.ClusterSpec{},
		Record: &prepare.Result{ID: 5, UUID: "u5", Data: prepare.Part{Path: "/dev/sdb", Disk: "sdb", Serial: "S1", ByPath: "/dev/disk/by-path/ata-1", ByID: "/dev/disk/by-id/ata-X_S1"}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// The checks come in the order of the design: with everything wrong, the first is told.
func TestOrder(t *testing.T) {
	r := request(func(r *check.Request) {
		r.Value, r.Destroyed, r.PVC, r.Room, r.Record = "x", true, "claim", "no room", nil
		r.Spec.RemoveOSDsIfOutAndSafeToRemove = true
		r.Spec.HealthCheck.DaemonHealth.ObjectStorageDaemon.Disabled = true
		r.Copies = []string{"Deployment copy"}
	})
	var got []string
	for _, mend := range []func(){
		func() { r.Value = "yes-really-replace-osd-5" }, func() { r.Destroyed = false }, func() { r.PVC = "" },
		func() { r.Spec.RemoveOSDsIfOutAndSafeToRemove = false }, func() { r.Spec.HealthCheck.DaemonHealth.ObjectStorageDaemon.Disabled = false },
		func() { r.Copies = nil }, func() { r.Record = request().Record }, func() { r.Room = "" },
	} {
		refusal, _ := check.Check(r)
		if refusal == nil {
			t.Fatalf("after %v: accepted", got)
		}
		got = append(got, refusal.Reason)
		mend()
	}
	want := []string{"WrongConfirmation", "AlreadyDestroyed", "OnPVC", "ConflictingSetting", "ConflictingSetting", "UnderMaintenance", "DiskUnknown", "NoRoom"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if refusal, warnings := check.Check(r); refusal != nil || len(warnings) > 0 {
		t.Errorf("what holds is answered by %+v, %v", refusal, warnings)
	}
}

func TestSharedDisk(t *testing.T) {
	db := func(p prepare.Part) *prepare.Part { return &p }
	for _, c := range []struct {
		name  string
		other prepare.Result
		want  bool
	}{
		{"another disk", prepare.Result{ID: 6, UUID: "u6", Data: prepare.Part{Path: "/dev/sdc", Disk: "sdc", Serial: "S2"}}, false},
		{"its data on the same, not asked for", prepare.Result{ID: 6, UUID: "u6", Data: prepare.Part{Path: "/dev/vg/lv", Disk: "sdb", Serial: "S1"}}, true},
		{"only its database on the same", prepare.Result{ID: 6, UUID: "u6", Data: prepare.Part{Path: "/dev/sdc", Serial: "S2"}, DB: db(prepare.Part{Path: "/dev/vg/db", Disk: "sdb", Serial: "S1"})}, true},
		{"no serial, by kernel name", prepare.Result{ID: 6, UUID: "u6", Data: prepare.Part{Path: "/dev/vg/lv", Disk: "sdb"}}, true},
		{"itself", prepare.Result{ID: 5, UUID: "u5", Data: prepare.Part{Path: "/dev/sdb", Serial: "S1"}}, false},
	} {
		refusal, _ := check.Check(request(func(r *check.Request) { r.Others = []prepare.Result{c.other} }))
		if got := refusal != nil && refusal.Reason == "SharedDisk"; got != c.want {
			t.Errorf("%s: %+v", c.name, refusal)
		}
	}
}

func TestReferences(t *testing.T) {
	for ref, want := range map[string]string{
		"/dev/disk/by-path/ata-1":   "must go into the same slot",
		"/dev/disk/by-id/ata-X_S1":  "names the old disk itself",
		"/dev/disk/by-id/scsi-0_S1": "names the old disk itself",
		"sdb":                       "is a kernel name",
		"/dev/disk/by-uuid/0b-1":    "names what is on a disk",
		"sdc":                       "",
		"/dev/disk/by-id/ata-X_S2":  "",
	} {
		refusal, warnings := check.Check(request(func(r *check.Request) {
			r.Spec.Storage.Nodes = []cephv1.Node{{Name: "other"}, {Name: "n1", Selection: cephv1.Selection{Devices: []cephv1.Device{{Name: "sdz"}, {Name: ref}}}}}
		}))
		text := strings.Join(warnings, "\n")
		if refusal != nil || (want == "") != (text == "") || !strings.Contains(text, want) || want != "" && !strings.Contains(text, "spec.storage.nodes[1].devices[1]") {
			t.Errorf("%s: %+v, %q", ref, refusal, text)
		}
	}
}

// A filter that is no more than the name of the old disk is a name, too.
func TestReferencesInFilters(t *testing.T) {
	for _, c := range []struct{ name, path, want string }{
		{"^sdb$", "", "spec.storage.deviceFilter is a kernel name (sdb)"},
		{"sdb", "", "spec.storage.deviceFilter is a kernel name (sdb)"},
		{"^sd[b-z]$", "", ""},
		{"^sdc$", "", ""},
		{"", "^/dev/disk/by-id/ata-X_S1$", "spec.storage.devicePathFilter names the old disk itself"},
		{"", "^/dev/disk/by-id/.*_S1$", "spec.storage.devicePathFilter names the old disk itself"},
		{"", "/dev/disk/by-path/ata-1", "spec.storage.devicePathFilter is the slot /dev/disk/by-path/ata-1: the new disk must go into the same slot"},
		{"", "^/dev/disk/by-path/ata-.*", ""},
	} {
		refusal, warnings := check.Check(request(func(r *check.Request) {
			r.Spec.Storage.Selection = cephv1.Selection{DeviceFilter: c.name, DevicePathFilter: c.path}
		}))
		text := strings.Join(warnings, "\n")
		if refusal != nil || (c.want == "") != (text == "") || !strings.HasPrefix(text, c.want) {
			t.Errorf("%q, %q: %+v, %q, want %q", c.name, c.path, refusal, text, c.want)
		}
	}
}

// capacity of hosts with one OSD of 100 GiB for each entry of used, in GiB.
func capacity(size int, hosts ...[]int64) check.Capacity {
	c := check.Capacity{Held: map[int]int64{}}
	c.Map.BackfillfullRatio = 0.9
	c.Map.Pools = []cephosd.Pool{{ID: 1, Name: "data", Size: size, CrushRule: 1}}
	c.Rules = []crush.Rule{{ID: 1, Steps: []crush.Step{{Op: "take", ItemName: "default"}, {Op: "chooseleaf_firstn", Type: "host"}, {Op: "emit"}}}}
	root := cephosd.Node{ID: -1, Name: "default", Type: "root"}
	id := 0
	for h, used := range hosts {
		host := cephosd.Node{ID: -2 - h, Name: "h" + string(rune('a'+h)), Type: "host"}
		for _, u := range used {
			host.Children = append(host.Children, id)
			c.Tree.Nodes = append(c.Tree.Nodes, cephosd.Node{ID: id, Name: ceph.OSDName(id), Type: "osd", CrushWeight: 1})
			c.Map.OSDs = append(c.Map.OSDs, cephosd.OSD{ID: id, In: true, Up: true})
			c.Usage.Nodes = append(c.Usage.Nodes, cephosd.NodeUsage{ID: id, KB: 100 << 20, KBUsed: u << 20, KBUsedData: u << 20})
			id++
		}
		root.Children = append(root.Children, host.ID)
		c.Tree.Nodes = append(c.Tree.Nodes, host)
	}
	c.Tree.Nodes = append(c.Tree.Nodes, root)
	return c
}

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name string
		c    check.Capacity
		set  []int
		says string
	}{
		{"a fourth host", capacity(3, []int64{10}, []int64{10}, []int64{10}, []int64{10}), []int{0}, ""},
		{"as many hosts as copies", capacity(3, []int64{10}, []int64{10}, []int64{10}), []int{0}, "only 2 are left"},
		{"another OSD in the host", capacity(3, []int64{10, 10}, []int64{10, 10}, []int64{10, 10}), []int{0}, ""},
		{"the other OSD of the host is too full", capacity(3, []int64{60, 60}, []int64{10, 10}, []int64{10, 10}), []int{0}, "must stay in host ha"},
		{"the whole host", capacity(3, []int64{10, 10}, []int64{10, 10}, []int64{10, 10}), []int{0, 1}, "only 2 are left"},
		{"too full everywhere", capacity(2, []int64{89}, []int64{89}, []int64{89}), []int{0}, "must go elsewhere"},
		{"two of five hosts", capacity(3, []int64{10}, []int64{10}, []int64{10}, []int64{10}, []int64{10}), []int{0, 1}, ""},
		{"three of five hosts", capacity(3, []int64{10}, []int64{10}, []int64{10}, []int64{10}, []int64{10}), []int{0, 1, 2}, "only 2 are left"},
	} {
		why, hint := c.c.Fits(c.set)
		if (why == "") != (c.says == "") || !strings.Contains(why, c.says) || why != "" && hint == "" {
			t.Errorf("%s: %q (%s)", c.name, why, hint)
		}
	}
}

// An OSD that waits for its disk will take data again: what needs it must wait, and is
// not refused as if it could never be.
func TestTheSecondOSDOfAHostComesLater(t *testing.T) {
	c := capacity(3, []int64{10, 10}, []int64{10, 10}, []int64{10, 10})
	c.Map.OSDs[0].In = false
	c.Usage.Nodes[0] = cephosd.NodeUsage{ID: 0}
	if why, _ := c.Ever().Fits([]int{1}); !strings.Contains(why, "only 2 are left") {
		t.Errorf("with an OSD out that nobody replaces: %q", why)
	}
	c.Coming = map[int]bool{0: true}
	if why, _ := c.Ever().Fits([]int{1}); why != "" {
		t.Errorf("refused: %s", why)
	}
	if why := c.Turn([]int{1}, nil); !strings.Contains(why, "only 2 are left") {
		t.Errorf("its turn: %q", why)
	}
	if why, _ := c.Ever().Fits([]int{0, 1}); !strings.Contains(why, "only 2 are left") {
		t.Errorf("both at once: %q", why)
	}
}

// The queue goes by the order of the requests, and names whom it waits for.
func TestTurn(t *testing.T) {
	c := capacity(3, []int64{10}, []int64{10}, []int64{10}, []int64{10})
	if got := c.Turn([]int{0}, nil); got != "" {
		t.Errorf("the first waits: %s", got)
	}
	if got := c.Turn([]int{1}, []int{0}); !strings.Contains(got, "osd.0") {
		t.Errorf("the second: %q", got)
	}
	// The first is out already: it still counts.
	c.Map.OSDs[0].In = false
	if got := c.Turn([]int{1}, []int{0}); got == "" {
		t.Error("the second does not wait while the first drains")
	}
	wide := capacity(3, []int64{10}, []int64{10}, []int64{10}, []int64{10}, []int64{10}, []int64{10})
	if got := wide.Turn([]int{2}, []int{0, 1}); got != "" {
		t.Errorf("three of six hosts: %s", got)
	}
}

// What is draining is empty to Ceph's usage; what was noted counts.
func TestHeld(t *testing.T) {
	c := capacity(2, []int64{60}, []int64{60}, []int64{60}, []int64{60})
	c.Map.OSDs[0].In = false
	c.Usage.Nodes[0] = cephosd.NodeUsage{ID: 0}
	if why, _ := c.Fits([]int{0, 1}); why != "" {
		t.Fatalf("without the note: %s", why)
	}
	c.Held[0] = 60 << 20
	if why, _ := c.Fits([]int{0, 1}); !strings.Contains(why, "120 GiB") {
		t.Errorf("with the note: %q", why)
	}
}

// What names the old metadata device is told too: new OSDs would look for it.
func TestReferencesToAMetadataDevice(t *testing.T) {
	r := metadata(spec.MetadataConfirmation(5), func(r *check.Request) {
		r.Record.DB.Disk, r.Record.DB.ByPath = "nvme0n1", "/dev/disk/by-path/pci-1-nvme-1"
		r.Spec.Storage.Config = map[string]string{"metadataDevice": "nvme0n1"}
		r.Spec.Storage.Nodes = []cephv1.Node{
			{Name: "other", Config: map[string]string{"metadataDevice": "nvme0n1"}},
			{Name: "n1", Config: map[string]string{"metadataDevice": "/dev/disk/by-id/nvme-X_FAST"}, Selection: cephv1.Selection{Devices: []cephv1.Device{
				{Name: "sda", Config: map[string]string{"metadataDevice": "nvme1n1"}}, {Name: "sdb", Config: map[string]string{"metadataDevice": "/dev/disk/by-path/pci-1-nvme-1"}},
			}}},
		}
	})
	refusal, warnings := check.Check(r)
	want := []string{
		"spec.storage.config[metadataDevice] is a kernel name (nvme0n1), which the new disk may not get; write /dev/disk/by-path/pci-1-nvme-1 instead",
		"spec.storage.nodes[1].config[metadataDevice] names the old disk itself (/dev/disk/by-id/nvme-X_FAST) and will name nothing after the swap; write /dev/disk/by-path/pci-1-nvme-1 instead",
		"spec.storage.nodes[1].devices[1].config[metadataDevice] is the slot /dev/disk/by-path/pci-1-nvme-1: the new disk must go into the same slot",
	}
	if diff := cmp.Diff(want, warnings); refusal != nil || diff != "" {
		t.Errorf("%+v (-want +got):\n%s", refusal, diff)
	}
}
