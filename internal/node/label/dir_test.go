package label

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// real is the label that ceph-osd --mkfs of 20.2.4 has written to a disk of 4 GiB, with
// the key of an OSD that never was in a cluster.
func real(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open("testdata/label.bin.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func dirFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(bytes.TrimSpace(b))
	}
	return out
}

// testdata/primed is what ceph-bluestore-tool prime-osd-dir of 20.2.4 has made of the label.
func TestWriteDirIsWhatTheToolWrites(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(dir, "whoami")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also over what an earlier start has left
		if err := WriteDir(bytes.NewReader(real(t)), dir, func(Label) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(dirFiles(t, "testdata/primed"), dirFiles(t, dir)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if _, err := os.Stat(outside); err == nil {
		t.Error("a link was followed")
	}
	st, err := os.Stat(filepath.Join(dir, "keyring"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", st.Mode(), err)
	}
}

func TestWriteDirLeavesTheDirectoryAlone(t *testing.T) {
	refuse := errors.New("it is another's")
	for name, tc := range map[string]struct {
		block []byte
		own   error
	}{
		"another's":     {real(t), refuse},
		"a database's":  {encode(uuid, "bluefs db", 1<<30, [][2]string{{"osd_key", "canary"}, {"whoami", "1"}}), nil},
		"without a key": {encode(uuid, "main", 1<<30, [][2]string{{"whoami", "1"}}), nil},
		"no label":      {make([]byte, Size), nil},
		"cut off":       {real(t)[:200], nil},
	} {
		dir := t.TempDir()
		err := WriteDir(bytes.NewReader(tc.block), dir, func(Label) error { return tc.own })
		if err == nil || tc.own != nil && !errors.Is(err, tc.own) || bytes.Contains([]byte(err.Error()), []byte("canary")) {
			t.Errorf("%s: %v", name, err)
		}
		if got := dirFiles(t, dir); len(got) > 0 {
			t.Errorf("%s: wrote %v", name, got)
		}
	}
}
