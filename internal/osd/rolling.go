package osd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/osd/plan"
	"github.com/castellan-storage/castellan/internal/release"
)

// notOk is the reason of the condition while the next OSDs may not stop, and notOkAgain
// how often Ceph is asked about them.
const (
	notOk      = "OSDNotOkToStop"
	notOkAgain = 15 * time.Second
)

// update asks Ceph what an update of the next OSDs needs to know.
func (c *Daemons) update(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander, seen *DaemonSeen) error {
	if !seen.State.Answered {
		return nil
	}
	if len(seen.Outdated) == 0 && !seen.starts() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := seen.gates(ctx, cl, commander); err != nil {
		return err
	}
	if len(seen.Roll.Next) == 0 || seen.Gate != "" || cl.Spec.SkipUpgradeChecks {
		return nil
	}
	if cl.Spec.UpgradeOSDRequiresHealthyPGs {
		now, err := cephstatus.New(commander).Status(ctx)
		if err != nil {
			return fmt.Errorf("asking whether all PGs are clean: %w", err)
		}
		if bad, all := now.PGMap.Except(pg.Clean); !all {
			seen.Unclean = cmp.Or(bad, "some have not been reported yet")
			return nil
		}
	}
	return seen.mayStop(ctx, commander)
}

// mayStop asks about the OSDs of the host whose turn it is; if they may not stop
// together, about the first of them; and if that may not stop either, about those of one
// more host, another one with each pass: PGs that are in trouble here need not hold up
// what shares none with them.
func (s *DaemonSeen) mayStop(ctx context.Context, commander ceph.Commander) error {
	sets := [][]int{s.Roll.Next}
	if len(s.Roll.Next) > 1 {
		sets = append(sets, s.Roll.Next[:1])
	}
	own := len(sets)
	if n := len(s.Roll.Others); n > 0 {
		sets = append(sets, s.Roll.Others[int(s.Now.Unix()/int64(notOkAgain/time.Second))%n])
	}
	for i, set := range sets {
		answer, err := cephosd.New(commander).OkToStop(ctx, 0, set...)
		if err != nil {
			return fmt.Errorf("asking whether %s may stop: %w", names(set), err)
		}
		if answer.OK {
			s.Roll.Next, s.Stop = set, &answer
			return nil
		}
		if i < own {
			s.Stop = &answer // what is told is about the host whose turn it is
		}
	}
	s.Roll.Next = s.Roll.Next[:1]
	return nil
}

// changesImage says that OSD id runs, or would run again, another image than the
// accepted one.
func (s *DaemonSeen) changesImage(id int) bool {
	live := s.Live[id]
	return live != nil && image(live) != s.Cluster.CephImage
}

// gates finds what must come before OSDs of the accepted version.
func (s *DaemonSeen) gates(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander) error {
	if cl.Spec.SkipUpgradeChecks || !s.starts() && !slices.ContainsFunc(s.Outdated, s.changesImage) {
		return nil
	}
	r, err := commander.Mon(ctx, ceph.Cmd("versions"))
	if err != nil {
		return fmt.Errorf("asking for the versions of the daemons: %w", err)
	}
	running, err := release.ParseRunning(r.Out)
	if err != nil {
		return fmt.Errorf("reading the versions of the daemons: %w", err)
	}
	target, err := release.ParseLabel(cl.Status.CephVersion.Version)
	if err != nil {
		return fmt.Errorf("reading the accepted Ceph version: %w", err)
	}
	g := release.MayStart(release.OSD, target, running)
	if g.Open {
		return nil
	}
	if slices.ContainsFunc(s.Outdated, s.changesImage) {
		s.Gate = g.Message(release.OSD, target)
	}
	// A first OSD does not wait for a mgr to run, only for old daemons to be gone.
	if slices.ContainsFunc(g.Blockers, func(b release.Blocker) bool { return b.Count > 0 }) {
		s.StartGate = g.Message(release.OSD, target)
	}
	return nil
}

