// Package plan decides what happens to a cluster's mons next: founding, adding,
// replacing, updating and removing them, one step at a time.
//
// It is pure: everything it knows is in State, and every field of State can be
// read again from Kubernetes and Ceph. It must never take a step that could
// leave the cluster without a quorum, and it must never act on what Ceph did
// not say: without a quorum, mons are started and nothing is removed.
package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// Spec is what the user asked for.
type Spec struct {
	// Count of mons, at least 1.
	Count                int
	AllowMultiplePerNode bool
	HostNetwork          bool
	// OutTimeout is how long a mon may be out of quorum before it is replaced; 0
	// never replaces one.
	OutTimeout time.Duration
	// CheckInterval is how long a new mon may take before it counts as out of
	// quorum.
	CheckInterval time.Duration
	// Port of the addresses in the list: 3300 with messenger v2 alone, else 6789.
	Port uint16
}

// Mon is what is known of one mon.
type Mon struct {
	// Listed mons are in the endpoints ConfigMap, with this address and place.
	Listed bool
	Addr   netip.AddrPort
	Place  *endpoints.Place
	// InMap and InQuorum come from Ceph; both are false while State.Quorum is.
	InMap, InQuorum bool
	// MapAddr is the address in the monmap.
	MapAddr netip.AddrPort
	// Address is the address a new mon would have: its Service's, or the node's on
	// the host network. Invalid while unknown.
	Address netip.Addr
	// Deployed says that the Deployment exists; Stopped that it wants no pod;
	// Outdated that its template is not the wanted one.
	Deployed, Stopped, Outdated bool
	// Made is when the Deployment was created.
	Made time.Time
	// Skipped is set by the label ceph.rook.io/do-not-reconcile on the Deployment.
	Skipped bool
	// Leaving is the durable mark on the Deployment that the mon is being removed.
	Leaving bool
	// Scheduled says that its pod has a node, Ready that it answers its probe.
	Scheduled, Ready bool
	// Restarting says that the Deployment's newest template is not carried through, or that
	// its pod is not ready. The mons may still count one in that has been stopped.
	Restarting bool
	// NodeGone says that the node it is pinned to no longer exists.
	NodeGone bool
	// NodeFit says that the node it is pinned to could take a mon now.
	NodeFit bool
	// OutSince is the durable mark since when it has been out of quorum.
	OutSince time.Time
	// RoomMade is the durable mark when it was stopped to make room for its
	// replacement.
	RoomMade time.Time
	// Canary is the pod that finds a node for a mon that is not listed yet.
	Canary Canary
}

// Canary is the state of a placement.
type Canary struct {
	Exists bool
	// Place is set once the scheduler has answered.
	Place *endpoints.Place
	// Refused is the scheduler's reason when it has found no node.
	Refused string
	// Stale says that it has no node and was made for another placement than the
	// wanted one.
	Stale bool
}

// State is everything that bears on the next step.
type State struct {
	Now  time.Time
	Spec Spec
	// Quorum says that the mons have answered; Silence is why not.
	Quorum  bool
	Silence string
	// List as stored; Mons has an entry for each listed one, for each in the monmap,
	// and for each that has objects.
	List endpoints.List
	Mons map[string]Mon
	// External are ids of mons that somebody else runs; they are never touched.
	External []string
	// Ran is a sign from elsewhere that this cluster has had mons, "" for none.
	Ran string
}

// ReasonRestarting is that of a wait for a mon's pod, which takes seconds.
const ReasonRestarting = "MonRestarting"

// Kind is the kind of a step.
type Kind string

