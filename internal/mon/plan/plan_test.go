package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// world is a small cluster: nodes that can hold one mon each, the objects in
// Kubernetes, and Ceph's monmap. Its rules are the real ones as far as they
// bear on the steps: a mon joins when it runs and the quorum (or the founding
// majority) can take it.
type world struct {
	t     *testing.T
	now   time.Time
	spec  Spec
	nodes map[string]bool // node: alive
	list  endpoints.List
	dep   map[string]*deployment
	can   map[string]string // canary: node, or "" while there is none
	svc   map[string]netip.Addr
	inMap map[string]bool
	given map[string]bool // ids that ever ran
	log   []string
	ip    int
}

func (w *world) nextIP() int { w.ip++; return w.ip }

type deployment struct {
	made              time.Time
	node              string
	stopped, leaving  bool
	outdated          bool
	outSince, room    time.Time
	broken            bool // its store is damaged: it never gets into quorum
	restartedByUpdate int
}

func newWorld(t *testing.T, count, nodes int) *world {
	w := &world{
		t: t, now: time.Unix(1790000000, 0), nodes: map[string]bool{}, list: endpoints.Empty(), dep: map[string]*deployment{},
		can: map[string]string{}, svc: map[string]netip.Addr{}, inMap: map[string]bool{}, given: map[string]bool{},
		spec: Spec{Count: count, OutTimeout: 10 * time.Minute, CheckInterval: 45 * time.Second, Port: endpoints.PortV2},
	}
	for i := range nodes {
		w.nodes[fmt.Sprintf("node%d", i+1)] = true
	}
	return w
}

func (w *world) runs(id string) bool {
	d := w.dep[id]
	return d != nil && !d.stopped && !d.broken && w.nodes[d.node]
}

// inQuorum are the mons of the map that run, if they are a majority.
func (w *world) inQuorum() map[string]bool {
	in := map[string]bool{}
	for id := range w.inMap {
		if w.runs(id) {
			in[id] = true
		}
	}
	if 2*len(in) <= len(w.inMap) {
		return nil
	}
	return in
}

