package plan_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
)

const mateUUID = "33333333-0000-4000-8000-000000000000"

func together(kind plan.SetKind, leader int) func(*plan.Note) {
	return func(n *plan.Note) {
		n.Set = &plan.Set{Kind: kind, Leader: leader, Members: []plan.Member{{ID: 4, UUID: mateUUID}, {ID: 5, UUID: oldUUID}}}
	}
}

func mourned(n *plan.Note) { at := time.Unix(0, 0); n.Dead = &at }

// notes of OSDs of a set: each with the changes alone, too.
func notesOf(changes ...func(*plan.Note)) field {
	var all []*plan.Note
	for _, set := range []func(*plan.Note){together(plan.OnDisk, 4), together(plan.OnMetadata, 4), together(plan.OnMetadata, 5)} {
		for _, c := range append(changes, func(*plan.Note) {}) {
			all = append(all, note(withDB, drained, set, c))
		}
	}
	return set(all, func(s *plan.State, n *plan.Note) {
		s.Note, s.Leads = n, n.Set.Kind == plan.OnMetadata && n.Set.Leader == s.ID
	})
}

// mates of every kind that matters.
func mates() field {
	m := func(change func(*plan.Mate)) []plan.Mate {
		x := plan.Mate{Member: plan.Member{ID: 4, UUID: mateUUID}, Claimed: true, Asked: true}
		change(&x)
		return []plan.Mate{x}
	}
	attempt := &plan.Attempt{Number: 1, Device: "/dev/sdx", Serial: "NEW"}
	return set([][]plan.Mate{
		m(func(m *plan.Mate) { m.In, m.Running = true, true }),
		m(func(m *plan.Mate) { m.Claimed, m.In, m.Running = false, true, true }),
		m(func(m *plan.Mate) { m.Claimed, m.Why, m.Running = false, "fenced", true }),
		m(func(m *plan.Mate) { m.Asked, m.Running = false, true }),
		m(func(m *plan.Mate) { m.Running, m.Safe = true, plan.Unsafe }),
		m(func(m *plan.Mate) { m.Running, m.Safe = true, plan.Safe }),
		m(func(m *plan.Mate) { m.Stopped, m.Safe = true, plan.Safe }),
		m(func(m *plan.Mate) { m.Stopped, m.Safe = true, plan.Unknown }),
		m(func(m *plan.Mate) { m.Safe = plan.Unsafe }),
		m(func(m *plan.Mate) { m.Dead, m.Safe = true, plan.Unsafe }),
		m(func(m *plan.Mate) { m.Dead, m.Stopped = true, true }),
		m(func(m *plan.Mate) { m.Gone, m.Stopped = true, true }),
		m(func(m *plan.Mate) { m.Gone, m.Stopped, m.Attempt, m.Free = true, true, attempt, true }),
		m(func(m *plan.Mate) { m.Gone, m.Stopped, m.Attempt, m.Making = true, true, attempt, true }),
		m(func(m *plan.Mate) { m.Gone, m.Stopped, m.Attempt, m.Made = true, true, attempt, true }),
		m(func(m *plan.Mate) { m.Gone, m.Claimed, m.Made = true, false, true }),
		m(func(m *plan.Mate) { m.Gone, m.Claimed = true, false }),
		m(func(m *plan.Mate) { m.Gone, m.Claimed, m.Lost = true, false, true }),
	}, func(s *plan.State, v []plan.Mate) { s.Mates = v })
}

var (
	loss      = either(func(s *plan.State, v bool) { s.Loss = v })
	longDead  = either(func(s *plan.State, v bool) { s.LongDead = v })
	still     = either(func(s *plan.State, v bool) { s.Settled = v })
	strangers = set([][]string{nil, {"osd.9"}}, func(s *plan.State, v []string) { s.Strangers = v })
	podReady  = either(func(s *plan.State, v bool) { s.PodReady = v })
	accepted  = always(func(s *plan.State) { s.Answered, s.InProgress, s.Fenced, s.Usage = true, true, true, true })
	closed    = set([]plan.JobState{plan.NoJob, plan.Succeeded, plan.Expired}, func(s *plan.State, v plan.JobState) { s.Close = v })
	makingFew = set([]plan.JobState{plan.NoJob, plan.Running, plan.Failed, plan.Retry, plan.Succeeded}, func(s *plan.State, v plan.JobState) { s.Make = v })
)

