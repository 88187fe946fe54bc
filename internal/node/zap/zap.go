// Package zap removes the volumes that a purged OSD has left on a device that it
// shared with others.
//
// It must not remove a volume on the strength of its name: the volume's own uuid or
// its tags have to say that it is this OSD's, and nobody may have it open.
package zap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	// As they are recorded, and as they are: one that was made again has another uuid, by
	// which a mapping on it is named.
	mapped := slices.Clone(req.LVs)
	for _, lv := range gone {
		mapped = append(mapped, lv.Named())
	}
	if _, err := closer.Close(ctx, mapped); err != nil {
		return err
	}
	var failures []error
	for _, lv := range gone {
		failures = append(failures, remove(ctx, runner, lv))
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	left, err := find(ctx, runner, req)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("removing %s: it is still there", left[0].Full())
	}
	return err
}

// remove removes a volume. That it can be deactivated is the proof that nobody has it
// open; for wiping it has to be a device, which nobody may have made it since the node's
// start. The head goes first: what is made here next must not look like this OSD.
func remove(ctx context.Context, runner run.Runner, lv volume.LV) error {
	for _, step := range []struct{ doing, name, args string }{
		{"proving that nobody uses", "lvchange", "--activate n"},
		{"activating", "lvchange", "--activate y"},
		{"wiping", "wipefs", "--all"},
		{"removing", "lvremove", "--yes"},
	} {
		target := lv.Full()
		if step.name == "wipefs" {
			target = lv.Path
		}
		if _, err := runner.Run(ctx, step.name, append(strings.Fields(step.args), target)...); err != nil {
			return fmt.Errorf("%s %s: %w", step.doing, lv.Full(), err)
		}
	}
	return nil
}

// find returns those of the volumes that are there, and an error if one is not this
// OSD's. Of failed attempts to replace the OSD's disk there can be a volume with the
// recorded uuid that is tagged for the attempt, which has the same id, and one that was
// made again, which says so.
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
		if lv == nil {
			continue
		}
		remade := lv.Tags[volume.RemadeTag] == req.UUID
		recorded := want.UUID != "" && lv.UUID == want.UUID
		switch {
		case want.UUID != "" && !recorded && !remade:
			return nil, fmt.Errorf("%s has the uuid %s, the recorded one had %s: it is left alone", lv.Full(), lv.UUID, want.UUID)
		case remade && lv.OSDUUID() == "":
			found = append(found, *lv)
		case lv.OSD() != req.OSD || lv.OSDUUID() != req.UUID && !recorded && !remade:
			return nil, fmt.Errorf("%s is tagged as of osd.%d (uuid %q), not of osd.%d (%s): it is left alone", lv.Full(), lv.OSD(), lv.OSDUUID(), req.OSD, req.UUID)
		default:
			found = append(found, *lv)
		}
	}
	return found, nil
}