func (w *world) state() State {
	in := w.inQuorum()
	s := State{Now: w.now, Spec: w.spec, Quorum: in != nil, Silence: "timed out", List: w.list, Mons: map[string]Mon{}}
	ids := map[string]bool{}
	for _, m := range []map[string]bool{w.inMap, keys(w.list.Mons), keys(w.dep), keys(w.can), keys(w.svc)} {
		for id := range m {
			ids[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		entry, listed := w.list.Mons[id]
		m := Mon{Listed: listed, Addr: entry.Addr, Place: entry.Place, Address: w.svc[id]}
		if in != nil {
			m.InMap, m.InQuorum = w.inMap[id], in[id]
			m.MapAddr = netip.AddrPortFrom(w.svc[id], w.spec.Port)
		}
		if d := w.dep[id]; d != nil {
			m.Deployed, m.Stopped, m.Leaving, m.Outdated, m.Made = true, d.stopped, d.leaving, d.outdated, d.made
			alive, exists := w.nodes[d.node]
			m.OutSince, m.RoomMade, m.Scheduled, m.Ready = d.outSince, d.room, !d.stopped && exists, w.runs(id)
			m.NodeGone, m.NodeFit = !exists, alive
		}
		if node, ok := w.can[id]; ok {
			m.Canary.Exists = true
			if node == "" {
				node = w.schedule()
				w.can[id] = node
			}
			if node == "" {
				m.Canary.Refused = "0/3 nodes are available"
			} else {
				m.Canary.Place = &endpoints.Place{Name: node, Hostname: node}
			}
		}
		s.Mons[id] = m
	}
	return s
}

func keys[V any](m map[string]V) map[string]bool {
	k := map[string]bool{}
	for id := range m {
		k[id] = true
	}
	return k
}

// schedule finds a node without a mon and without a canary.
func (w *world) schedule() string {
	for i := range 9 {
		n := fmt.Sprintf("node%d", i+1)
		if !w.nodes[n] {
			continue
		}
		taken := false
		for _, d := range w.dep {
			taken = taken || d.node == n && !d.stopped
		}
		for _, c := range w.can {
			taken = taken || c == n
		}
		if !taken {
			return n
		}
	}
	return ""
}

// do carries an action out and checks what must hold at that moment.
func (w *world) do(a Action) {
	w.log = append(w.log, a.String())
	quorum := w.inQuorum() != nil
	for _, id := range a.IDs {
		d := w.dep[id]
		switch a.Kind {
		case Place:
			w.can[id] = ""
		case Expose:
			w.svc[id] = netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", w.nextIP()))
		case Start:
			if _, there := w.can[id]; there {
				w.t.Errorf("mon %s is started while its canary keeps it off the node", id)
			}
			if d == nil {
				if w.given[id] {
					w.t.Errorf("mon id %s is used a second time", id)
				}
				w.given[id] = true
				w.dep[id] = &deployment{made: w.now, node: w.list.Mons[id].Place.Name}
			} else {
				d.stopped = false
			}
		case Update, Repair:
			if a.Kind == Update && !w.majorityWithout(id) {
				continue // ok-to-stop says no
			}
			d.outdated = false
			d.restartedByUpdate++
		case MarkOut:
			d.outSince = w.now
		case MarkIn:
			d.outSince, d.room = time.Time{}, time.Time{}
		case MakeRoom:
			d.stopped, d.room = true, w.now
		case Abandon:
			delete(w.can, id)
			if _, listed := w.list.Mons[id]; !listed {
				delete(w.svc, id)
			}
		case MarkLeave:
			d.leaving = true
		case Keep:
			d.leaving = false
		case Expel:
			members := map[string]bool{}
			for m := range w.inMap {
				members[m] = w.runs(m)
			}
			if !KeepsQuorum(members, id) {
				w.t.Errorf("%s is expelled though the rest is no quorum: %v", id, members)
			}
			delete(w.inMap, id)
		case Delete:
			if w.inMap[id] {
				w.t.Errorf("mon %s is deleted while it is in the monmap", id)
			}
			delete(w.dep, id)
			delete(w.svc, id)
		}
	}
	if a.Kind == Record {
		if len(a.List.Mons) == 0 {
			w.t.Error("an empty list is stored")
		}
		if a.List.MaxID < w.list.MaxID {
			w.t.Errorf("maxMonId falls from %d to %d", w.list.MaxID, a.List.MaxID)
		}
		w.list = *a.List
	}
	if quorum && w.inQuorum() == nil {
		w.t.Errorf("%s has cost the cluster its quorum; log:\n%s", a, strings.Join(w.log, "\n"))
	}
	w.join()
	w.check(a)
}

func (w *world) majorityWithout(id string) bool {
	n := 0
	for m := range w.inMap {
		if m != id && w.runs(m) {
			n++
		}
	}
	return 2*n > len(w.inMap)
}

// join lets running mons into the map: all founders together, later ones while
// there is a quorum.
func (w *world) join() {
	for _, id := range w.list.IDs() {
		if w.inMap[id] || w.dep[id] == nil || w.dep[id].leaving {
			continue
		}
		founding := len(w.inMap) == 0 || w.inQuorum() == nil && len(w.inMap) < w.spec.Count && len(w.list.Mons) <= w.spec.Count
		if founding || w.runs(id) && w.inQuorum() != nil {
			w.inMap[id] = true
		}
	}
}

// check is Q3 and Q4: whoever restarts with the stored list reaches a quorum,
// and no two mons share an address.
func (w *world) check(a Action) {
	if in := w.inQuorum(); in != nil {
		known := 0
		for id := range in {
			if _, ok := w.list.Mons[id]; ok {
				known++
			}
		}
		if 2*known <= len(w.inMap) {
			w.t.Errorf("after %s the stored list %v is no quorum of the monmap %v", a, w.list.IDs(), w.inMap)
		}
	}
	seen := map[netip.AddrPort]string{}
	for id, m := range w.list.Mons {
		if o, taken := seen[m.Addr]; taken {
			w.t.Errorf("mons %s and %s share %s", id, o, m.Addr)
		}
		seen[m.Addr] = id
	}
}

// settle runs steps until nothing is left to do, or time has to pass.
func (w *world) settle() Action {
	for range 60 {
		a := Next(w.state())
		if a.Kind == Nothing || a.Kind == Await {
			return a
		}
		if a.Kind == Update && !w.majorityWithout(a.IDs[0]) {
			return a // ok-to-stop says no: later
		}
		w.do(a)
	}
	w.t.Fatalf("does not settle; last steps:\n%s", strings.Join(w.log[len(w.log)-12:], "\n"))
	return Action{}
}

// wait lets time pass in steps as a controller sees it.
func (w *world) wait(d time.Duration) Action {
	var a Action
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(15 * time.Second) {
		a = w.settle()
	}
	return a
}

func (w *world) want(names string) {
	w.t.Helper()
	if a := Next(w.state()); a.Kind != Nothing {
		w.t.Errorf("not done: %s\n%s", a, strings.Join(w.log, "\n"))
	}
	var in []string
	for id := range w.inQuorum() {
		in = append(in, id)
	}
	slices.Sort(in)
	if got := strings.Join(in, ","); got != names {
		w.t.Errorf("quorum of %s, want %s\n%s", got, names, strings.Join(w.log, "\n"))
	}
	if got := w.list.Members(); got != names {
		w.t.Errorf("list of %s, want %s", got, names)
	}
	if len(w.can) > 0 {
		w.t.Errorf("canaries left: %v", w.can)
	}
}

func TestFounding(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		w := newWorld(t, n, 6)
		w.settle()
		w.want("a,b,c,d,e"[:2*n-1])
	}
}

func TestTooFewNodesIsSaid(t *testing.T) {
	w := newWorld(t, 3, 2)
	a := w.wait(time.Minute)
	if a.Kind != Await || !a.Blocked || !strings.Contains(a.Message, "0/3 nodes are available") {
		t.Errorf("%+v", a)
	}
	w.nodes["node3"] = true
	w.settle()
	w.want("a,b,c")
}

func TestGrowAndShrink(t *testing.T) {
	w := newWorld(t, 1, 5)
	w.settle()
	w.spec.Count = 3
	w.settle()
	w.want("a,b,c")
	w.spec.Count = 5
	w.settle()
	w.want("a,b,c,d,e")
	w.spec.Count = 3
	w.settle()
	w.want("a,b,c")
	w.spec.Count = 1
	w.settle()
	w.want("a")
	w.spec.Count = 3
	w.settle()
	w.want("a,f,g")
}

func TestFailoverToASpareNode(t *testing.T) {
	w := newWorld(t, 3, 4)
	w.settle()
	w.nodes["node1"] = false
	if a := w.wait(9 * time.Minute); a.Kind != Await || !strings.Contains(a.Message, "mon a") {
		t.Errorf("before the timeout: %s", a)
	}
	if _, gone := w.list.Mons["a"]; !gone {
		t.Error("mon a was given up before the timeout")
	}
	w.wait(3 * time.Minute)
	w.want("b,c,d")
}

func TestFailoverWithoutASpareNodeMakesRoom(t *testing.T) {
	w := newWorld(t, 3, 3)
	w.settle()
	w.dep["b"].broken = true
	w.wait(12 * time.Minute)
	w.want("a,c,d")
	if w.dep["d"].node != "node2" {
		t.Errorf("mon d is on %s, want the node of the broken mon", w.dep["d"].node)
	}
}

func TestADeletedNodeIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 3, 4)
	w.settle()
	delete(w.nodes, "node2")
	w.wait(2 * time.Minute)
	w.want("a,c,d")
}

