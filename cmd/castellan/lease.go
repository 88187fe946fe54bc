package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The lease by which one of several replicas leads. The times are the defaults of
// Kubernetes' own components: others take over leaseDuration after they have last
// seen the lease renewed, and a leader that cannot renew for renewDeadline ends.
const (
	leaseName     = "castellan.ceph.io"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// lease is the lock, and knows until when this process may act.
type lease struct {
	resourcelock.Interface
	identity string
	started  time.Time
	now      func() time.Time
	// renewed is the time since started at which the last successful renewal began,
	// plus one; 0 says that there was none.
	renewed atomic.Int64
}

// newLease makes the lock. identity is the pod, not the process: a container that
// has crashed takes its own lease up again at once instead of waiting for it to
// run out. It is safe since the kubelet starts a container only when the one before
// it has ended.
func newLease(cfg *rest.Config, namespace, identity string) (*lease, error) {
	c, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for the lease: %w", err)
	}
	return &lease{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
			Client:    c, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		identity: identity, started: time.Now(), now: time.Now,
	}, nil
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(r, func() error { return l.Interface.Create(ctx, r) })
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(r, func() error { return l.Interface.Update(ctx, r) })
}

func (l *lease) note(r resourcelock.LeaderElectionRecord, write func() error) error {
	began := l.now().Sub(l.started) + 1
	err := write()
	switch {
	case err != nil:
	case r.HolderIdentity == l.identity:
		l.renewed.Store(int64(began))
	default:
		l.renewed.Store(0) // given up
	}
	return err
}

// Fence is asked before every effect of every controller. A process that was
// stopped or cut off for longer than renewDeadline must not act: another may have
// taken over.
func (l *lease) Fence(context.Context) error {
	renewed := time.Duration(l.renewed.Load())
	if renewed == 0 {
		return fmt.Errorf("this process does not hold the lease %s", leaseName)
	}
	if ago := l.now().Sub(l.started) - renewed; ago > renewDeadline {
		return fmt.Errorf("the lease %s was last renewed %s ago", leaseName, ago.Round(time.Second))
	}
	return nil
}
