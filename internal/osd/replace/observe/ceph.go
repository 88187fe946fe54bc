package observe

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/ceph/pg"
	"github.com/castellan-storage/castellan/internal/osd/replace/check"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
)

// stuckAfter is how long PGs may be clean and unmoved on an OSD that is out before it
// counts as stuck: after `osd out` they look so for a moment.
const stuckAfter = time.Minute

// ask asks Ceph what the next step may depend on.
func (s *facts) ask(ctx context.Context, live client.Reader, cl *cephv1.CephCluster, v *view.View, d *appsv1.Deployment) error {
	ctx, cancel := context.WithTimeout(ctx, view.AskTime)
	defer cancel()
	switch {
	case s.Note == nil && (s.Asked || s.InProgress || s.Ready):
		return s.fresh(ctx, live, cl, v, d)
	case s.Note == nil:
		return nil
	case s.Note.Replaced != "":
		s.weigh(ctx, v)
		return nil
	case s.Exists && !s.Destroyed && s.UUID == s.Note.UUID:
		return s.draining(ctx, v)
	case s.Exists && (s.Abandon == plan.ConfirmedAbandon || s.New):
		s.safety(ctx, v)
	}
	return nil
}

// draining asks about an OSD that still has its old disk.
func (s *facts) draining(ctx context.Context, v *view.View) error {
	if s.In || s.Note.Drain == nil {
		c, why := v.Capacity(ctx)
		if why != "" {
			s.Turn = "Ceph cannot tell whether there is room: " + why
			return nil
		}
		s.usage(ctx, v, c)
		if s.In {
			s.Turn = c.Turn(s.Remaining(), v.Ahead(s.ID, s.Note))
		}
	}
	if s.In {
		return nil
	}
	s.safety(ctx, v)
	if s.Safety != plan.Safe && s.Note.Drain != nil && v.Now.Sub(s.Note.Drain.Since) > stuckAfter {
		if stat, err := pg.New(v.Stored.Ceph).Stat(ctx); err == nil {
			s.Stuck = s.Safety == plan.Unsafe && s.Up && stat.AllClean()
			s.Settled = view.Settled(stat)
		}
	}
	return nil
}

// weigh asks which weight the new OSD has, and how large it is.
func (s *facts) weigh(ctx context.Context, v *view.View) {
	if !s.Exists || s.Destroyed || !s.Up || !s.In {
		return
	}
	osds := cephosd.New(v.Stored.Ceph)
	tree, err := osds.Tree(ctx)
	if err != nil {
		s.Unweighed = err.Error()
		return
	}
	usage, err := osds.DF(ctx)
	if err != nil {
		s.Unweighed = err.Error()
		return
	}
	node, ok := tree.OSD(s.ID)
	var bytes int64
	for _, n := range usage.Nodes {
		if n.ID == s.ID {
			bytes = n.KB * 1024
		}
	}
	if bytes == 0 {
		bytes = s.bootSize(ctx, osds)
	}
	if !ok || bytes == 0 {
		s.Unweighed = "its size has not been reported yet"
		return
	}
	if w, differs := s.Note.Weight(node.CrushWeight, bytes); differs {
		s.Weigh = w
	}
}

// bootSize is the size that the OSD gave when it booted, 0 when that is not all of it: a
// database on a device of its own counts too. It is there with the OSD, where its usage
// comes with its first report, 5 s later (mgr_stats_period).
func (s *facts) bootSize(ctx context.Context, osds cephosd.Client) int64 {
	list, err := osds.Metadata(ctx)
	if err != nil {
		return 0 // the usage will tell
	}
	for _, m := range list {
		if size, err := strconv.ParseInt(m.BdevSize, 10, 64); err == nil && m.ID == s.ID && m.DedicatedDB == "0" {
			return size
		}
	}
	return 0
}

// usage is how much there is on the OSD. Of one that is out Ceph's usage says
// nothing; its PGs are counted then.
func (s *facts) usage(ctx context.Context, v *view.View, c check.Capacity) {
	s.Usage = true
	for _, n := range c.Usage.Nodes {
		if n.ID == s.ID {
			s.PGs, s.Bytes = n.PGs, n.KBUsedData*1024
		}
	}
	if s.PGs == 0 && s.Up {
		pgs, err := pg.New(v.Stored.Ceph).OnOSD(ctx, s.ID)
		s.Usage, s.PGs = err == nil, len(pgs)
	}
}

// safety asks whether the OSD is safe to destroy, and all that are left of its set with
// it. No answer stays unknown.
func (s *facts) safety(ctx context.Context, v *view.View) {
	a, err := cephosd.New(v.Stored.Ceph).Safety(ctx, s.ID)
	switch {
	case err != nil:
		s.SafetyWhy = err.Error()
	case a.Exists && a.Safe:
		s.Safety = plan.Safe
	default:
		s.Safety, s.SafetyWhy = plan.Unsafe, a.Why
	}
	if o, ok := v.OSDMap.Find(s.ID); ok && s.Safety == plan.Unsafe {
		s.Void = view.Void(o, a)
	}
	if left := s.Remaining(); len(left) > 1 && s.Safety == plan.Safe {
		s.together(ctx, v, left)
	}
}

// together asks about all that are left of a set at once: each of them alone may be safe
// to destroy, and the last copy be on two of them.
func (s *facts) together(ctx context.Context, v *view.View, ids []int) {
	a, err := cephosd.New(v.Stored.Ceph).SafeToDestroy(ctx, ids...)
	for i := range s.Mates {
		m := &s.Mates[i]
		switch {
		case err != nil:
			m.Safe = plan.Unknown
		case a.IsSafe(m.ID):
			m.Safe = plan.Safe
		default:
			m.Safe = plan.Unsafe
		}
	}
	if err == nil && !a.IsSafe(s.ID) {
		s.Safety, s.SafetyWhy = plan.Unsafe, "it is not safe together with the others of its set"
	}
}