// The steps.
const (
	Nothing   Kind = "Nothing"
	Place     Kind = "Place"     // ask the scheduler for a node for each of IDs
	Expose    Kind = "Expose"    // give each of IDs its address (a Service)
	Record    Kind = "Record"    // store List, before the mons in IDs start
	Start     Kind = "Start"     // run the Deployments of IDs
	Update    Kind = "Update"    // apply the wanted template to IDs, each only if ok-to-stop
	Repair    Kind = "Repair"    // apply the wanted template to IDs without asking: they are out of quorum, or too few
	MarkOut   Kind = "MarkOut"   // note that IDs are out of quorum since now
	MarkIn    Kind = "MarkIn"    // remove the note from IDs
	MakeRoom  Kind = "MakeRoom"  // stop IDs so that the replacement can have the node
	Abandon   Kind = "Abandon"   // delete canary and Service of IDs, which are not wanted any more
	MarkLeave Kind = "MarkLeave" // mark IDs as leaving; they go on running until they are expelled
	Keep      Kind = "Keep"      // remove the mark from IDs: they are needed again
	Expel     Kind = "Expel"     // take IDs out of the monmap, only if the rest keeps a quorum
	Delete    Kind = "Delete"    // delete what is left of IDs: Deployment, Service, volume claim
	Await     Kind = "Await"     // nothing can be done but wait; see Reason and Message
)

// Action is the next step.
type Action struct {
	Kind Kind
	IDs  []string
	// List to store, for Record.
	List *endpoints.List
	// Reason and Message say what is awaited, for Await and for steps that come with a
	// wait.
	Reason, Message string
	// Blocked says that only a person can help.
	Blocked bool
}

// String gives the step in one line.
func (a Action) String() string {
	s := string(a.Kind)
	if len(a.IDs) > 0 {
		s += " " + strings.Join(a.IDs, ",")
	}
	if a.Message != "" {
		s += " (" + a.Message + ")"
	}
	return s
}

// Next is the next step. The order of the cases is the order of the work: what
// keeps the quorum comes first, what changes it on the user's wish comes last.
func Next(s State) Action {
	if len(s.List.Mons) == 0 {
		return found(s)
	}
	if ids := s.spent(); len(ids) > 0 {
		return Action{Kind: Abandon, IDs: ids}
	}
	if ids := s.idle(); len(ids) > 0 {
		if id, beside := s.beside(ids); beside {
			return await("MonListStale", true, "mon %s runs and ConfigMap %s does not name it, while mon %s of the list does not run and the mons of the list do not answer; "+
				"starting it could make a second cluster: put the list of the running mons back", id, endpoints.ConfigMap, ids[0])
		}
		return Action{Kind: Start, IDs: ids}
	}
	if !s.Quorum {
		if id, ok := s.broken(); ok {
			return Action{Kind: Repair, IDs: []string{id}}
		}
		return await("NoQuorum", false, "the mons have no quorum: %s; %s", orUnknown(s.Silence), s.notRunning())
	}
	steps := []func(State) (Action, bool){
		noteQuorum, settleStray, leave, repair, replace, abandon, joinFirst, update, shrink, grow, unknown,
	}
	for _, step := range steps {
		if a, ok := step(s); ok {
			return a
		}
	}
	return Action{Kind: Nothing}
}

// found makes the first mons together: their addresses are known before the
// first starts, so all get the same monmap and form the first quorum at once.
//
// A list without mons is only founded from when nothing says that there were any:
// new mons have the cluster's fsid and would be a second, empty cluster with it.
func found(s State) Action {
	if sign := s.hadMons(); sign != "" {
		return await("MonListLost", true, "ConfigMap %s names no mon, but %s; new mons are not founded beside those: put the list back", endpoints.ConfigMap, sign)
	}
	ids := make([]string, s.Spec.Count)
	for i := range ids {
		ids[i] = endpoints.ID(i)
	}
	return bringIn(s, ids)
}

// hadMons is a sign that the cluster has had mons before.
func (s State) hadMons() string {
	for _, id := range s.ids() {
		if s.Mons[id].Deployed {
			return "mon " + id + " has a Deployment"
		}
	}
	if s.List.MaxID >= 0 {
		return "it has given out ids up to " + endpoints.ID(s.List.MaxID)
	}
	return s.Ran
}

// beside returns a mon that runs outside of the list while no mon of the list
// answers and one of ids was never started. Such a list is not this cluster's of
// today, and what it starts could form a quorum of its own.
func (s State) beside(ids []string) (string, bool) {
	if s.Quorum || !slices.ContainsFunc(ids, func(id string) bool { return !s.Mons[id].Deployed }) {
		return "", false
	}
	for _, id := range s.ids() {
		if m := s.Mons[id]; m.Deployed && !m.Listed && !m.Leaving && !slices.Contains(s.External, id) {
			return id, true
		}
	}
	return "", false
}

