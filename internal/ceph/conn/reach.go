package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	// knock is how often mons are tried while they do not take connections.
	knock = 100 * time.Millisecond
	// knockTimeout is for one try: a mon whose machine is gone does not even refuse.
	knockTimeout = time.Second
	// settleFor is how long a minority of mons is given to become a majority. After it
	// librados tries with what there is: the list may name mons that are not in the map.
	settleFor = 2 * time.Second
)

// dialReachable is dialRados once mons take connections. librados spins on an address
// that answers with an ICMP error, as a Service without endpoints does: connecting while
// the first mons start took a fifth of a processor from them. And its own connecting
// notices late that they are there.
func dialReachable(cfg Config, unbounded bool) (handle, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cfg.connectTimeout())
	defer cancel()
	if err := reachable(ctx, monsOf(cfg.MonHost)); err != nil {
		return nil, fmt.Errorf("connecting to %s as %s: %w", cfg.MonHost, cfg.User, err)
	}
	return dialRados(cfg, unbounded)
}

// monsOf gives the addresses of each mon of an option mon_host, or nil if they are not
// all plain addresses with ports: librados then finds out by itself.
func monsOf(monHost string) [][]netip.AddrPort {
	var mons [][]netip.AddrPort
	inside := false
	for _, word := range strings.Split(monHost, ",") {
		word = strings.TrimSpace(word)
		first := !inside
		if rest, ok := strings.CutPrefix(word, "[v"); ok {
			word, inside = "v"+rest, true
		}
		last := inside && strings.HasSuffix(word, "]")
		if last {
			word = strings.TrimSuffix(word, "]")
		}
		for _, proto := range []string{"v1:", "v2:"} {
			word = strings.TrimPrefix(word, proto)
		}
		addr, err := netip.ParseAddrPort(word)
		if err != nil || addr.Port() == 0 {
			return nil
		}
		if first {
			mons = append(mons, nil)
		}
		mons[len(mons)-1] = append(mons[len(mons)-1], addr)
		inside = inside && !last
	}
	return mons
}

// reachable waits until a majority of mons takes connections, or one of them has done so
// for a while. The error is that of the last try.
func reachable(ctx context.Context, mons [][]netip.AddrPort) error {
	if len(mons) == 0 {
		return nil
	}
	tick := time.NewTicker(knock)
	defer tick.Stop()
	var since time.Time
	var last error
	for {
		open, err := knockAt(ctx, mons)
		if timeout, ok := errors.AsType[net.Error](err); last == nil || !ok || !timeout.Timeout() {
			last = err // the end of waiting, which is a timeout too, says nothing of the mons
		}
		switch {
		case open > len(mons)/2:
			return nil
		case open == 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > settleFor:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if open > 0 {
				return nil
			}
			return fmt.Errorf("no mon takes connections: %w", last)
		}
	}
}

// knockAt tries all mons at once and says how many take connections.
func knockAt(ctx context.Context, mons [][]netip.AddrPort) (open int, err error) {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	answers := make(chan error, len(mons))
	for _, addrs := range mons {
		go func() { answers <- takes(ctx, addrs) }()
	}
	for range mons {
		if e := <-answers; e == nil {
			open++
		} else {
			err = e
		}
	}
	return open, err
}

// takes is nil if one of a mon's addresses takes a connection.
func takes(ctx context.Context, addrs []netip.AddrPort) error {
	var errs []error
	for _, a := range addrs {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", a.String())
		if err == nil {
			return c.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
