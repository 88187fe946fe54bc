package sanitize

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

// Two runs on one host look into stores in one place: the pod of a Job that was replaced
// while it still ran, or the Jobs of two clusters with one dataDir. What one has copied
// must not be taken for what the other looks at: a third cluster's mon that is down at the
// moment would lose its store.
func TestTwoRunsOnOneHostTellStoresApart(t *testing.T) {
	h := newHost(t)
	mon := func(id, fsid string) string {
		h.touch("mon-" + id + "/data/store.db/CURRENT")
		if err := os.WriteFile(h.touch("mon-"+id+"/data/store.db/000008.sst"), []byte(fsid), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(h.dir, "data", "mon-"+id)
	}
	b, c := mon("b", theirs), mon("c", ours)
	other := &host{t: t, dir: h.dir}
	copied, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	other.then = func(name string, args []string) error {
		if name == "ceph-mon" && slices.Contains(args, "--id=c") {
			close(copied)
			<-goOn
		}
		return nil
	}
	begun := false
	h.then = func(name string, args []string) error {
		if name != "ceph-mon" || !slices.Contains(args, "--id=b") || begun {
			return nil
		}
		begun = true
		go func() {
			defer close(ended)
			_, _ = other.host().Clean(t.Context(), request())
		}()
		select {
		case <-copied:
		case <-time.After(300 * time.Millisecond): // it waits for its turn
		}
		return nil
	}
	r := h.clean(request())
	close(goOn)
	<-ended
	if !there(b) {
		t.Errorf("the store of another cluster is gone: %v", r)
	}
	if there(c) {
		t.Errorf("the cluster's own store is left: %v", r)
	}
}

// A volume is one of the cluster's by its tags, at the moment when it is written to: the
// disks before it can have taken hours, and its name may be another's by then.
func TestAVolumeIsProvenRightBeforeItIsOverwritten(t *testing.T) {
	const lv = "TGhIGb-7saw-2ZSa-vETE-07lr-1jhE-tejScT"
	for name, change := range map[string]func(f *device.Found){
		"made again under its name":     func(f *device.Found) { f.LVUUID = "another" },
		"given to another OSD":          func(f *device.Found) { f.UUID = osd2 },
		"given to another cluster":      func(f *device.Found) { f.FSID = theirs },
		"nobody's, with data":           func(f *device.Found) { f.UUID, f.ID = "", -1 },
		"gone and another has the name": func(f *device.Found) { f.LV = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			p := h.disk("mapper/vg-lv", 64<<20, map[int64][]byte{0: block(osd1, "main", ours, 1), 8 << 20: []byte("somebody's data")})
			f := h.finds("vg/lv", "lvm", osd1, ours, 1, device.RoleBlock)
			f.VG, f.LV, f.LVUUID = "vg", "lv", lv
			now := *f
			change(&now)
			h.later = []device.Found{now}
			req := request(task.OSD{ID: 1, UUID: osd1})
			req.Method = task.Complete
			r := h.clean(req)
			if got := string(h.read(p, 8<<20, 15)); got != "somebody's data" {
				t.Errorf("%q: it was overwritten", got)
			}
			if len(r.Failures()) == 0 || slices.ContainsFunc(h.runs, func(s string) bool { return strings.HasPrefix(s, "ceph-volume") }) {
				t.Errorf("%v, ran %v", r, h.runs)
			}
		})
	}
}
