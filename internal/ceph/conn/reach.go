package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/castellan-storage/castellan/internal/ceph/monhost"
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
	// What is no plain list of addresses, librados makes out by itself.
	mons, _ := monhost.Parse(cfg.MonHost)
	if err := reachable(ctx, mons); err != nil {
		return nil, fmt.Errorf("connecting to %s as %s: %w", cfg.MonHost, cfg.User, err)
	}
	return dialRados(cfg, unbounded)
}

// reachable waits until a majority of mons takes connections, or one of them has done so
// for a while. The error is that of the last try.
func reachable(ctx context.Context, mons [][]monhost.Addr) error {
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
func knockAt(ctx context.Context, mons [][]monhost.Addr) (open int, err error) {
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
func takes(ctx context.Context, addrs []monhost.Addr) error {
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