// further is what bears on a metadata device that takes the place of one that has failed too.
func further() field {
	type more struct {
		behind string
		begun  bool
		joined []plan.Mate
	}
	other := plan.Mate{Member: plan.Member{ID: 6, UUID: mateUUID}, Claimed: true, Gone: true, Stopped: true}
	making := other
	making.Making = true
	return set([]more{{}, {behind: "osd.4 is still on it"}, {joined: []plan.Mate{other}}, {joined: []plan.Mate{making}}, {begun: true, joined: []plan.Mate{other}}}, func(s *plan.State, v more) {
		s.Behind, s.Begun, s.Joined = v.behind, v.begun, v.joined
	})
}

// TestEveryStateOfASet walks the states of OSDs that are replaced together.
func TestEveryStateOfASet(t *testing.T) {
	kinds, count, reasons := map[plan.Kind]int{}, 0, told()
	for _, part := range []struct {
		name   string
		fields []field
	}{
		{"old disk", []field{accepted, asked, ready, osd(oldOSD), notesOf(encrypted, mourned, wasOut, func(n *plan.Note) { encrypted(n); mourned(n) }), mates(), up, in, safety, loss, longDead, still, node, running, podsThere, closed, strangers}},
		{"turn", []field{accepted, asked, osd(oldOSD), notesOf(mourned), mates(), up, podReady, in, turn, stuck, loss, safety, node, running}},
		{"slot", []field{accepted, asked, ready, osd(gone, free), notesOf(tried, failed, lost, settled), mates(), running, podsThere, makingFew, matched, question, disks, strangers,
			set([]uint64{0, 1 << 40}, func(s *plan.State, v uint64) { s.Need = v })}},
		{"further device", []field{accepted, asked, ready, osd(gone, free), notesOf(tried, failed), mates(), makingFew, matched, question, further()}},
		{"new disk", []field{accepted, asked, ready, osd(newOSD, free), notesOf(tried, failed, replaced), mates(), isNew, up, in, safety, running, podsThere, makingFew, set([]int{0, 1, 2}, func(s *plan.State, v int) { s.Found, s.Proven = v > 0, v == 2 }),
			set([]float64{0, 2}, func(s *plan.State, v float64) { s.Weigh = v })}},
		{"given up", []field{accepted, abandoned, osd(gone, free, oldOSD), notesOf(tried), mates(), running, podsThere, makingFew, zapping, safety, node}},
	} {
		begun := count
		walk(part.fields, &plan.State{ID: 5}, func(s *plan.State) {
			count++
			a := plan.Next(*s)
			kinds[a.Kind]++
			if err := check(*s, a); err != nil {
				t.Fatalf("%s: %v\n%+v\nnote %+v\nmates %+v", part.name, err, *s, s.Note, s.Mates)
			}
			if a.Kind == plan.Wait && !reasons[a.Reason] {
				t.Fatalf("%s: no message of TestMessages has the reason of %+v", part.name, a)
			}
		})
		t.Logf("%s: %d states", part.name, count-begun)
	}
	t.Logf("%d states", count)
	for _, k := range []plan.Kind{plan.Enlist, plan.Mourn, plan.Revive, plan.Bury, plan.Force, plan.Weigh, plan.Stop, plan.Destroy, plan.Out, plan.Show, plan.Claim, plan.Make, plan.Handover, plan.Zap, plan.Remove} {
		if kinds[k] == 0 {
			t.Errorf("no state leads to %s", k)
		}
	}
}

// pair is a set of two OSDs, each with a world of its own.
type pair struct {
	w [2]*world
	// dead: the metadata device does not answer.
	dead bool
	age  int
}

// old0 is the uuid that an OSD had at first.
func old0(id int) string { return map[int]string{4: mateUUID, 5: oldUUID}[id] }

