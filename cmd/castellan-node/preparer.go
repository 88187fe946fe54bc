package main

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/rawosd"
	"github.com/castellan-storage/castellan/internal/node/run"
)

// preparer makes plain OSDs itself and has ceph-volume make those on LVM.
type preparer struct {
	node inspect.Node
	run  run.Exec
	raw  *rawosd.Maker
}

func newPreparer(node inspect.Node, exec run.Exec, fsid string, notes rawosd.Notes) (*preparer, error) {
	uid, gid, err := cephUser()
	if err != nil {
		return nil, err
	}
	return &preparer{node: node, run: exec, raw: &rawosd.Maker{
		Run: exec, Notes: notes, Root: "/", FSID: fsid, UID: uid, GID: gid, Random: rand.Reader,
	}}, nil
}

// Settle implements provision.Preparer. Most runs have nothing to settle, and then
// the disks are not looked at for it.
func (p *preparer) Settle(ctx context.Context) []string {
	left, err := p.raw.Unsettled(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	if !left {
		return nil
	}
	seen, err := p.node.Look(ctx)
	if err != nil {
		return []string{fmt.Sprintf("ending what an earlier run has begun: %v", err)}
	}
	return p.raw.Settle(ctx, seen.Devices)
}

// Prepare implements provision.Preparer.
func (p *preparer) Prepare(ctx context.Context, c prepare.Command, devices []device.Device) error {
	if c.Raw && len(devices) == 1 {
		return p.raw.Make(ctx, devices[0], c.DeviceClass)
	}
	_, err := p.run.Run(ctx, "ceph-volume", c.Args...)
	return err
}
