package main

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// The mon that wins elections starts once the others are there, and does not wait for ever
// for one that never comes.
func TestAwaitMons(t *testing.T) {
	listen := func() (net.Listener, netip.AddrPort) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l, netip.MustParseAddrPort(l.Addr().String())
	}
	_, there := listen()
	gone, later := listen()
	_ = gone.Close()
	if missing := awaitMons(t.Context(), []netip.AddrPort{there, later}, 300*time.Millisecond); !slices.Equal(missing, []netip.AddrPort{later}) {
		t.Errorf("missing %v, want %v", missing, later)
	}
	opened := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		l, err := net.Listen("tcp", later.String())
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		opened <- err
	})
	missing := awaitMons(t.Context(), []netip.AddrPort{there, later}, 10*time.Second)
	if err := <-opened; err != nil {
		t.Skipf("the port %v was taken meanwhile: %v", later, err)
	}
	if len(missing) > 0 {
		t.Errorf("missing %v", missing)
	}
}