// broken returns a mon that does not answer and has an old template: the new one may
// be what brings the quorum back. One that answers may be in a quorum that cannot be
// seen from here, and is left alone.
func (s State) broken() (string, bool) {
	for _, id := range s.List.IDs() {
		if m := s.Mons[id]; m.Outdated && !m.Ready && !m.Stopped && !m.Skipped && !m.Leaving && !slices.Contains(s.External, id) {
			return id, true
		}
	}
	return "", false
}

// bringIn takes mons that are not listed through placement and address into
// the list. Nothing of it can be seen by Ceph until the list is stored.
func bringIn(s State, ids []string) Action {
	var place, expose, stale []string
	for _, id := range ids {
		if s.Mons[id].Canary.Stale {
			stale = append(stale, id)
		}
	}
	if len(stale) > 0 {
		return Action{Kind: Abandon, IDs: stale}
	}
	for _, id := range ids {
		m := s.Mons[id]
		switch {
		case !m.Canary.Exists:
			place = append(place, id)
		case m.Canary.Place == nil && m.Canary.Refused != "":
			return Action{Kind: Await, IDs: []string{id}, Reason: "MonUnschedulable", Blocked: true,
				Message: fmt.Sprintf("no node can take mon %s: %s", id, m.Canary.Refused)}
		case m.Canary.Place == nil:
		case !s.Spec.HostNetwork && !m.Address.IsValid():
			expose = append(expose, id)
		}
	}
	switch {
	case len(place) > 0:
		return Action{Kind: Place, IDs: place}
	case len(expose) > 0:
		return Action{Kind: Expose, IDs: expose}
	}
	list := s.List
	for _, id := range ids {
		m := s.Mons[id]
		if m.Canary.Place == nil || !m.Address.IsValid() {
			return await("PlacingMon", false, "waiting for a node and an address for mon %s", id)
		}
		var err error
		list, err = list.With(endpoints.Mon{ID: id, Addr: netip.AddrPortFrom(m.Address, s.Spec.Port), Place: m.Canary.Place})
		if err != nil {
			return await("MonAddressTaken", true, "%v", err)
		}
	}
	return Action{Kind: Record, IDs: ids, List: &list}
}

// spent are listed mons whose canary is still there. It has done its work, and while
// it sits on the node the mon itself cannot get there: they repel each other.
func (s State) spent() []string {
	var ids []string
	for _, id := range s.List.IDs() {
		if s.Mons[id].Canary.Exists {
			ids = append(ids, id)
		}
	}
	return ids
}

