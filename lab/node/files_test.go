package node

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/lab/cluster/pki"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestFiles(t *testing.T) {
	fs := files(Spec{
		Name: "node2", MachineID: "0123456789abcdef0123456789abcdef", Server: "https://172.30.0.1:6443", Pause: "localhost/pause:1",
		Addr: netip.MustParsePrefix("172.30.0.12/24"), PodCIDR: netip.MustParsePrefix("10.244.2.0/24"),
		CA:      []byte("CA\n"),
		Kubelet: pki.Pair{Cert: []byte("kubelet cert\n"), Key: []byte("kubelet key\n")},
		Proxy:   pki.Pair{Cert: []byte("proxy cert\n"), Key: []byte("proxy key\n")},
	})
	var b strings.Builder
	for _, f := range fs {
		_, _ = fmt.Fprintf(&b, "=== %s %o\n%s\n", f.path, f.mode, f.data)
		secret := strings.Contains(string(f.data), "key-data") || strings.Contains(string(f.data), " key\n")
		if secret && f.mode != 0o600 {
			t.Errorf("%s holds a key and has mode %o", f.path, f.mode)
		}
	}
	const golden = "testdata/files.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Error(d)
	}
}

func TestInitRefuses(t *testing.T) {
	if err := Init(t.Context(), false); err == nil || !strings.Contains(err.Error(), "castellan-lab up") {
		t.Errorf("started by hand: %v", err)
	}
}
