// Package zap removes the volumes that a purged OSD has left on a device that it
// shared with others.
//
// It must not remove a volume on the strength of its name: the volume's own uuid and
// its tags have to say that it is this OSD's.
package zap

import (
	"context"
	"errors"
	"fmt"

	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// Closer closes the mappings on volumes.
type Closer interface {
	Close(ctx context.Context, lvs []request.LV) ([]string, error)
}

// Run removes the volumes. One that is not there any more is no error. Nothing is
// removed when one of them is not proven to be the OSD's.
func Run(ctx context.Context, closer Closer, runner run.Runner, req request.Zap) error {
	if req.UUID == "" {
		return fmt.Errorf("removing the volumes of osd.%d: its uuid is not given", req.OSD)
	}
	gone, err := find(ctx, runner, req)
	if err != nil || len(gone) == 0 {
		return err
	}
	if _, err := closer.Close(ctx, req.LVs); err != nil {
		return err
	}
	var failures []error
	for _, lv := range gone {
		// The head goes first: what is made here next must not look like this OSD.
		if _, err := runner.Run(ctx, "wipefs", "--all", lv.Path); err != nil {
			failures = append(failures, fmt.Errorf("wiping %s: %w", lv.Full(), err))
			continue
		}
		if _, err := runner.Run(ctx, "lvremove", "--yes", lv.Full()); err != nil {
			failures = append(failures, fmt.Errorf("removing %s: %w", lv.Full(), err))
		}
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	left, err := find(ctx, runner, req)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("removing %s: it is still there", left[0].Full())
	}
	return err
}

// find returns those of the volumes that are there, and an error if one is not this
// OSD's.
func find(ctx context.Context, runner run.Runner, req request.Zap) ([]volume.LV, error) {
	out, err := runner.Run(ctx, "lvs", volume.LVsArgs()...)
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	all, err := volume.ParseLVs(out)
	if err != nil {
		return nil, err
	}
	var found []volume.LV
	for _, want := range req.LVs {
		lv := volume.FindLV(all, want.VG, want.Name)
		switch {
		case lv == nil:
		case want.UUID != "" && lv.UUID != want.UUID:
			return nil, fmt.Errorf("%s has the uuid %s, the recorded one had %s: it is left alone", lv.Full(), lv.UUID, want.UUID)
		case lv.OSDUUID() != req.UUID || lv.OSD() != req.OSD:
			return nil, fmt.Errorf("%s is tagged as of osd.%d (uuid %q), not of osd.%d (%s): it is left alone", lv.Full(), lv.OSD(), lv.OSDUUID(), req.OSD, req.UUID)
		default:
			found = append(found, *lv)
		}
	}
	return found, nil
}
