package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// entry is what a test wants to know of a file in a tar.
type entry struct {
	Name, Link, Content string
	Type                byte
	Mode                int64
	Time                int64
}

func read(t *testing.T, r io.Reader) []entry {
	t.Helper()
	var out []entry
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uname != "" || h.Gname != "" {
			t.Errorf("%s carries names of this machine's users: %q %q", h.Name, h.Uname, h.Gname)
		}
		out = append(out, entry{h.Name, h.Linkname, string(b), h.Typeflag, h.Mode, h.ModTime.Unix()})
	}
}

func TestWriteTarKeepsARoot(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "usr/bin/su"), "su", 0o755|os.ModeSetuid)
	write(t, filepath.Join(root, "usr/bin/a"), "aa", 0o700)
	write(t, filepath.Join(root, "var/cache/x"), "x", 0o644)
	for from, to := range map[string]string{"usr/bin/b": "usr/bin/a"} {
		if err := os.Link(filepath.Join(root, to), filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Unix(1700000000, 999)
	for _, p := range []string{"usr/bin/a", "usr/bin/su", "usr/bin", "usr", "pipe", "var"} {
		if err := os.Chtimes(filepath.Join(root, p), when, when); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	skip := func(name string) bool { return name == "var/cache" }
	if err := WriteTar(&out, []Add{{Source: root, Destination: "/", Keep: true, Skip: skip}}); err != nil {
		t.Fatal(err)
	}
	got := read(t, &out)
	for i := range got {
		if got[i].Type == tar.TypeSymlink {
			got[i].Time = 1700000000 // its time cannot be set portably
		}
	}
	const at = 1700000000
	want := []entry{
		{"bin", "usr/bin", "", tar.TypeSymlink, 0o777, at},
		{"pipe", "", "", tar.TypeFifo, 0o600, at},
		{"usr/", "", "", tar.TypeDir, 0o755, at},
		{"usr/bin/", "", "", tar.TypeDir, 0o755, at},
		{"usr/bin/a", "", "aa", tar.TypeReg, 0o700, at},
		{"usr/bin/b", "usr/bin/a", "", tar.TypeLink, 0o700, at},
		{"usr/bin/su", "", "su", tar.TypeReg, 0o4755, at},
		{"var/", "", "", tar.TypeDir, 0o755, at},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tar (-want +got):\n%s", diff)
	}
}

func TestWriteTarOfFilesIsReproducible(t *testing.T) {
	tarOf := func(mtime time.Time) []byte {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "castellan"), "binary", 0o755)
		write(t, filepath.Join(dir, "conf/a"), "A", 0o600)
		for _, p := range []string{"castellan", "conf/a", "conf"} {
			if err := os.Chtimes(filepath.Join(dir, p), mtime, mtime); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		err := WriteTar(&out, []Add{
			{Source: filepath.Join(dir, "castellan"), Destination: "/usr/local/bin/castellan"},
			{Source: filepath.Join(dir, "conf"), Destination: "/usr/local/etc"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	a, b := tarOf(time.Unix(1, 0)), tarOf(time.Now())
	if !bytes.Equal(a, b) {
		t.Error("the same content made at another time gives another tar")
	}
	want := []entry{
		{"usr/", "", "", tar.TypeDir, 0o755, 0},
		{"usr/local/", "", "", tar.TypeDir, 0o755, 0},
		{"usr/local/bin/", "", "", tar.TypeDir, 0o755, 0},
		{"usr/local/bin/castellan", "", "binary", tar.TypeReg, 0o755, 0},
		{"usr/local/etc/", "", "", tar.TypeDir, 0o755, 0},
		{"usr/local/etc/a", "", "A", tar.TypeReg, 0o600, 0},
	}
	if diff := cmp.Diff(want, read(t, bytes.NewReader(a))); diff != "" {
		t.Errorf("tar (-want +got):\n%s", diff)
	}
}

func TestWriteTarOfNothing(t *testing.T) {
	err := WriteTar(io.Discard, []Add{{Source: filepath.Join(t.TempDir(), "absent"), Destination: "/x"}})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("WriteTar of an absent file = %v, want it to say so", err)
	}
}

func TestParseAdd(t *testing.T) {
	tests := []struct {
		in, src, dst string
		bad          bool
	}{
		{in: "bin/castellan:/usr/local/bin/castellan", src: "bin/castellan", dst: "/usr/local/bin/castellan"},
		{in: "bin/castellan:/usr/local/bin/", src: "bin/castellan", dst: "/usr/local/bin/castellan"},
		{in: "a:/b/../c", src: "a", dst: "/c"},
		{in: "a", bad: true},
		{in: ":/x", bad: true},
		{in: "a:", bad: true},
		{in: "a:b", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseAdd(tt.in)
			if (err != nil) != tt.bad || got.Source != tt.src || got.Destination != tt.dst {
				t.Errorf("ParseAdd = %+v, %v", got, err)
			}
		})
	}
}

// check verifies that every blob is named by its content, that all descriptors
// of the image lead to blobs but those in absent, and that the diff ids are
// those of the layers; it returns the config.
func check(t *testing.T, l *Layout, name string, absent map[string]bool) imageConfig {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(l.Dir(), "blobs/sha256/*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("blobs: %v, %v", blobs, err)
	}
	for _, b := range blobs {
		content, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != filepath.Base(b) {
			t.Errorf("the blob %s has other content", b)
		}
	}
	d, err := l.find(name)
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := l.readBlob(d.Digest, &m); err != nil {
		t.Fatal(err)
	}
	var c imageConfig
	if err := l.readBlob(m.Config.Digest, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		t.Fatalf("%d layers, %d diff ids", len(m.Layers), len(c.RootFS.DiffIDs))
	}
	for i, layer := range m.Layers {
		b, err := os.ReadFile(l.blob(layer.Digest))
		if absent[layer.Digest] {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the base's layer was copied (%v)", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(b)) != layer.Size {
			t.Errorf("layer %d has %d bytes, the manifest says %d", i, len(b), layer.Size)
		}
		z, err := zstd.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		if _, err := io.Copy(h, z); err != nil {
			t.Fatal(err)
		}
		z.Close()
		if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != c.RootFS.DiffIDs[i] {
			t.Errorf("layer %d unpacks to %s, the config says %s", i, got, c.RootFS.DiffIDs[i])
		}
	}
	return c
}

func TestLayout(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "base"), "base", 0o755)
	write(t, filepath.Join(src, "mine"), "mine", 0o755)
	base, err := CreateLayout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/bash"}, Labels: map[string]string{"a": "1"}}
	if _, err := base.AddImage("localhost/ceph:1", cfg, []Add{{Source: filepath.Join(src, "base"), Destination: "/base"}}); err != nil {
		t.Fatal(err)
	}
	check(t, base, "localhost/ceph:1", nil)

	base, err = OpenLayout(base.Dir())
	if err != nil {
		t.Fatal(err)
	}
	top, err := CreateLayout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mine := []Add{{Source: filepath.Join(src, "mine"), Destination: "/mine"}}
	over := Config{Env: []string{"A=b"}, Entrypoint: []string{"/mine"}, Labels: map[string]string{"b": "2"}}
	digest, err := top.AddOnTop("localhost/mine:1", base, "localhost/ceph:1", over, mine)
	if err != nil {
		t.Fatal(err)
	}
	bd, err := base.find("localhost/ceph:1")
	if err != nil {
		t.Fatal(err)
	}
	var bm manifest
	if err := base.readBlob(bd.Digest, &bm); err != nil {
		t.Fatal(err)
	}
	got := check(t, top, "localhost/mine:1", map[string]bool{bm.Layers[0].Digest: true})
	want := Config{Env: []string{"PATH=/bin", "A=b"}, Entrypoint: []string{"/mine"}, Labels: map[string]string{"a": "1", "b": "2"}}
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("config on top (-want +got):\n%s", diff)
	}
	again, err := top.AddOnTop("localhost/mine:1", base, "localhost/ceph:1", over, mine)
	if err != nil || again != digest {
		t.Errorf("the same again has digest %s, not %s (%v)", again, digest, err)
	}
	if diff := cmp.Diff([]string{"localhost/mine:1"}, top.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, err := top.AddOnTop("localhost/x:1", base, "localhost/none:1", Config{}, mine); err == nil || !strings.Contains(err.Error(), "localhost/ceph:1") {
		t.Errorf("an unknown base gives %v, want an error that names what there is", err)
	}
	left, err := filepath.Glob(filepath.Join(top.Dir(), "layer-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the layout: %v, %v", left, err)
	}
}

func TestStream(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "f"), "f", 0o755)
	l, err := CreateLayout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AddImage("localhost/f:1", Config{}, []Add{{Source: filepath.Join(src, "f"), Destination: "/f"}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.Stream(&out); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	var names []string
	for _, e := range read(t, &out) {
		files[e.Name] = e.Content
		names = append(names, e.Name)
	}
	// containerd reads the kind of the archive first.
	if len(names) != 5 || names[0] != "oci-layout" || names[1] != "index.json" {
		t.Fatalf("the archive holds %v", names)
	}
	if !sort.StringsAreSorted(names[2:]) {
		t.Errorf("blobs are not in order: %v", names)
	}
	var idx index
	if err := json.Unmarshal([]byte(files["index.json"]), &idx); err != nil {
		t.Fatal(err)
	}
	if len(idx.Manifests) != 1 || idx.Manifests[0].Annotations["io.containerd.image.name"] != "localhost/f:1" {
		t.Errorf("index: %+v", idx)
	}
}

func TestSeedRoot(t *testing.T) {
	dir := t.TempDir()
	golden, dst := filepath.Join(dir, "golden"), filepath.Join(dir, "node")
	write(t, filepath.Join(golden, "blobs/sha256/aa"), "layer", 0o644)
	write(t, filepath.Join(golden, "meta.db"), "db", 0o600)
	if err := os.Symlink("nowhere", filepath.Join(golden, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(golden, "blobs"), 0o711|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := SeedRoot(golden, dst); err != nil {
		t.Fatal(err)
	}
	same := func(name string) bool {
		a, err := os.Lstat(filepath.Join(golden, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.Lstat(filepath.Join(dst, name))
		if err != nil {
			t.Fatal(err)
		}
		if a.Mode() != b.Mode() || (!a.IsDir() && a.Size() != b.Size()) {
			t.Errorf("%s: %v %d became %v %d", name, a.Mode(), a.Size(), b.Mode(), b.Size())
		}
		return os.SameFile(a, b)
	}
	for name, linked := range map[string]bool{"blobs": false, "blobs/sha256/aa": true, "meta.db": false, "link": true} {
		if got := same(name); got != linked {
			t.Errorf("%s is the same file: %v, want %v", name, got, linked)
		}
	}
	if err := SeedRoot(golden, dst); !errors.Is(err, os.ErrExist) {
		t.Errorf("seeding over a root = %v, want an error", err)
	}
}
