//go:build cgo

package contract

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
)

func TestReal(t *testing.T) {
	host, ring := os.Getenv("CASTELLAN_CONTRACT_MON_HOST"), os.Getenv("CASTELLAN_CONTRACT_KEYRING")
	if host == "" || ring == "" {
		t.Skip("needs a real cluster: CASTELLAN_CONTRACT_MON_HOST and CASTELLAN_CONTRACT_KEYRING")
	}
	b, err := os.ReadFile(ring)
	if err != nil {
		t.Fatal(err)
	}
	var key string
	for _, l := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(l, "="); ok && strings.TrimSpace(k) == "key" {
			key = strings.TrimSpace(v)
		}
	}
	p := conn.New()
	defer p.Close()
	c := p.Cluster("contract", conn.Config{MonHost: host, User: "client.admin", Key: ceph.NewSecret(key)})
	Run(t, c, Options{Real: true, Steps: 600, Step: func() { time.Sleep(200 * time.Millisecond) }})
}