// roll updates the next set, if Ceph says that it may stop.
func roll(cl *cephv1.CephCluster, seen DaemonSeen, p *kit.Plan) {
	if seen.Roll.Left == 0 {
		return
	}
	left := fmt.Sprintf("%d OSDs are left to update", seen.Roll.Left)
	switch {
	case seen.Gate != "":
		p.Wait = &kit.Wait{Reason: "UpgradeOrder", Message: seen.Gate + "; " + left, For: 10 * time.Second}
	case len(seen.Roll.Moving) > 0:
		p.Wait = &kit.Wait{Reason: "OSDsRestarting", Message: names(seen.Roll.Moving) + " are restarting; " + left, For: 5 * time.Second}
	case len(seen.Roll.Next) == 0 && len(seen.Roll.Stuck) > 0:
		p.Wait = &kit.Wait{
			Reason: "OSDDownAfterUpdate", Message: fmt.Sprintf("%s did not come up again within %v after the update; %s", names(seen.Roll.Stuck), plan.StuckAfter, left),
			Object: names(seen.Roll.Stuck), Hint: "look at its pod's events and log; spec.skipUpgradeChecks goes on without it", Blocked: true, For: time.Minute,
		}
	case len(seen.Roll.Next) == 0:
	case seen.Unclean != "":
		p.Wait = &kit.Wait{
			Reason: "PGsNotClean", Message: "not all PGs are active and clean (" + seen.Unclean + "); " + left,
			Hint: "spec.upgradeOSDRequiresHealthyPGs asks for this", For: notOkAgain,
		}
	case seen.Stop != nil && !seen.Stop.OK && !enough(cl, seen.Now):
		p.Wait = &kit.Wait{
			Reason: notOk, Message: fmt.Sprintf("%s is not ok to stop: %s; %s", names(seen.Roll.Next), badPGs(*seen.Stop), left),
			Object: names(seen.Roll.Next), For: notOkAgain,
		}
	default:
		checked := !cl.Spec.SkipUpgradeChecks && (seen.Stop == nil || seen.Stop.OK)
		if !checked && seen.Stop != nil {
			p.Events = append(p.Events, kit.Event{Warning: true, Reason: "OSDUpdatedUnchecked", Message: fmt.Sprintf(
				"%s restarts though it was not ok to stop for %v: %s; spec.continueUpgradeAfterChecksEvenIfNotHealthy asks for this", names(seen.Roll.Next), cl.Spec.EffectiveOSDWait(), badPGs(*seen.Stop))})
		}
		set := make([]kit.Object, 0, len(seen.Roll.Next))
		for _, id := range seen.Roll.Next {
			set = append(set, seen.Wanted[id])
		}
		for _, obj := range set {
			var do kit.Action = kit.Apply{Object: obj}
			if checked {
				do = kit.Confirmed{Check: OkToStop{IDs: seen.Roll.Next}, Then: do}
			}
			p.Do = append(p.Do, do)
		}
		p.Wait = &kit.Wait{Reason: "OSDsUpdating", Message: names(seen.Roll.Next) + " restart with a new specification; " + left, For: 5 * time.Second}
	}
}

// enough says that the spec wants the update to go on although OSDs have not been ok to
// stop for as long as it says. How long is read from the condition that tells of it.
func enough(cl *cephv1.CephCluster, now time.Time) bool {
	c := cephv1.FindCondition(cl.Status.Conditions, "OSDReady")
	return cl.Spec.ContinueUpgradeAfterChecksEvenIfNotHealthy && c != nil && string(c.Reason) == notOk &&
		!c.LastTransitionTime.IsZero() && now.Sub(c.LastTransitionTime.Time) >= cl.Spec.EffectiveOSDWait()
}

// OkToStop is the check that a set of OSDs may stop together.
type OkToStop struct{ IDs []int }

// String implements kit.Check.
func (o OkToStop) String() string { return names(o.IDs) + " are ok to stop" }

// Confirm implements kit.Confirmer, live and for the whole set.
func (c *Daemons) Confirm(ctx context.Context, cl *cephv1.CephCluster, check kit.Check) (*kit.Wait, error) {
	o, ok := check.(OkToStop)
	if !ok {
		return nil, fmt.Errorf("asking whether %s: no such check", check)
	}
	commander, err := c.Access.Ceph(ctx, cl.Namespace, fmt.Sprintf("asking whether %s", o))
	if err != nil {
		return nil, err
	}
	answer, err := cephosd.New(commander).OkToStop(ctx, 0, o.IDs...)
	if err != nil {
		return nil, fmt.Errorf("asking whether %s: %w", o, err)
	}
	if !answer.OK {
		return &kit.Wait{Reason: notOk, Message: names(o.IDs) + " are not ok to stop: " + badPGs(answer), For: notOkAgain}, nil
	}
	return nil, nil
}
