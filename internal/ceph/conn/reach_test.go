package conn

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestMonsOf(t *testing.T) {
	a := func(s ...string) (out []netip.AddrPort) {
		for _, s := range s {
			out = append(out, netip.MustParseAddrPort(s))
		}
		return out
	}
	for in, want := range map[string][][]netip.AddrPort{
		"[v2:10.0.0.1:3300],[v2:10.0.0.2:3300]":                      {a("10.0.0.1:3300"), a("10.0.0.2:3300")},
		"[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300]":     {a("10.0.0.1:3300", "10.0.0.1:6789"), a("10.0.0.2:3300")},
		"[v2:[fd00::1]:3300,v1:[fd00::1]:6789], [v2:[fd00::2]:3300]": {a("[fd00::1]:3300", "[fd00::1]:6789"), a("[fd00::2]:3300")},
		"v2:10.0.0.1:3300,10.0.0.2:6789":                             {a("10.0.0.1:3300"), a("10.0.0.2:6789")},
		"":                                                           nil,
		"mon.example.com:3300":                                       nil,
		"10.0.0.1":                                                   nil,
		"[v2:10.0.0.1:3300/0]":                                       nil,
		"[v2:10.0.0.1:3300],mon.example.com":                         nil,
	} {
		if d := cmp.Diff(want, monsOf(in), cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", in, d)
		}
	}
}

// listener takes connections at a port of its own until it is closed.
func listener(t *testing.T) (net.Listener, netip.AddrPort) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, netip.MustParseAddrPort(l.Addr().String())
}

func TestReachable(t *testing.T) {
	_, a := listener(t)
	_, b := listener(t)
	l, c := listener(t)
	_ = l.Close()
	mons := func(addrs ...netip.AddrPort) (out [][]netip.AddrPort) {
		for _, a := range addrs {
			out = append(out, []netip.AddrPort{a})
		}
		return out
	}
	for _, tt := range []struct {
		name string
		mons [][]netip.AddrPort
		// least and most that it may take.
		least, most time.Duration
		err         string
	}{
		{"a majority", mons(a, c, b), 0, settleFor / 2, ""},
		{"not known where", nil, 0, settleFor / 2, ""},
		{"one address of two", [][]netip.AddrPort{{c, a}}, 0, settleFor / 2, ""},
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
	go func() { found <- reachable(t.Context(), [][]netip.AddrPort{{addr}}) }()
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
