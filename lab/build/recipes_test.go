package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAddNotifyTypes(t *testing.T) {
	const src = `class MgrModuleLoggingMixin(object):
    pass

class MgrModule(ceph_module.BaseMgrModule, MgrModuleLoggingMixin):
    MGR_POOL_NAME = ".mgr"
`
	const want = `class MgrModuleLoggingMixin(object):
    pass

class MgrModule(ceph_module.BaseMgrModule, MgrModuleLoggingMixin):
    NOTIFY_TYPES = []
    MGR_POOL_NAME = ".mgr"
`
	got, err := addNotifyTypes([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("patched (-want +got):\n%s", diff)
	}
	for name, src := range map[string]string{
		"no class":         "x = 1\n",
		"two classes":      src + src,
		"over two lines":   "\nclass MgrModule(A,\n  B):\n    X = 1\n",
		"ends in its head": "\nclass MgrModule(A):",
	} {
		if _, err := addNotifyTypes([]byte(src)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The versions that are shown and compiled in are those that the modules pin.
func TestVersionsArePinned(t *testing.T) {
	src, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ module, require, version string }{
		{partKubernetes, "k8s.io/kubernetes", versionKubernetes},
		{partContainerd, "github.com/containerd/containerd/v2", versionContainerd},
		{partRunc, "github.com/opencontainers/runc", versionRunc},
		{partCNI, "github.com/containernetworking/plugins", versionCNI},
		{partCoreDNS, "github.com/coredns/coredns", versionCoreDNS},
	} {
		b, err := os.ReadFile(filepath.Join(src, "modules", tt.module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		re := regexp.MustCompile(`(?m)^\s*(require )?` + regexp.QuoteMeta(tt.require+" "+tt.version) + `\b`)
		if !re.Match(b) {
			t.Errorf("%s's go.mod does not require %s %s", tt.module, tt.require, tt.version)
		}
	}
}

func TestSource(t *testing.T) {
	src := source(t)
	t.Setenv(EnvSource, src)
	if got, err := Source(); err != nil || got != src {
		t.Errorf("Source() = %q, %v, want %q", got, err, src)
	}
	t.Setenv(EnvSource, t.TempDir())
	if got, err := Source(); err == nil || !strings.Contains(err.Error(), EnvSource) {
		t.Errorf("Source() with a wrong %s = %q, %v", EnvSource, got, err)
	}
	t.Setenv(EnvSource, "")
	repo := t.TempDir()
	if err := os.Rename(src, filepath.Join(repo, "lab")); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(repo, "internal", "x")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	got, err := Source()
	if err != nil || filepath.Base(got) != "lab" || filepath.Base(filepath.Dir(got)) != filepath.Base(repo) {
		t.Errorf("Source() from %s = %q, %v", deep, got, err)
	}
}

func TestFits(t *testing.T) {
	const gib = 1 << 30
	disk := func(id uint64, have int64) func(string) (uint64, int64, error) {
		return func(path string) (uint64, int64, error) {
			if path == "/other" {
				return id + 1, 5 * gib, nil
			}
			return id, have, nil
		}
	}
	tests := []struct {
		name string
		vols []volume
		have int64
		want string
	}{
		{"enough", []volume{{"a", "/a", 4 * gib}, {"b", "/b", 4 * gib}}, 8 * gib, ""},
		{"together too much", []volume{{"a", "/a", 4 * gib}, {"b", "/b", 4 * gib}}, 7 * gib,
			"too little disk for a and b: building needs 8.0 GiB at /a and 7.0 GiB are free (CASTELLAN_LAB_CACHE and GOCACHE move it)"},
		{"on two disks", []volume{{"a", "/a", 4 * gib}, {"b", "/other", 4 * gib}}, 4 * gib, ""},
		{"one of two full", []volume{{"a", "/a", 4 * gib}, {"b", "/other", 6 * gib}}, 4 * gib,
			"too little disk for b: building needs 6.0 GiB at /other and 5.0 GiB are free (CASTELLAN_LAB_CACHE and GOCACHE move it)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := fits(tt.vols, disk(1, tt.have)); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("fits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFreeSpaceOfWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	id, have, err := freeSpace(dir)
	if err != nil || have <= 0 {
		t.Fatalf("freeSpace = %d, %v", have, err)
	}
	deeper, _, err := freeSpace(filepath.Join(dir, "not", "yet"))
	if err != nil || deeper != id {
		t.Errorf("freeSpace of a path to be made is on %d, %v, want %d", deeper, err, id)
	}
}

func TestExplain(t *testing.T) {
	tests := []struct{ name, err, want string }{
		{"no network for Go", "go: proxy: dial tcp: lookup host: no such host", "check the network"},
		{"no network for apt", "E: Failed to fetch something  Could not resolve 'host'", "check the network"},
		{"disk full", "write /x: no space left on device", "the disk is full"},
		{"other content", "verifying module: checksum mismatch", "go.sum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cause := errors.New(tt.err)
			got := explain(fmt.Errorf("compiling: %w", cause))
			if !strings.Contains(got.Error(), tt.want) || !errors.Is(got, cause) {
				t.Errorf("explain = %v, want it to say %q and keep the cause", got, tt.want)
			}
		})
	}
	plain := errors.New("undefined: x")
	if got := explain(plain); got.Error() != plain.Error() {
		t.Errorf("explain changed %v to %v", plain, got)
	}
}

func TestCheckName(t *testing.T) {
	for name, good := range map[string]bool{
		"localhost/castellan:dev":        true,
		"localhost:5000/a/b:1":           true,
		"castellan:dev":                  false,
		"localhost/castellan":            false,
		"localhost/castellan:latest":     false,
		"localhost:5000/castellan":       false,
		"localhost/castellan@sha256:123": false,
		"":                               false,
	} {
		if err := checkName(name); (err == nil) != good {
			t.Errorf("checkName(%q) = %v", name, err)
		}
	}
}

func TestLoadedIsSorted(t *testing.T) {
	dir := t.TempDir()
	for sub, content := range map[string]string{"1": `{"name":"b","digest":"d2"}`, "2": `{"name":"a","digest":"d1"}`} {
		if err := os.MkdirAll(filepath.Join(dir, loadedDir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, loadedDir, sub, "image.json"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Loaded(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []LoadedImage{
		{Name: "a", Digest: "d1", Dir: filepath.Join(dir, loadedDir, "2")}, {Name: "b", Digest: "d2", Dir: filepath.Join(dir, loadedDir, "1")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Loaded (-want +got):\n%s", diff)
	}
	if none, err := Loaded(t.TempDir()); err != nil || none != nil {
		t.Errorf("Loaded of an empty cache = %v, %v", none, err)
	}
}

func TestCleanRoot(t *testing.T) {
	root := t.TempDir()
	for _, f := range []string{"var/log/dpkg.log", "var/log/ceph/x.log", "var/lib/apt/lists/a/b", "dev/null", "etc/machine-id", "etc/passwd", "tmp/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "var/log/ceph"), 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := cleanRoot(root); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, strings.TrimPrefix(p, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"etc/passwd"}, left); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(root, "var/log/ceph"))
	if err != nil || info.Mode().Perm() != 0o770 || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the log directory of Ceph: %v, %v, want it as its package made it", info, err)
	}
}
