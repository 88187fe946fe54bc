package config

import (
	"context"
	"fmt"
	"maps"
	"slices"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/kit"
)

// Mute keeps a health code out of the cluster's health, or counts it again. The mute is
// sticky: the spec asks for it whether the code is raised just now or not, and it stays
// when the trouble grows.
type Mute struct {
	Code string
	Off  bool
}

// String implements kit.Action.
func (m Mute) String() string {
	if m.Off {
		return "counting " + m.Code + " in the health again"
	}
	return "muting " + m.Code
}

// Do sends the command.
func (m Mute) Do(ctx context.Context, c cephstatus.Client) error {
	if m.Off {
		return c.Unmute(ctx, m.Code)
	}
	return c.Mute(ctx, m.Code)
}

// mutes are what spec.healthCheck.muteHealthWarning asks to change. A code that it does
// not name is left as it is: somebody may have muted it by hand, and the way to take a
// mute back is the policy unmute.
func mutes(want map[string]cephv1.HealthWarningMuteSpec, have []cephstatus.Mute) []kit.Action {
	muted := map[string]cephstatus.Mute{}
	for _, m := range have {
		muted[m.Code] = m
	}
	var out []kit.Action
	for _, code := range slices.Sorted(maps.Keys(want)) {
		m, is := muted[code]
		switch policy := want[code].Policy; {
		case policy == cephv1.HealthWarningMute && (!is || !m.Sticky):
			out = append(out, Mute{Code: code})
		case policy == cephv1.HealthWarningUnmute && is:
			out = append(out, Mute{Code: code, Off: true})
		}
	}
	return out
}

// muted reads the mutes, if the spec has anything to say of them.
func muted(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander) ([]cephstatus.Mute, error) {
	if len(cl.Spec.HealthCheck.MuteHealthWarning) == 0 {
		return nil, nil
	}
	h, err := cephstatus.New(commander).Health(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading which health codes are muted: %w", err)
	}
	return h.Mutes, nil
}