func TestAMonThatComesBackIsKept(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 9 * time.Minute, 11 * time.Minute} {
		w := newWorld(t, 3, 3)
		w.settle()
		w.nodes["node3"] = false // no node is left for a replacement
		a := w.wait(after)
		if a.Kind != Await || !strings.Contains(a.Message, "mon c") {
			t.Errorf("after %v: %s", after, a)
		}
		w.nodes["node3"] = true
		w.wait(time.Minute)
		w.want("a,b,c")
	}
}

func TestTimeoutZeroNeverReplaces(t *testing.T) {
	w := newWorld(t, 3, 4)
	w.spec.OutTimeout = 0
	w.settle()
	delete(w.nodes, "node1")
	if a := w.wait(time.Hour); a.Kind != Await || !strings.Contains(a.Message, "switched off") {
		t.Errorf("%s", a)
	}
	if len(w.list.Mons) != 3 {
		t.Error("a mon was replaced")
	}
}

func TestWithoutAQuorumNothingIsTakenAway(t *testing.T) {
	w := newWorld(t, 3, 5)
	w.settle()
	w.nodes["node1"], w.nodes["node2"] = false, false
	before := len(w.log)
	a := w.wait(time.Hour)
	if a.Reason != "NoQuorum" || !strings.Contains(a.Message, "mon a does not answer") {
		t.Errorf("%+v", a)
	}
	if len(w.log) != before {
		t.Errorf("steps without a quorum: %v", w.log[before:])
	}
}