func newPair(kind plan.SetKind) *pair {
	p := &pair{}
	for i := range p.w {
		p.w[i] = newWorld(withDB, together(kind, 4))
		s := &p.w[i].s
		s.ID = 4 + i
		if i == 0 {
			s.UUID, s.Fresh.UUID, s.Fresh.Record.UUID, s.Fresh.Record.ID = mateUUID, mateUUID, mateUUID, 4
		}
		if kind == plan.OnMetadata && i == 1 {
			s.Asked = false // the leader's annotation counts when it is claimed
		}
	}
	return p
}

// look puts into each state what it sees of the other.
func (p *pair) look() {
	for i := range p.w {
		s, o := &p.w[i].s, &p.w[1-i].s
		old := old0(o.ID)
		m := plan.Mate{Member: plan.Member{ID: o.ID, UUID: old}, Asked: o.Asked, In: o.In, Running: o.Up, Safe: o.Safety,
			Gone: !o.Exists || o.Destroyed || o.UUID != old, Claimed: o.Note != nil && o.Note.Replaced == "", Stopped: o.Replicas == 0 && len(o.Pods) == 0 && !o.Up}
		m.Made = o.Exists && !o.Destroyed && o.UUID != old && o.Found
		if o.Note != nil {
			m.Dead, m.Attempt = o.Note.Dead != nil, o.Note.Attempt
			m.Making = o.Make == plan.Running || o.Make == plan.Ending
			m.Free = o.Make == plan.NoJob && o.Note.Attempt != nil && o.Note.Attempt.Failed == ""
		}
		if s.Note != nil && s.Note.Set.Kind == plan.OnMetadata {
			s.Leads = s.ID == 4
			s.Asked = p.w[0].s.Asked
			s.Loss = p.w[0].s.Loss
			m.Asked = s.Asked
		}
		if s.Note == nil && s.UUID != old0(s.ID) {
			s.Asked = false // it is back, and the annotation is the leader's
		}
		s.Mates = []plan.Mate{m}
		s.Settled = p.age > 6
		s.LongDead = s.Note != nil && s.Note.Dead != nil && p.age > 8
	}
}

// do carries out an action of one of them.
func (p *pair) do(i int, a plan.Action) {
	w := p.w[i]
	n := plan.Note{}
	if w.s.Note != nil {
		n = *w.s.Note
	}
	switch a.Kind {
	case plan.Enlist:
		f := p.w[1-i].s.Fresh
		o := &p.w[1-i].s
		o.Note, o.InProgress, o.Fenced = &f, true, true
	case plan.Mourn:
		at := time.Unix(0, 0)
		n.Dead, w.s.Note = &at, &n
	case plan.Revive:
		n.Dead, w.s.Note = nil, &n
	case plan.Bury:
		w.s.Replicas = 0
	case plan.Force:
		w.s.Destroyed, w.s.UUID = true, zero
		w.destroyed++
	case plan.Claim:
		w.do(a)
		if m := w.s.Match; m == nil {
			w.s.Note.Attempt.Device = n.Attempt.Device
		}
		w.s.Note.Attempt.Set = w.s.Shares()
	default:
		w.do(a)
	}
}

func (p *pair) pass(r *rand.Rand, failures *int) {
	p.age++
	for i, w := range p.w {
		old := old0(w.s.ID)
		// world knows one old uuid.
		uuid := w.s.UUID
		if uuid == old {
			w.s.UUID = oldUUID
		}
		w.pass(r, failures)
		if w.s.UUID == oldUUID {
			w.s.UUID = old
		}
		if p.dead && w.s.UUID == old {
			w.s.Up = false
			w.s.Safety, w.s.SafetyWhy = plan.Unsafe, "the only copy is on it"
		}
		both := p.w[0].s.Ready && p.w[1].s.Ready
		if !both && w.s.Note != nil && w.s.Note.Attempt == nil {
			w.s.Match = nil
		}
		if w.s.Match != nil {
			w.s.Match = &swap.Match{OSD: 4 + i, Device: "/dev/sdx", Serial: "NEW", Proof: "the slot"}
		}
	}
	// One disk for both.
	if a, b := p.w[0].s.Match, p.w[1].s.Match; (a == nil) != (b == nil) && p.w[0].s.Ready && p.w[1].s.Ready {
		for i := range p.w {
			p.w[i].s.Match = &swap.Match{OSD: 4 + i, Device: "/dev/sdx", Serial: "NEW", Proof: "the slot"}
		}
	}
}

