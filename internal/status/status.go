// Package status tells the user how a CephCluster is: phase, health, capacity,
// versions, mons and OSDs in short, and what blocks it, by name. It puts together
// what the cluster's other controllers report with what Ceph says.
//
// It changes nothing but the status, and it is written only when it says something
// new: a steady cluster is not written at all.
package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/settings"
	"github.com/castellan-storage/castellan/internal/validate/unhandled"
)

// soon is how often a cluster is looked at that is not ready yet.
const soon = 2 * time.Second

// Controller reports on CephClusters.
type Controller struct {
	Access access.Reader
	// Settings of the operator as they are now.
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	return kit.Options{
		Name: "status", Report: kit.DefaultReport(), Phases: kit.RookPhases(),
		// The other controllers report by conditions, so status changes count here.
		When: predicate.Or(kube.SpecChanged(), conditionsChanged()),
	}
}

// conditionsChanged passes changes of what other controllers report. The
// conditions of this controller itself are left out: they would call it again.
func conditionsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*cephv1.CephCluster)
		b, okB := e.ObjectNew.(*cephv1.CephCluster)
		return okA && okB && fmt.Sprint(subjects(a)) != fmt.Sprint(subjects(b))
	}}
}

// Subject is what one of the other controllers reports.
type Subject struct {
	Name    string
	Ready   bool
	Reason  string
	Message string
	Since   metav1.Time
	// Current says that it speaks of the newest spec.
	Current bool
}

// notReported is the reason of a subject of which nothing is known.
const notReported = "NotReported"

// expected subjects of a cluster; each reports the condition <name>Ready.
var expected = [...]string{"Foundation", "Mon", "Mgr", "Provisioning", "OSD"}