func TestUpdateOneAtATimeAndRepairFirst(t *testing.T) {
	w := newWorld(t, 3, 3)
	w.settle()
	for _, d := range w.dep {
		d.outdated = true
	}
	w.dep["c"].broken = true
	a := Next(w.state())
	if a.Kind != Repair && a.Kind != MarkOut || a.IDs[0] != "c" {
		t.Errorf("first step %s, want the broken mon repaired", a)
	}
	w.do(Action{Kind: Repair, IDs: []string{"c"}})
	w.dep["c"].broken = false
	w.settle()
	w.want("a,b,c")
	for id, d := range w.dep {
		if d.outdated || d.restartedByUpdate != 1 {
			t.Errorf("mon %s: %+v", id, d)
		}
	}
}

// Ceph counts a mon in that was just told to stop, and says that the next one may stop
// too. So one that has not come back holds up the others.
func TestAnUpdateWaitsForTheMonBefore(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(mons map[string]Mon)
		want   string
	}{
		{"none restarts", func(map[string]Mon) {}, "Update a"},
		{"the first restarts", func(m map[string]Mon) {
			a := m["a"]
			a.Outdated, a.Restarting = false, true
			m["a"] = a
		}, "Await"},
		{"the first is changed once more while it restarts", func(m map[string]Mon) {
			b := m["b"]
			b.Restarting = true
			m["b"] = b
		}, "Update b"},
		{"the first has been lost for long", func(m map[string]Mon) {
			a := m["a"]
			a.Outdated, a.Restarting, a.Ready, a.InQuorum = false, true, false, false
			m["a"] = a
		}, "Update b"},
		{"the first is back", func(m map[string]Mon) {
			a := m["a"]
			a.Outdated = false
			m["a"] = a
		}, "Update b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 3, 3)
			w.settle()
			for _, d := range w.dep {
				d.outdated = true
			}
			s := w.state()
			tc.change(s.Mons)
			a, _ := update(s)
			got := string(a.Kind)
			if a.Kind == Update {
				got += " " + strings.Join(a.IDs, ",")
			}
			if got != tc.want {
				t.Errorf("the next step is %s, want %s", a, tc.want)
			}
		})
	}
}

func TestAnEntryRemovedByHandComesBack(t *testing.T) {
	w := newWorld(t, 3, 3)
	w.settle()
	delete(w.list.Mons, "b")
	w.settle()
	w.want("a,b,c")
}