// idle are listed mons that should run and do not. A mon that is leaving, or
// that was stopped to make room, stays stopped.
func (s State) idle() []string {
	var ids []string
	for _, id := range s.List.IDs() {
		m := s.Mons[id]
		if m.Skipped || m.Leaving || slices.Contains(s.External, id) {
			continue
		}
		if !m.Deployed || m.Stopped && !s.roomWanted(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// roomWanted reports whether mon id is stopped for its replacement and that has
// not been given up. A room lasts as long as the mon may be out; then the old mon
// gets another chance.
func (s State) roomWanted(id string) bool {
	m := s.Mons[id]
	return !m.RoomMade.IsZero() && s.Spec.OutTimeout > 0 && s.Now.Sub(m.RoomMade) < s.Spec.OutTimeout
}

// noteQuorum keeps the durable notes of who is out since when.
func noteQuorum(s State) (Action, bool) {
	var out, in []string
	for _, id := range s.List.IDs() {
		m := s.Mons[id]
		switch {
		case !m.Deployed || m.Skipped || m.Leaving || slices.Contains(s.External, id):
		case !m.InQuorum && m.OutSince.IsZero() && s.Now.Sub(m.Made) >= s.Spec.CheckInterval:
			out = append(out, id)
		case m.InQuorum && (!m.OutSince.IsZero() || !m.RoomMade.IsZero()):
			in = append(in, id)
		}
	}
	switch {
	case len(in) > 0:
		return Action{Kind: MarkIn, IDs: in}, true
	case len(out) > 0:
		return Action{Kind: MarkOut, IDs: out}, true
	}
	return Action{}, false
}

// settleStray deals with mons that Ceph knows and the list does not. One that
// runs and is not leaving goes back into the list: the list was changed by
// hand, and it must hold every mon that clients may need. One without a
// Deployment is what is left of a removal that was cut off. External mons are
// neither.
func settleStray(s State) (Action, bool) {
	for _, id := range s.ids() {
		m := s.Mons[id]
		if m.Listed || !m.InMap || m.Leaving || m.Skipped || slices.Contains(s.External, id) {
			continue
		}
		if m.Deployed && m.MapAddr.IsValid() {
			list, err := s.List.With(endpoints.Mon{ID: id, Addr: m.MapAddr, Place: m.Place})
			if err != nil {
				return await("MonStray", true, "mon %s is missing in %s and cannot be put back: %v", id, endpoints.ConfigMap, err), true
			}
			return Action{Kind: Record, IDs: []string{id}, List: &list}, true
		}
		return expel(s, id), true
	}
	return Action{}, false
}

// expel takes a mon out of the monmap if the rest is a quorum.
func expel(s State, id string) Action {
	if !s.quorumWithout(id) {
		return await("MonRemovalBlocked", true, "mon %s cannot be removed: the other mons would have no quorum", id)
	}
	return Action{Kind: Expel, IDs: []string{id}}
}

// leave carries a removal through: out of the monmap, out of the list, then its
// objects. Each step can be the last before a crash.
func leave(s State) (Action, bool) {
	for _, id := range s.ids() {
		m := s.Mons[id]
		if slices.Contains(s.External, id) || m.Skipped {
			continue
		}
		switch {
		case m.Leaving && m.InMap && m.Listed && !s.quorumWithout(id):
			// Something has changed since it was marked, and now it is needed.
			return Action{Kind: Keep, IDs: []string{id}}, true
		case m.Leaving && m.InMap:
			return expel(s, id), true
		case m.Leaving && m.Listed:
			list, err := s.List.Without(id)
			if err != nil {
				return await("MonRemovalBlocked", true, "%v", err), true
			}
			return Action{Kind: Record, IDs: nil, List: &list}, true
		case m.Leaving && m.Deployed:
			return Action{Kind: Delete, IDs: []string{id}}, true
		}
	}
	return Action{}, false
}

// unknown names a mon that has a Deployment, that neither Ceph nor the list knows, and
// that nobody has marked as leaving. It may be one of the cluster's whose list was
// replaced by an older one, with the only copy of something on its disk: it is not
// deleted by guess.
func unknown(s State) (Action, bool) {
	for _, id := range s.ids() {
		if m := s.Mons[id]; m.Deployed && !m.Listed && !m.InMap && !m.Leaving && !m.Skipped && !slices.Contains(s.External, id) {
			return await("MonUnknown", true, "mon %s has a Deployment, but neither the monmap nor ConfigMap %s names it; delete its Deployment if it is of no use", id, endpoints.ConfigMap), true
		}
	}
	return Action{}, false
}

// repair updates a mon that is out of quorum anyway: the new template may be what
// brings it back.
func repair(s State) (Action, bool) {
	for _, id := range s.List.IDs() {
		if m := s.Mons[id]; m.Outdated && !m.InQuorum && !m.Stopped && !m.Skipped && !m.Leaving {
			return Action{Kind: Repair, IDs: []string{id}}, true
		}
	}
	return Action{}, false
}

// overdue reports whether mon id has been out for longer than is waited for it.
// A mon whose node was deleted is not waited for; one whose pod never got a node
// gets twice the time, since replacing it would not help the scheduler.
func (s State) overdue(id string) bool {
	m := s.Mons[id]
	if m.InQuorum || m.Skipped || m.Leaving || m.OutSince.IsZero() || s.Spec.OutTimeout <= 0 || slices.Contains(s.External, id) {
		return false
	}
	limit := s.Spec.OutTimeout
	switch {
	case m.NodeGone:
		limit = 0
	case !m.Scheduled && !m.Stopped:
		limit *= 2
	}
	return s.Now.Sub(m.OutSince) >= limit
}

// failed returns the mon that has to be replaced, if there is one. With several,
// the one that has been out longest.
func (s State) failed() (string, bool) {
	worst := ""
	for _, id := range s.List.IDs() {
		if s.overdue(id) && (worst == "" || s.Mons[id].OutSince.Before(s.Mons[worst].OutSince)) {
			worst = id
		}
	}
	return worst, worst != ""
}

// replace brings a new mon in for a failed one, and lets the failed one leave
// once the new one is in quorum.
func replace(s State) (Action, bool) {
	old, ok := s.failed()
	if !ok {
		return Action{}, false
	}
	if len(s.List.Mons) > s.Spec.Count { // the replacement is listed
		if id, joining := s.joining(); joining {
			return await("MonJoining", false, "mon %s replaces mon %s and is joining the quorum", id, old), true
		}
		if a := expel(s, old); a.Kind == Await {
			return a, true
		}
		return Action{Kind: MarkLeave, IDs: []string{old}}, true
	}
	if s.Spec.Count == 1 && len(s.List.Mons) == 1 {
		return await("MonDown", true, "mon %s is the only mon and cannot be replaced while it is down", old), true
	}
	id, _ := s.List.Next()
	m, room := s.Mons[id], s.Mons[old]
	if m.Canary.Refused != "" && m.Canary.Place == nil && room.NodeFit && room.RoomMade.IsZero() && !s.Spec.HostNetwork {
		return Action{Kind: MakeRoom, IDs: []string{old}, Message: "no other node can take its replacement"}, true
	}
	a := bringIn(s, []string{id})
	if a.Kind == Await && a.Reason == "MonUnschedulable" {
		a.Message = fmt.Sprintf("mon %s has been out of quorum since %s, and %s", old, room.OutSince.UTC().Format(time.RFC3339), a.Message)
	}
	return a, true
}

// abandon deletes what was prepared for a mon that is not wanted any more: the
// failed one came back, or the count was lowered again.
func abandon(s State) (Action, bool) {
	next, _ := s.List.Next()
	growing := len(s.List.Mons) < s.Spec.Count
	var ids []string
	for _, id := range s.ids() {
		m := s.Mons[id]
		if m.Listed || m.InMap || m.Deployed || slices.Contains(s.External, id) || growing && id == next {
			continue
		}
		if m.Canary.Exists || m.Address.IsValid() {
			ids = append(ids, id)
		}
	}
	return Action{Kind: Abandon, IDs: ids}, len(ids) > 0
}

// joining returns a listed mon that is not in quorum and may still get there.
func (s State) joining() (string, bool) {
	for _, id := range s.List.IDs() {
		if m := s.Mons[id]; !m.InQuorum && !m.Leaving && !m.Skipped && !s.overdue(id) {
			return id, true
		}
	}
	return "", false
}

// joinFirst holds every planned change while a mon is out: only a full quorum
// is touched on purpose.
func joinFirst(s State) (Action, bool) {
	id, ok := s.joining()
	if !ok {
		return Action{}, false
	}
	m := s.Mons[id]
	msg := fmt.Sprintf("mon %s is not in quorum", id)
	switch {
	case m.Stopped:
		msg += ": it is stopped"
	case !m.Scheduled:
		msg += ": its pod has no node"
	}
	if !m.OutSince.IsZero() {
		msg += " since " + m.OutSince.UTC().Format(time.RFC3339)
		if s.Spec.OutTimeout > 0 {
			msg += fmt.Sprintf("; it is replaced after %v", s.Spec.OutTimeout)
		} else {
			msg += "; replacing is switched off (timeout 0)"
		}
	}
	return Action{Kind: Await, IDs: []string{id}, Reason: "MonOutOfQuorum", Message: msg}, true
}

// update rolls the next mon with an old template, when the one before has come back:
// between a change of a Deployment and the end of the old pod, and for some seconds
// after that, Ceph itself says that the next may stop. Of one or two mons none is ever
// ok to stop, so there the short outage is taken: it ends with the new pod, and nothing
// is removed.
func update(s State) (Action, bool) {
	next := ""
	for _, id := range s.List.IDs() {
		m := s.Mons[id]
		if !m.Outdated || m.Skipped || m.Leaving {
			continue
		}
		// One that restarts anyway costs no further outage.
		if next == "" || m.Restarting && !s.Mons[next].Restarting {
			next = id
		}
	}
	if next == "" {
		return Action{}, false
	}
	for _, id := range s.ids() {
		if m := s.Mons[id]; id != next && m.Deployed && !m.Stopped && m.InQuorum && m.Restarting {
			return await(ReasonRestarting, false, "mon %s restarts with a new specification when mon %s is ready", next, id), true
		}
	}
	if len(s.members()) <= 2 {
		return Action{Kind: Repair, IDs: []string{next}}, true
	}
	return Action{Kind: Update, IDs: []string{next}}, true
}

// shrink lets one mon leave when there are more than wanted: the youngest, since
// the oldest are the ones that clients know.
func shrink(s State) (Action, bool) {
	if len(s.List.Mons) <= s.Spec.Count {
		return Action{}, false
	}
	for _, id := range slices.Backward(s.List.IDs()) {
		if m := s.Mons[id]; m.Skipped || slices.Contains(s.External, id) {
			continue
		}
		if a := expel(s, id); a.Kind == Await {
			return a, true
		}
		return Action{Kind: MarkLeave, IDs: []string{id}}, true
	}
	return Action{}, false
}

// grow adds one mon.
func grow(s State) (Action, bool) {
	if len(s.List.Mons) >= s.Spec.Count {
		return Action{}, false
	}
	id, _ := s.List.Next()
	return bringIn(s, []string{id}), true
}

// quorumWithout reports whether mon id can be taken out.
func (s State) quorumWithout(id string) bool { return KeepsQuorum(s.members(), id) }

// members are the mons of the monmap: id to whether it is in quorum.
func (s State) members() map[string]bool {
	members := map[string]bool{}
	for name, m := range s.Mons {
		if m.InMap {
			members[name] = m.InQuorum
		}
	}
	return members
}

// KeepsQuorum is the rule for taking mon id out, for the last look before it
// too: those that are in quorum now, without id, must be a majority of the map
// without id. members are the mons of the monmap and whether each is in quorum.
func KeepsQuorum(members map[string]bool, id string) bool {
	if _, ok := members[id]; !ok {
		return true
	}
	in := 0
	for name, ok := range members {
		if ok && name != id {
			in++
		}
	}
	return 2*in > len(members)-1
}

// ids of all mons in the order of their creation.
func (s State) ids() []string {
	l := endpoints.List{Mons: map[string]endpoints.Mon{}}
	for id := range s.Mons {
		l.Mons[id] = endpoints.Mon{ID: id}
	}
	return l.IDs()
}

// notRunning names the mons that are not up as far as Kubernetes can tell.
func (s State) notRunning() string {
	var parts []string
	for _, id := range s.List.IDs() {
		switch m := s.Mons[id]; {
		case !m.Deployed:
			parts = append(parts, "mon "+id+" has no Deployment")
		case m.Stopped:
			parts = append(parts, "mon "+id+" is stopped")
		case !m.Scheduled:
			parts = append(parts, "mon "+id+" has no node")
		case !m.Ready:
			parts = append(parts, "mon "+id+" does not answer")
		}
	}
	if len(parts) == 0 {
		return "all mon pods are ready"
	}
	return strings.Join(parts, ", ")
}

func orUnknown(s string) string {
	if s == "" {
		return "no answer"
	}
	return s
}

func await(reason string, blocked bool, format string, args ...any) Action {
	return Action{Kind: Await, Reason: reason, Message: fmt.Sprintf(format, args...), Blocked: blocked}
}
