package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePath makes the given scripts the only programs there are.
func fakePath(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

const fakeDpkg = `for name; do :; done
case $name in
here) echo installed ;;
removed) echo not-installed ;;
broken) echo dpkg-query: disk on fire >&2; exit 2 ;;
*) echo "no packages found matching $name" >&2; exit 1 ;;
esac`

func TestInstallPackagesNamesWhatIsMissing(t *testing.T) {
	fakePath(t, map[string]string{"dpkg-query": fakeDpkg})
	tests := []struct {
		name string
		host []string
		want string
	}{
		{"nothing needed", nil, ""},
		{"all there", []string{"here"}, ""},
		{"some missing, in order and once", []string{"zzz", "removed", "here", "aaa", "zzz"},
			"missing Debian packages, as root run: apt-get install --no-install-recommends aaa removed zzz"},
		{"dpkg itself fails", []string{"broken"}, "asking dpkg for broken: dpkg-query: exit status 2: dpkg-query: disk on fire"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			err := installPackages(t.Context(), []*part{{host: tt.host}}, Options{NoInstall: true, Out: &syncBuffer{}})
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

func TestInstallPackagesInstalls(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root is allowed to install")
	}
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	t.Setenv("CALLS", calls)
	t.Setenv("STATE", filepath.Join(dir, "updated"))
	// The first installation fails as it does with old package lists.
	fakePath(t, map[string]string{"dpkg-query": fakeDpkg, "apt-get": `echo "$@" >> "$CALLS"
case "$*" in
*update*) : > "$STATE" ;;
*install*) [ -e "$STATE" ] || { echo "E: Unable to locate package x"; exit 100; } ;;
esac`})
	var out syncBuffer
	if err := installPackages(t.Context(), []*part{{host: []string{"x", "here"}}}, Options{Out: &out}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		f := strings.Fields(l)
		for i, w := range f {
			if w == "install" || w == "update" {
				verbs = append(verbs, strings.Join(f[i:], " "))
			}
		}
	}
	if got := strings.Join(verbs, ", "); got != "install x, update, install x" {
		t.Errorf("apt-get was asked to: %s", got)
	}
	if !strings.Contains(out.String(), "Installing the Debian packages x.") {
		t.Errorf("output %q does not say what is installed", out.String())
	}
}

func TestNoGo(t *testing.T) {
	if _, err := os.Stat("/usr/local/go/bin/go"); err == nil {
		t.Skip("Go is where its archive installs it, so it is always found")
	}
	fakePath(t, nil)
	if err := checkGo(t.Context(), source(t), nil); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("without go: %v", err)
	}
}

func TestGoTooOld(t *testing.T) {
	// What Go says with GOTOOLCHAIN=local.
	fakePath(t, map[string]string{"go": `echo "go: go.mod requires go >= 1.26.8 (running go 1.19.8; GOTOOLCHAIN=local)" >&2; exit 1`})
	err := checkGo(t.Context(), source(t), []*part{{name: partRunc, lane: compiler}})
	if err == nil || !strings.Contains(err.Error(), "this Go cannot build runc") || !strings.Contains(err.Error(), "running go 1.19.8") {
		t.Errorf("with an old go: %v", err)
	}
}
