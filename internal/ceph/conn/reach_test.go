package conn

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph/monhost"
)

// listener takes connections at a port of its own until it is closed.
func listener(t *testing.T) (net.Listener, monhost.Addr) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, monhost.Addr{AddrPort: netip.MustParseAddrPort(l.Addr().String())}
}

func TestReachable(t *testing.T) {
	_, a := listener(t)
	_, b := listener(t)
	l, c := listener(t)
	_ = l.Close()
	mons := func(addrs ...monhost.Addr) (out [][]monhost.Addr) {
		for _, a := range addrs {
			out = append(out, []monhost.Addr{a})
		}
		return out
	}
	for _, tt := range []struct {
		name string
		mons [][]monhost.Addr
		// least and most that it may take.
		least, most time.Duration
		err         string
	}{
		{"a majority", mons(a, c, b), 0, settleFor / 2, ""},
		{"not known where", nil, 0, settleFor / 2, ""},
		{"one address of two", [][]monhost.Addr{{c, a}}, 0, settleFor / 2, ""},
		{"a minority", mons(a, c, c), settleFor, 10 * time.Second, ""},
		{"nobody", mons(c, c), 3 * time.Second, 10 * time.Second, "no mon takes connections: dial tcp " + c.String() + ": connect: connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			began := time.Now()
			err := reachable(ctx, tt.mons)
			took := time.Since(began)
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("%v, want %q", err, tt.err)
			}
			if took < tt.least || took > tt.most {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Mons that start while somebody waits for them are found soon.
func TestReachableSoon(t *testing.T) {
	l, addr := listener(t)
	_ = l.Close()
	found := make(chan error, 1)
	go func() { found <- reachable(t.Context(), [][]monhost.Addr{{addr}}) }()
	select {
	case err := <-found:
		t.Fatalf("nobody is there, and %v", err)
	case <-time.After(3 * knock):
	}
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Skipf("the port has been taken meanwhile: %v", err)
	}
	defer func() { _ = l.Close() }()
	if err := <-found; err != nil {
		t.Error(err)
	}
}
