package cache

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUser(t *testing.T) {
	const path = "parts/bin/0123456789abcdef0123"
	process := func(exe, mountinfo, cmdline string) string {
		dir := t.TempDir()
		p := filepath.Join(dir, "4711")
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, "self"), 0o755); err != nil {
			t.Fatal(err)
		}
		if exe != "" {
			if err := os.Symlink(exe, filepath.Join(p, "exe")); err != nil {
				t.Fatal(err)
			}
		}
		for f, content := range map[string]string{"mountinfo": mountinfo, "cmdline": cmdline} {
			if err := os.WriteFile(filepath.Join(p, f), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	tests := []struct {
		name                    string
		exe, mountinfo, cmdline string
		want                    int
	}{
		{name: "a kernel thread"},
		{name: "something else", exe: "/usr/bin/sh", mountinfo: "1 2 3:4 / / rw - ext4 /dev/vda rw\n", cmdline: "sh\x00-c\x00true\x00"},
		{name: "another entry of the part", exe: "/c/parts/bin/ffffffffffffffffffff/hyper"},
		{name: "its program", exe: "/c/" + path + "/hyper", want: 4711},
		{name: "a bind mount", exe: "/usr/bin/sh", mountinfo: "1 2 3:4 /cache/" + path + " /opt/k8s ro - ext4 /dev/vda rw\n", want: 4711},
		{name: "an argument", exe: "/usr/bin/sh", cmdline: "linux\x00rootflags=/c/" + path + "/rootfs\x00", want: 4711},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := user(process(tt.exe, tt.mountinfo, tt.cmdline), path)
			if err != nil || got != tt.want {
				t.Errorf("user = %d, %v, want %d", got, err, tt.want)
			}
		})
	}
	if _, err := user(filepath.Join(t.TempDir(), "absent"), path); err == nil {
		t.Error("an unreadable /proc passes for one where nothing uses the entry")
	}
}