// TestTheFlowOfASet plays whole replacements of two OSDs together, with the process dying
// before and after any step, disks that fail, and a metadata device that is dead. None is
// stopped or destroyed before both are ready for it, and both come back.
func TestTheFlowOfASet(t *testing.T) {
	for name, c := range map[string]struct {
		kind plan.SetKind
		dead bool
	}{"disk": {plan.OnDisk, false}, "metadata": {plan.OnMetadata, false}, "dead metadata": {plan.OnMetadata, true}} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(1500) {
				r := rand.New(rand.NewPCG(seed, 7))
				p, failures := newPair(c.kind), int(seed%3)
				if p.dead = c.dead; c.dead {
					p.w[0].s.Loss = true
				}
				var trail []string
				idle := 0
				for step := 0; idle < 2; step++ {
					i := step % 2
					p.look()
					s := p.w[i].s
					a := plan.Next(s)
					if err := check(s, a); err != nil {
						t.Fatalf("seed %d, osd.%d: %v\n%s", seed, s.ID, err, strings.Join(trail, "\n"))
					}
					if a.Kind == plan.None && s.Note == nil && s.UUID == newUUID {
						idle++
						continue
					}
					idle = 0
					trail = append(trail, "osd."+string(rune('0'+s.ID))+" "+string(a.Kind)+" "+a.Reason+": "+a.Message)
					if step > 900 {
						t.Fatalf("seed %d does not end: %s\n%+v\n%+v", seed, strings.Join(trail[len(trail)-14:], "\n"), p.w[0].s, p.w[1].s)
					}
					if r.IntN(5) > 0 {
						p.do(i, a)
					}
					p.pass(r, &failures)
				}
				for _, w := range p.w {
					if s := w.s; !s.Up || !s.In || s.InProgress || s.Fenced || s.Ready || s.Note != nil {
						t.Fatalf("seed %d ends with %+v\n%s", seed, s, strings.Join(trail, "\n"))
					}
				}
				forced := slices.ContainsFunc(trail, func(l string) bool { return strings.Contains(l, " Force ") })
				if forced != c.dead {
					t.Fatalf("seed %d: forced %v\n%s", seed, forced, strings.Join(trail, "\n"))
				}
			}
		})
	}
}

func TestWeight(t *testing.T) {
	const tib = 1 << 40
	n := func(before float64, change ...func(*plan.Note)) plan.Note {
		x := *note(change...)
		x.Before.CrushWeight, x.Before.Bytes = before, 4*tib
		return x
	}
	for _, c := range []struct {
		name  string
		n     plan.Note
		now   float64
		bytes int64
		want  float64
	}{
		{"the same size", n(4), 4, 4 * tib, 0},
		{"another maker's same size", n(4), 4, 4*tib - tib/50, 0},
		{"larger", n(4), 4, 8 * tib, 8},
		{"smaller", n(4), 4, 2 * tib, 2},
		{"larger, and weighed by the user", n(1.5), 1.5, 8 * tib, 0},
		{"weighed to nothing by the user", n(0), 0, 8 * tib, 0},
		{"changed meanwhile", n(4), 3, 8 * tib, 0},
		{"lost with the id", n(4, lost), 3.99, 4 * tib, 4},
		{"lost with the id, the user's", n(1.5, lost), 4, 4 * tib, 1.5},
		{"lost with the id, and larger", n(4, lost), 8, 8 * tib, 0},
		{"size unknown", n(4), 4, 0, 0},
	} {
		got, differs := c.n.Weight(c.now, c.bytes)
		if got != c.want || differs != (c.want != 0) {
			t.Errorf("%s: %v %v, want %v", c.name, got, differs, c.want)
		}
	}
}

