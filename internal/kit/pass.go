package kit

import (
	"context"
	"time"
)

// Pass is what is fixed for one pass.
type Pass struct {
	Controller string
	Key        Key
	// Now is the one time of the pass. Whatever compares times compares with this.
	Now time.Time
}

type passKey struct{}

// WithPass gives a context that carries p. kit does this for every pass; tests of
// an Observe do it themselves.
func WithPass(ctx context.Context, p Pass) context.Context {
	return context.WithValue(ctx, passKey{}, p)
}

// PassOf gives the pass that ctx belongs to. It panics outside of one: there is no
// sensible time or key to return.
func PassOf(ctx context.Context) Pass {
	p, ok := ctx.Value(passKey{}).(Pass)
	if !ok {
		panic("kit.PassOf: context of no pass")
	}
	return p
}

// Now is the time of the pass that ctx belongs to.
func Now(ctx context.Context) time.Time { return PassOf(ctx).Now }