// The same flows with a restart from nothing but what is stored after every
// step, and with faults at random: nodes die and come back, mons break, the
// count changes. Whatever happens, no step may break a rule; and once all nodes
// are back, the cluster settles.
func TestRandomTrouble(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 3, 5)
		w.settle()
		for range 60 {
			switch rnd.IntN(6) {
			case 0:
				n := fmt.Sprintf("node%d", rnd.IntN(5)+1)
				w.nodes[n] = !w.nodes[n]
			case 1:
				for _, id := range w.list.IDs() {
					if rnd.IntN(6) == 0 && w.dep[id] != nil && w.majorityWithout(id) {
						w.dep[id].broken = true
					}
				}
			case 2:
				w.spec.Count = []int{1, 3, 5}[rnd.IntN(3)]
			case 3:
				for _, d := range w.dep {
					d.outdated = rnd.IntN(2) == 0
				}
			}
			for range rnd.IntN(8) {
				if a := Next(w.state()); a.Kind != Nothing && a.Kind != Await {
					w.do(a)
				}
			}
			w.now = w.now.Add(time.Duration(rnd.IntN(400)) * time.Second)
			if t.Failed() {
				t.Fatalf("seed %d; log:\n%s", seed, strings.Join(w.log, "\n"))
			}
		}
		for n := range w.nodes {
			w.nodes[n] = true
		}
		if w.inQuorum() == nil {
			for _, d := range w.dep {
				d.broken = false
			}
		}
		w.spec.Count = 3
		w.wait(3 * time.Hour)
		if len(w.inQuorum()) != 3 || len(w.list.Mons) != 3 {
			t.Fatalf("seed %d: ends with quorum %v and list %v: %s\n%s", seed, w.inQuorum(), w.list.IDs(), Next(w.state()), strings.Join(w.log[max(0, len(w.log)-25):], "\n"))
		}
	}
}

// Labels of the user and mons of others are respected in every state.
func TestSkippedAndExternalAreNeverTouched(t *testing.T) {
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		flip := func() bool { return rnd.IntN(2) == 0 }
		s := State{Now: time.Unix(1790000000, 0), Quorum: flip(), Mons: map[string]Mon{}, List: endpoints.Empty(), External: []string{"e"},
			Spec: Spec{Count: []int{1, 3, 5}[rnd.IntN(3)], OutTimeout: time.Minute, Port: 3300}}
		for i, id := range []string{"a", "b", "c", "d", "e"} {
			m := Mon{InMap: s.Quorum && flip(), Deployed: flip(), Stopped: flip(), Outdated: flip(), Leaving: flip(), Scheduled: flip(), NodeGone: flip(), Skipped: id == "b"}
			m.InQuorum = m.InMap && flip()
			if id == "b" {
				m.Deployed = true
			}
			if flip() {
				m.OutSince = s.Now.Add(-time.Hour)
			}
			if m.Listed = flip(); m.Listed {
				addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 3300)
				var err error
				if s.List, err = s.List.With(endpoints.Mon{ID: id, Addr: addr}); err != nil {
					t.Fatal(err)
				}
			}
			s.Mons[id] = m
		}
		a := Next(s)
		for _, id := range a.IDs {
			if (id == "b" || id == "e") && a.Kind != Await && a.Kind != Record && a.Kind != Place && a.Kind != Expose {
				t.Fatalf("seed %d: %s touches a mon that is to be left alone", seed, a)
			}
		}
		if !s.Quorum && slices.Contains([]Kind{Expel, Delete, MarkLeave, Update, MakeRoom}, a.Kind) {
			t.Fatalf("seed %d: %s without a quorum", seed, a)
		}
		if a.Kind == Expel && !KeepsQuorum(s.members(), a.IDs[0]) {
			t.Fatalf("seed %d: %s", seed, a)
		}
	}
}