// subjects reads the conditions <name>Ready, the expected ones first.
func subjects(cl *cephv1.CephCluster) []Subject {
	names := slices.Clone(expected[:])
	for _, c := range cl.Status.Conditions {
		name, ok := strings.CutSuffix(string(c.Type), "Ready")
		if ok && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	out := make([]Subject, 0, len(names))
	for _, name := range names {
		c := cephv1.FindCondition(cl.Status.Conditions, cephv1.ConditionType(name+"Ready"))
		if c == nil {
			out = append(out, Subject{Name: name, Reason: notReported, Message: "nothing is known yet"})
			continue
		}
		out = append(out, Subject{
			Name: name, Ready: c.Status == "True", Reason: string(c.Reason), Message: c.Message, Since: c.LastTransitionTime,
			Current: c.ObservedGeneration >= cl.Generation,
		})
	}
	return out
}

// Seen is everything that the report needs to know.
type Seen struct {
	Now      time.Time
	Subjects []Subject
	// Asked says that Ceph has answered; Silence is why not.
	Asked    bool
	Silence  string
	Ceph     cephstatus.Status
	Health   cephstatus.Health
	Versions cephstatus.Versions
	Classes  []string
	// Interval of looks at a healthy cluster whose spec names none.
	Interval time.Duration
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	seen := Seen{Now: kit.Now(ctx), Subjects: subjects(cl), Interval: cephv1.DefaultStatusInterval}
	if cl.DeletionTimestamp != nil {
		return seen, nil
	}
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, err
	}
	if set.StatusInterval != nil && *set.StatusInterval > 0 {
		seen.Interval = *set.StatusInterval
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ask := cephstatus.New(stored.Ceph)
	if seen.Ceph, err = ask.Status(ctx); err != nil {
		seen.Silence = err.Error()
		return seen, nil
	}
	seen.Asked = true
	if seen.Health, err = ask.HealthDetail(ctx); err != nil {
		return Seen{}, fmt.Errorf("reading the health of the cluster: %w", err)
	}
	if seen.Versions, err = ask.Versions(ctx); err != nil {
		return Seen{}, fmt.Errorf("reading the versions of the daemons: %w", err)
	}
	if seen.Ceph.OSDMap.NumOSDs > 0 && seen.Ceph.MgrMap.Available {
		if df, err := ask.DF(ctx); err == nil {
			seen.Classes = slices.Sorted(maps.Keys(df.ByClass))
		}
	}
	return seen, nil
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	next := cl.DeepCopy()
	st := &next.Status
	st.BlockedBy = blockers(cl, seen)
	st.State = cephv1.ClusterStateCreated
	health(cl, seen, st)
	p := kit.Plan{Status: next, Next: again(seen, st.CephStatus, cl.Spec.HealthCheck.DaemonHealth.Status.EffectiveInterval(seen.Interval))}
	if old := cl.Status.CephStatus; seen.Asked && old != nil && old.Health != st.CephStatus.Health {
		p.Events = append(p.Events, kit.Event{
			Warning: st.CephStatus.Health != cephstatus.HealthOK, Reason: "CephHealth",
			Message: fmt.Sprintf("Ceph went from %s to %s: %s", old.Health, st.CephStatus.Health, summary(st.CephStatus.Details)),
		})
	}
	p.Wait = waitFor(seen)
	switch {
	case p.Wait != nil && cl.Status.ObservedGeneration == 0 && cl.Status.Phase != cephv1.ConditionReady:
		st.State = cephv1.ClusterStateCreating
	case p.Wait != nil:
		st.State = cephv1.ClusterStateUpdating
	}
	if p.Wait != nil && p.Wait.Blocked {
		st.State = cephv1.ClusterStateError
	}
	vain := unhandled.Fields(&cl.Spec)
	st.Message = message(seen, p.Wait, vain)
	p.Conditions = append(p.Conditions, inVain(vain))
	return p
}

// patience is the part of the time that a health has lasted which may pass before it is
// looked at again.
const patience = 16

// again is when to look at a cluster next that is as its spec says. Ceph tells nobody when a
// warning is over, and most are over soon: a health that is not OK is looked at every two
// seconds at first and the seldomer the longer it lasts, down to the interval of the spec.
func again(seen Seen, ceph *cephv1.CephStatus, interval time.Duration) time.Duration {
	if !seen.Asked || ceph == nil || ceph.Health == cephstatus.HealthOK {
		return interval
	}
	since, err := time.Parse(time.RFC3339, ceph.LastChanged)
	if err != nil {
		return interval // somebody else's words; written anew when the health changes
	}
	return min(interval, max(soon, seen.Now.Sub(since)/patience))
}

// waitFor is what keeps the cluster from being ready: the first subject that is
// not, or the OSDs that are not up.
func waitFor(seen Seen) *kit.Wait {
	for _, s := range seen.Subjects {
		if !s.Ready && !s.lacks() || !s.Current {
			msg := s.Message
			if s.Ready {
				msg = "the newest spec has not been looked at yet"
			}
			return &kit.Wait{Reason: reason(s), Message: msg, Object: strings.ToLower(s.Name), For: soon, Blocked: s.Reason == kit.ReasonInvalidSpec}
		}
	}
	switch m := seen.Ceph.OSDMap; {
	case !seen.Asked:
		return &kit.Wait{Reason: "MonsNotReady", Message: "the mons do not answer: " + seen.Silence, For: soon}
	case m.NumOSDs == 0:
		return &kit.Wait{Reason: "NoOSDs", Message: "no OSD exists yet", For: soon}
	case m.NumUp == 0:
		return &kit.Wait{Reason: "OSDsNotUp", Message: fmt.Sprintf("none of %d OSDs is up", m.NumOSDs), For: soon}
	}
	return nil
}

// lacks says that only devices are missing that the spec names: every OSD that can be there
// is there. The condition and blockedBy name them, and the cluster is ready: one disk that
// has died must not make it look as if it had never come up.
func (s Subject) lacks() bool {
	return s.Name == "Provisioning" && s.Reason == spec.ReasonDeviceMissing
}

func reason(s Subject) string {
	if s.Ready || s.Reason == "" {
		return "NewSpec"
	}
	return s.Reason
}

// blockers lists every subject that is not ready.
func blockers(cl *cephv1.CephCluster, seen Seen) []cephv1.BlockedBy {
	var out []cephv1.BlockedBy
	for _, s := range seen.Subjects {
		if s.Ready {
			continue
		}
		b := cephv1.BlockedBy{Subject: strings.ToLower(s.Name), Reason: s.Reason, Message: s.Message, Since: s.Since}
		if b.Since.IsZero() {
			b.Since = cl.CreationTimestamp
		}
		out = append(out, b)
	}
	return out
}

// inVain tells of fields that are set and that nothing acts on. The condition is gone
// when there are none.
func inVain(fields []unhandled.Field) kit.Condition {
	c := kit.Condition{Type: "SpecHandled"}
	if len(fields) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "FieldsWithoutEffect", unhandled.Join(fields)
	}
	return c
}

func message(seen Seen, w *kit.Wait, vain []unhandled.Field) string {
	if w != nil {
		return w.Message
	}
	for _, subject := range seen.Subjects {
		if subject.lacks() {
			return "the cluster is as the spec says, but for devices that are not there: " + subject.Message
		}
	}
	if len(vain) > 0 {
		return "the cluster is as the spec says, but for fields that are not handled yet: " + unhandled.Join(vain)
	}
	if seen.Health.Status != cephstatus.HealthOK && seen.Asked {
		return "the cluster is as the spec says; Ceph reports " + seen.Health.Status
	}
	return "the cluster is as the spec says"
}