// A metadata device that takes the place of one that has failed, too, is given to all that
// wait for it before it is filled: afterwards the node calls it blank for nobody.
func TestAFurtherMetadataDevice(t *testing.T) {
	x := &plan.Attempt{Number: 1, Device: "/dev/sdx", Serial: "NEW", Failed: "it is gone"}
	y := &plan.Attempt{Number: 2, Device: "/dev/sdy", Serial: "NEWER"}
	next := &swap.Match{OSD: 5, Device: "/dev/sdy", Serial: "NEWER", Proof: "slot"}
	mate := func(id int, a *plan.Attempt) plan.Mate {
		return plan.Mate{Member: plan.Member{ID: id, UUID: mateUUID}, Claimed: true, Gone: true, Stopped: true, Attempt: a, Free: a != nil && a.Failed == ""}
	}
	for _, c := range []struct {
		name   string
		mine   *plan.Attempt
		change func(*plan.State)
		kind   plan.Kind
		has    string
	}{
		{"the device that has failed, and no other", x, func(s *plan.State) { s.Match, s.Make = nil, plan.Failed }, plan.Wait, "it is gone"},
		{"another one", x, func(*plan.State) {}, plan.Claim, "/dev/sdy"},
		{"another one, and the Job of the last", x, func(s *plan.State) { s.Make = plan.Failed }, plan.Unmake, ""},
		{"another one, and an OSD on the last", x, func(s *plan.State) { s.Behind, s.BehindHint = "osd.4 is still on it", "ask for it too" }, plan.Wait, "osd.4 is still on it (ask for it too)"},
		{"given to this one, not to the mate", y, func(s *plan.State) { s.Mates = []plan.Mate{mate(6, x)} }, plan.Wait, "osd.6 has not been given /dev/sdy (serial NEWER) yet"},
		{"given to this one, not to one that joins", y, func(s *plan.State) { s.Joined = []plan.Mate{mate(6, nil)} }, plan.Wait, "osd.6 has not been given"},
		{"given to all", y, func(s *plan.State) { s.Mates, s.Joined = []plan.Mate{mate(6, y)}, []plan.Mate{mate(7, y)} }, plan.Make, ""},
		{"given to all, a lower id comes first", y, func(s *plan.State) { s.Joined = []plan.Mate{mate(3, y)} }, plan.Wait, "osd.3 comes first"},
		{"one that comes too late", y, func(s *plan.State) { s.Joined, s.Begun = []plan.Mate{mate(6, nil)}, true }, plan.Make, ""},
		{"one is being made", y, func(s *plan.State) {
			m := mate(6, y)
			m.Making = true
			s.Joined = []plan.Mate{m}
		}, plan.Wait, "osd.6 is being made first"},
	} {
		n := note(withDB, together(plan.OnMetadata, 4), settled)
		n.Attempt = c.mine
		s := plan.State{ID: 5, Answered: true, Exists: true, Destroyed: true, UUID: zero, Asked: true, InProgress: true, Fenced: true, Ready: true, Note: n, Match: next}
		c.change(&s)
		if a := plan.Next(s); a.Kind != c.kind || !strings.Contains(a.Text(), c.has) {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
}

func TestJoins(t *testing.T) {
	of := func(node string, kind plan.SetKind, members ...plan.Member) plan.Note {
		return plan.Note{Node: node, Set: &plan.Set{Kind: kind, Leader: members[0].ID, Members: members}}
	}
	first := of("n1", plan.OnMetadata, plan.Member{ID: 4, UUID: "u4"}, plan.Member{ID: 5, UUID: "u5"})
	again := of("n1", plan.OnMetadata, plan.Member{ID: 4, UUID: "v4"})
	for _, c := range []struct {
		name string
		a, b plan.Note
		want bool
	}{
		{"an OSD that was rebuilt", again, first, true},
		{"the other way", first, again, true},
		{"itself", first, first, false},
		{"on another node", of("n2", plan.OnMetadata, plan.Member{ID: 4, UUID: "v4"}), first, false},
		{"on one disk", of("n1", plan.OnDisk, plan.Member{ID: 4, UUID: "v4"}), first, false},
		{"of another device", of("n1", plan.OnMetadata, plan.Member{ID: 7, UUID: "u7"}), first, false},
		{"alone", plan.Note{Node: "n1"}, first, false},
	} {
		if got := c.a.Joins(c.b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