// A list that was lost is not founded anew: mons with other ids would form a second
// cluster of the same fsid, and the running ones would be taken for leftovers.
func TestALostListFoundsNothing(t *testing.T) {
	lost := func(change func(w *world, s *State)) Action {
		w := newWorld(t, 3, 6)
		w.settle()
		s := w.state()
		s.List, s.Quorum = endpoints.Empty(), false
		for id, m := range s.Mons {
			m.Listed = false
			s.Mons[id] = m
		}
		change(w, &s)
		return Next(s)
	}
	for name, change := range map[string]func(w *world, s *State){
		"Deployments run":                     func(*world, *State) {},
		"the list is empty, and ids are used": func(_ *world, s *State) { s.Mons, s.List.MaxID = map[string]Mon{}, 4 },
		"the status says that Ceph has run":   func(_ *world, s *State) { s.Mons, s.Ran = map[string]Mon{}, "it has run" },
	} {
		if a := lost(change); a.Kind != Await || !a.Blocked || a.Reason != "MonListLost" {
			t.Errorf("%s: %s", name, a)
		}
	}
	if a := lost(func(_ *world, s *State) { s.Mons = map[string]Mon{} }); a.Kind != Place {
		t.Errorf("clean ground: %s", a)
	}
}

// The list of an old backup names mons that are long gone. They are not started
// beside those that run.
func TestAnOldListStartsNothing(t *testing.T) {
	w := newWorld(t, 3, 6)
	w.settle()
	old := w.list
	for _, id := range []string{"a", "b", "c"} {
		w.nodes[w.dep[id].node] = false
		w.wait(20 * time.Minute)
	}
	w.nodes = map[string]bool{"node1": true, "node2": true, "node3": true, "node4": true, "node5": true, "node6": true}
	w.wait(20 * time.Minute)
	if w.list.Members() == old.Members() || w.dep["a"] != nil {
		t.Fatalf("nothing was replaced: %v", w.list.IDs())
	}
	w.list = old
	s := w.state()
	s.Quorum = false // the addresses of the old list do not answer
	for id, m := range s.Mons {
		m.InMap, m.InQuorum = false, false
		s.Mons[id] = m
	}
	if a := Next(s); a.Kind != Await || !a.Blocked || a.Reason != "MonListStale" {
		t.Errorf("%s", a)
	}
}

// A spec that has broken the only mon can be taken back: without a quorum a mon that
// does not answer gets its new template, and one that answers is left alone.
func TestABrokenMonIsRepairedWithoutAQuorum(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.settle()
	w.dep["a"].broken, w.dep["a"].outdated = true, true
	if a := Next(w.state()); a.Kind != Repair || a.IDs[0] != "a" {
		t.Errorf("%s", a)
	}
	s := w.state()
	m := s.Mons["a"]
	m.Ready = true
	s.Mons["a"] = m
	if a := Next(s); a.Kind != Await {
		t.Errorf("a mon that answers: %s", a)
	}
}

// A placement that fits no node is corrected: the pod that waits with the old one goes.
func TestACanaryFollowsThePlacement(t *testing.T) {
	w := newWorld(t, 1, 0)
	w.settle()
	s := w.state()
	m := s.Mons["a"]
	m.Canary.Stale = true
	s.Mons["a"] = m
	if a := Next(s); a.Kind != Abandon || a.IDs[0] != "a" {
		t.Errorf("%s", a)
	}
}

// A mark on a mon that the list has lost is not taken back: there is nothing to build
// it from. It stays while it is needed.
func TestALeavingMonOutsideOfTheListStays(t *testing.T) {
	w := newWorld(t, 3, 3)
	w.settle()
	s := w.state()
	s.List, _ = s.List.Without("c")
	m := s.Mons["c"]
	m.Listed, m.Leaving = false, true
	s.Mons["c"] = m
	b := s.Mons["b"]
	b.InQuorum = false
	s.Mons["b"] = b
	if a := Next(s); a.Kind == Keep || a.Kind == Expel || a.Kind == Delete {
		t.Errorf("%s", a)
	}
}
