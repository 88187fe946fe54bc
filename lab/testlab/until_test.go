package testlab

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestTelling(t *testing.T) {
	said := errors.New("osd.3 is down")
	limiter := errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name      string
		ctx       context.Context
		last, err error
		want      error
	}{
		{"the newest while there is time", t.Context(), errors.New("osd.2 is down"), said, said},
		{"the limiter has nothing to tell", t.Context(), said, limiter, said},
		{"a request that ran into the deadline", t.Context(), said, fmt.Errorf("listing pods: %w", context.DeadlineExceeded), said},
		{"a request that was broken off", cancelled, said, errors.New("signal: killed"), said},
		{"better than nothing", cancelled, nil, limiter, limiter},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := telling(c.ctx, c.last, c.err); !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