// health fills in what Ceph says. While Ceph is silent, the last known values stay
// and the health says so.
func health(cl *cephv1.CephCluster, seen Seen, st *cephv1.ClusterStatus) {
	now := seen.Now.UTC().Format(time.RFC3339)
	old := cl.Status.CephStatus
	next := &cephv1.CephStatus{}
	if old != nil {
		next = old.DeepCopy()
	}
	if !seen.Asked {
		if old == nil {
			return // nothing has ever been known
		}
		next.Health = cephstatus.HealthErr
		next.Details = map[string]cephv1.CephHealthMessage{"error": {Severity: "Urgent", Message: "the mons do not answer"}}
	} else {
		next.Health = seen.Health.Status
		next.Details = details(seen.Health)
		next.FSID = seen.Ceph.FSID
		next.Versions = versions(seen.Versions)
		capacity(&next.Capacity, seen, now)
		st.Mon = &cephv1.MonStatus{InQuorum: len(seen.Ceph.QuorumNames), Wanted: cl.Spec.Mon.EffectiveCount()}
		st.Mon.Summary = fmt.Sprintf("%d/%d", st.Mon.InQuorum, st.Mon.Wanted)
		m := seen.Ceph.OSDMap
		st.OSD = &cephv1.OSDSummary{Up: m.NumUp, In: m.NumIn, Total: m.NumOSDs, Summary: fmt.Sprintf("%d/%d/%d", m.NumUp, m.NumIn, m.NumOSDs)}
		storage(seen, st)
	}
	if old == nil || old.Health != next.Health {
		next.LastChanged = now
		if old != nil {
			next.PreviousHealth = old.Health
		}
	}
	// The time of the last look goes with something that has changed: a clock alone
	// is not worth a write.
	same := next.DeepCopy()
	if old != nil {
		same.LastChecked = old.LastChecked
	}
	if old == nil || !equality.Semantic.DeepEqual(same, old) {
		next.LastChecked = now
	} else {
		next.LastChecked = old.LastChecked
	}
	st.CephStatus = next
}

func storage(seen Seen, st *cephv1.ClusterStatus) {
	if len(seen.Classes) == 0 {
		return
	}
	s := &cephv1.CephStorage{}
	if st.CephStorage != nil {
		s = st.CephStorage.DeepCopy()
	}
	s.DeviceClasses = nil
	for _, name := range seen.Classes {
		s.DeviceClasses = append(s.DeviceClasses, cephv1.DeviceClasses{Name: name})
	}
	st.CephStorage = s
}

func details(h cephstatus.Health) map[string]cephv1.CephHealthMessage {
	out := map[string]cephv1.CephHealthMessage{}
	for code, c := range h.Checks {
		if !c.Muted {
			out[code] = cephv1.CephHealthMessage{Severity: c.Severity, Message: c.Summary.Message}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func summary(d map[string]cephv1.CephHealthMessage) string {
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(d)) {
		parts = append(parts, code+" ("+d[code].Message+")")
	}
	if len(parts) == 0 {
		return "no check fails"
	}
	return strings.Join(parts, ", ")
}

// capacity follows what Ceph says. Usage moves all the time; a change of less than
// a hundredth of the whole is left for the next one.
func capacity(c *cephv1.Capacity, seen Seen, now string) {
	pg := seen.Ceph.PGMap
	next := cephv1.Capacity{TotalBytes: uint64(max(pg.BytesTotal, 0)), UsedBytes: uint64(max(pg.BytesUsed, 0)), AvailableBytes: uint64(max(pg.BytesAvail, 0))}
	moved := next.TotalBytes != c.TotalBytes || 100*diff(next.UsedBytes, c.UsedBytes) > next.TotalBytes || 100*diff(next.AvailableBytes, c.AvailableBytes) > next.TotalBytes
	if !moved {
		return
	}
	next.LastUpdated = now
	*c = next
}

func diff(a, b uint64) uint64 {
	if a > b {
		return a - b
	}
	return b - a
}

func versions(v cephstatus.Versions) *cephv1.CephDaemonsVersions {
	if len(v) == 0 {
		return nil
	}
	return &cephv1.CephDaemonsVersions{
		Mon: v["mon"], Mgr: v["mgr"], Osd: v["osd"], Rgw: v["rgw"], Mds: v["mds"], RbdMirror: v["rbd-mirror"], CephFSMirror: v["cephfs-mirror"], Overall: v["overall"],
	}
}
