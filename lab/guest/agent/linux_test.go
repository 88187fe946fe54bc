package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree makes files, and links where the content begins with "->".
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := cutLink(content); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func cutLink(s string) (string, bool) {
	if len(s) > 2 && s[:2] == "->" {
		return s[2:], true
	}
	return "", false
}

func TestDisks(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/block/loop0/size":                  "8\n",
		"sys/block/ubdb/size":                   "2048\n",
		"sys/block/ubdb/serial":                 "S1\n",
		"sys/block/ubdb/ubdb1/partition":        "1\n",
		"sys/block/ubdc/size":                   "4096\n",
		"sys/class/block/ubdb1/holders/dm-0/x":  "",
		"sys/class/block/ubdc/holders/dm-1/x":   "",
		"sys/class/block/dm-0/dm/name":          "vg-lv\n",
		"sys/class/block/dm-1/dm/name":          "crypt\n",
		"proc/self/mounts":                      "/dev/ubdc /mnt ext4 rw 0 0\nproc /proc proc rw 0 0\n",
		"proc/12/fd/3":                          "->/dev/ubdc",
		"proc/12/fd/4":                          "->/dev/null",
		"proc/12/comm":                          "ceph-osd\n",
		"dev/disk/by-id/ubd-UBD_S1":             "->../../ubdb",
		"dev/disk/by-path/platform-uml-blkdev1": "->../../ubdb",
	})
	got, err := (&Linux{Root: root}).Disks(true)
	if err != nil {
		t.Fatal(err)
	}
	want := []Disk{
		{Name: "ubdb", Size: 1 << 20, Serial: "S1", Holders: []string{"device-mapper vg-lv"},
			Links: []string{"/dev/disk/by-id/ubd-UBD_S1", "/dev/disk/by-path/platform-uml-blkdev1"}},
		{Name: "ubdc", Size: 2 << 20, Holders: []string{"device-mapper crypt", "mounted on /mnt", "open by ceph-osd (pid 12)"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDisksUnreadable(t *testing.T) {
	root := tree(t, map[string]string{"sys/block/ubdb/size": "many", "proc/self/mounts": ""})
	if _, err := (&Linux{Root: root}).Disks(true); err == nil {
		t.Error("a size that is no number was accepted")
	}
}

func TestCutHoldersName(t *testing.T) {
	for _, bad := range []string{"", "../ubdb", "dev/ubdb", "."} {
		if err := (&Linux{Root: "/"}).CutHolders(t.Context(), bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
