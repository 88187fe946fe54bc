package initramfs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWrite reads the archive back with cpio, which is what defines the format
// together with the kernel.
func TestWrite(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("cpio is not installed: the archive cannot be read back with it; TestLayout checks its bytes")
	}
	var buf bytes.Buffer
	files := []File{{Name: "init", Mode: 0o755, Data: []byte("12345")}, {Name: "etc/a/c", Mode: 0o600, Data: []byte("x")}}
	if err := Write(&buf, []string{"proc"}, files); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cpio", "-id", "--quiet")
	cmd.Dir, cmd.Stdin = t.TempDir(), &buf
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(cmd.Dir, f.Name))
		if err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("%s = %q, %v", f.Name, got, err)
		}
	}
	if st, err := os.Stat(filepath.Join(cmd.Dir, "proc")); err != nil || !st.IsDir() {
		t.Errorf("proc: %v", err)
	}
}

func TestLayout(t *testing.T) {
	var buf bytes.Buffer
	if err := Write(&buf, nil, []File{{Name: "a", Mode: 0o755, Data: []byte("12345")}}); err != nil {
		t.Fatal(err)
	}
	want := "070701" + "00000001" + "000081ED" + "00000000" + "00000000" + "00000001" + "00000000" + "00000005" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000002" + "00000000" + "a\x00" + "12345\x00\x00\x00" +
		"070701" + "00000002" + "00000000" + "00000000" + "00000000" + "00000001" + "00000000" + "00000000" +
		"00000000" + "00000000" + "00000000" + "00000000" + "0000000B" + "00000000" + "TRAILER!!!\x00\x00\x00\x00"
	if diff := cmp.Diff(want, buf.String()); diff != "" {
		t.Error(diff)
	}
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "/init", "../x", "a//b", "a/"} {
		if err := Write(&bytes.Buffer{}, nil, []File{{Name: name}}); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}
