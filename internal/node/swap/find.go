package swap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/device"
)

const (
	// minSize is the smallest disk that ceph-volume makes an OSD of: 5 GiB.
	minSize = 5 << 30
	// sizePercent is how far two disks of the same nominal size may differ.
	sizePercent = 1
)

// Find decides which disks replace which of the pending OSDs' disks:
//
//   - the disk that the user has named;
//   - the disk in the old one's slot, if it is proven to be another one;
//   - a disk in another slot that was not there when the OSD was destroyed, if the
//     old one is proven to be gone; of several by class, then by size.
//
// Only a blank disk replaces anything. What could be meant and is not proven is a
// question, and is reserved until that is answered.
func Find(pending []Pending, devices []device.Device) Outcome {
	f := finder{all: devices, claimed: map[int][]*group{}}
	f.group(pending)
	f.disks()
	f.named()
	f.slots()
	f.elsewhere()
	f.unexplained()
	return f.outcome()
}

// identity of one disk compared with another.
type likeness int

const (
	unknown likeness = iota
	same
	other
)

// group is the OSDs of one old disk.
type group struct {
	members []Pending
	old     Disk
	// disk is the index of the match, -1 without one.
	disk     int
	proof    string
	extra    []string // warnings
	question string
	// maybe are disks that may be meant.
	maybe []int
	// settled groups are left out of later, weaker rules.
	settled bool
}

func (g *group) name() string {
	var names []string
	for _, m := range g.members {
		names = append(names, fmt.Sprintf("osd.%d", m.OSD))
	}
	return strings.Join(names, ", ")
}

func (g *group) ask(format string, args ...any) {
	g.question, g.settled = fmt.Sprintf(format, args...), true
}

type finder struct {
	all    []device.Device
	groups []*group
	// whole are the indexes of devices that somebody can plug in.
	whole   []int
	claimed map[int][]*group
}

// group brings the OSDs of one disk together, in the order of their ids, so that the
// outcome does not depend on the order of the request.
func (f *finder) group(pending []Pending) {
	sorted := slices.Clone(pending)
	slices.SortFunc(sorted, func(a, b Pending) int { return a.OSD - b.OSD })
	byDisk := map[string]*group{}
	for _, p := range sorted {
		key := fmt.Sprintf("osd %d", p.OSD)
		if p.Old.Serial != "" || p.Old.WWN != "" {
			// The slot too: there are disks that all have the same serial.
			key = p.Old.Serial + " " + p.Old.WWN + " " + p.Old.ByPath
		} else if p.Old.ByPath != "" {
			key = p.Old.ByPath
		}
		if byDisk[key] == nil {
			byDisk[key] = &group{old: p.Old, disk: -1}
			f.groups = append(f.groups, byDisk[key])
		}
		byDisk[key].members = append(byDisk[key].members, p)
	}
}

func (f *finder) disks() {
	for i, d := range f.all {
		if (d.Type == device.Disk || d.Type == device.Loop) && d.HasNode && d.Size > 0 && !device.Unplugged(d.Name) {
			f.whole = append(f.whole, i)
		}
	}
}

// compare says whether a device is the group's old disk.
func (g *group) compare(d device.Device) likeness {
	for _, m := range g.members {
		if slices.ContainsFunc(d.OSDs, func(o device.OSD) bool { return o.UUID == m.UUID && (o.Role == device.RoleBlock) != m.Metadata }) {
			return same
		}
	}
	o := g.old
	switch {
	case o.WWN != "" && d.WWN != "" && o.WWN != d.WWN:
		return other
	case o.Serial != "" && d.Serial != "":
		if o.Serial == d.Serial {
			return same
		}
		return other
	case o.WWN != "" && d.WWN != "":
		return same
	case o.ByID != "" && slices.Contains(d.Links, o.ByID):
		return same
	case o.Size > 0 && o.Size != d.Size:
		return other
	case uses(d) != "":
		// It holds something, and not this OSD: it was not wiped either.
		return other
	}
	return unknown
}

// keeps says that a device is one that a member of the group stays on.
func (g *group) keeps(d device.Device) bool {
	return slices.ContainsFunc(g.members, func(m Pending) bool {
		k := m.Keep
		switch {
		case !m.Metadata:
			return false
		case k.Serial != "" && d.Serial != "":
			return k.Serial == d.Serial && (k.WWN == "" || d.WWN == "" || k.WWN == d.WWN)
		case k.WWN != "" && d.WWN != "":
			return k.WWN == d.WWN
		}
		return k.ByID != "" && slices.Contains(d.Links, k.ByID) || k.ByPath != "" && slices.Contains(d.Links, k.ByPath)
	})
}

// kept says that a device is one that somebody stays on.
func (f *finder) kept(i int) bool {
	return slices.ContainsFunc(f.groups, func(g *group) bool { return g.keeps(f.all[i]) })
}

// gone says that the old disk is proven not to be in the node any more.
func (f *finder) gone(g *group) bool {
	return !slices.ContainsFunc(f.whole, func(i int) bool { return g.compare(f.all[i]) != other })
}

// anyOld is the group whose old disk this is, or nil.
func (f *finder) anyOld(i int) *group {
	for _, g := range f.groups {
		if g.compare(f.all[i]) == same {
			return g
		}
	}
	return nil
}

// fresh says whether a disk came after the OSD was destroyed.
func (g *group) fresh(d device.Device) likeness {
	known := false
	for _, m := range g.members {
		if len(m.Before) == 0 {
			continue
		}
		known = true
		if slices.Contains(m.Before, Identity(d.Serial, d.WWN, d.Path, d.Size)) {
			return same
		}
	}
	if !known {
		return unknown
	}
	return other
}

// uses says what keeps a disk from being written to, "" if it is blank as far as is
// known. ceph-volume is asked again right before a disk is used.
func uses(d device.Device) string {
	switch {
	case len(d.OSDs) > 0:
		return fmt.Sprintf("holds the %s of osd.%d", d.OSDs[0].Role, d.OSDs[0].ID)
	case len(d.Mounts) > 0:
		return "is mounted at " + strings.Join(d.Mounts, ", ")
	case len(d.Children) > 0:
		return "has partitions or volumes on it: " + strings.Join(d.Children, ", ")
	case d.FSType != "":
		return "holds a " + d.FSType + " signature"
	case d.PartTable != "":
		return "holds a " + d.PartTable + " partition table"
	case d.ReadOnly:
		return "is read-only"
	case d.Size < minSize:
		return fmt.Sprintf("has %d bytes, and an OSD needs %d", d.Size, uint64(minSize))
	case d.Inventory != nil && !d.Inventory.Available:
		return "is rejected by ceph-volume: " + strings.Join(d.Inventory.Rejected, "; ")
	}
	return ""
}

// emptied is how a disk that holds something can be used all the same. Nobody is told to
// wipe what an OSD may be running on.
func emptied(d device.Device) string {
	if len(d.OSDs) > 0 {
		return "leave it alone, unless no cluster needs that OSD any more and you wipe it"
	}
	return "wipe it"
}

// describe names a disk for a person.
func describe(d device.Device) string {
	if d.Serial != "" {
		return fmt.Sprintf("%s (serial %s)", d.Path, d.Serial)
	}
	return d.Path + " (no serial)"
}

// claim gives a disk to a group. Two claims for one disk are taken back by settle.
func (f *finder) claim(g *group, i int, proof string, warnings ...string) {
	g.disk, g.proof, g.extra, g.settled = i, proof, warnings, true
	f.claimed[i] = append(f.claimed[i], g)
}

// named handles the groups whose disk the user has named; no other rule touches them.
func (f *finder) named() {
	for _, g := range f.groups {
		refs := map[string]bool{}
		var ref string
		for _, m := range g.members {
			if m.With != "" {
				refs[m.With], ref = true, m.With
			}
		}
		switch {
		case len(refs) == 0:
			continue
		case len(refs) > 1:
			g.ask("%s were on one disk, and different disks are named for them", g.name())
			continue
		}
		i := device.Find(f.all, ref)
		switch {
		case i < 0:
			g.ask("%s is named, which this node does not have", ref)
		case !slices.Contains(f.whole, i):
			g.ask("%s is named, which is no whole disk", ref)
		case f.kept(i):
			g.ask("%s is named, which holds the data of an OSD that is rebuilt: it cannot hold databases too", describe(f.all[i]))
		case uses(f.all[i]) != "":
			g.ask("%s is named, but it %s; %s or name another disk", describe(f.all[i]), uses(f.all[i]), emptied(f.all[i]))
			g.maybe = []int{i}
		case g.compare(f.all[i]) == same:
			f.claim(g, i, "named by the user", "it is the disk that the OSD was on before")
		default:
			f.claim(g, i, "named by the user")
		}
	}
	for i, gs := range f.claimed {
		if len(gs) < 2 {
			continue
		}
		for _, g := range gs {
			g.disk, g.extra, g.maybe = -1, nil, []int{i}
			g.ask("%s is named for more than one slot", describe(f.all[i]))
		}
		delete(f.claimed, i)
	}
}

// slots handles what is plugged in where the old disk was.
func (f *finder) slots() {
	for _, g := range f.groups {
		if g.settled || g.old.ByPath == "" {
			continue
		}
		k := slices.IndexFunc(f.whole, func(i int) bool { return slices.Contains(f.all[i].Links, g.old.ByPath) })
		if k < 0 {
			continue
		}
		f.slot(g, f.whole[k])
	}
}

func (f *finder) slot(g *group, i int) {
	d := f.all[i]
	if len(f.claimed[i]) > 0 {
		return // named for another slot
	}
	if o := f.anyOld(i); o != nil && o != g {
		g.ask("the disk in its slot is %s, on which %s was; name it with osd.rook.io/replace-with if it is meant", describe(d), o.name())
		g.maybe = []int{i}
		return
	}
	use := uses(d)
	switch g.compare(d) {
	case same:
		if use == "" {
			g.ask("the disk in its slot is still the old one, %s, wiped; pull it, or name it with osd.rook.io/replace-with to use it again", describe(d))
			g.maybe = []int{i}
		}
	case unknown:
		g.ask("nothing tells the disk in its slot, %s, from the old one; name it with osd.rook.io/replace-with if it is another", describe(d))
		g.maybe = []int{i}
	case other:
		if use != "" {
			g.ask("the disk in its slot is another one, %s, but it %s; %s, or put a blank one into another slot and name it with osd.rook.io/replace-with", describe(d), use, emptied(d))
			g.maybe = []int{i}
			return
		}
		f.claim(g, i, fmt.Sprintf("it is in the old disk's slot (%s) and is another disk: %s", strings.TrimPrefix(g.old.ByPath, "/dev/disk/by-path/"), difference(g.old, d)))
	}
}

// difference says what tells a disk from the old one.
func difference(o Disk, d device.Device) string {
	switch {
	case o.Serial != "" && d.Serial != "" && o.Serial != d.Serial:
		return fmt.Sprintf("serial %s, not %s", d.Serial, o.Serial)
	case o.WWN != "" && d.WWN != "" && o.WWN != d.WWN:
		return fmt.Sprintf("WWN %s, not %s", d.WWN, o.WWN)
	}
	return fmt.Sprintf("%d bytes, not %d", d.Size, o.Size)
}

// elsewhere matches disks in other slots with groups whose old disk is gone.
func (f *finder) elsewhere() {
	var open []*group
	for _, g := range f.groups {
		if !g.settled && f.gone(g) {
			open = append(open, g)
		}
	}
	if len(open) == 0 {
		return
	}
	candidates := f.arrivals(open)
	if len(candidates) == 0 {
		return
	}
	sure := len(candidates) <= len(open)
	for _, i := range candidates {
		d := f.all[i]
		if uses(d) != "" || d.Serial == "" && d.WWN == "" {
			sure = false
		}
		for _, g := range open {
			sure = sure && g.fresh(d) == other
		}
	}
	if sure {
		open, candidates = f.pair(open, candidates)
	}
	for _, g := range open {
		if len(candidates) > 0 {
			g.maybe = candidates
			g.ask("its old disk is gone, and it is not certain which disk replaces it: %s; name it with osd.rook.io/replace-with", f.list(candidates))
		}
	}
}

// arrivals are the disks that may have come for one of the groups.
func (f *finder) arrivals(groups []*group) []int {
	var found []int
	for _, i := range f.whole {
		d := f.all[i]
		if f.kept(i) || len(f.claimed[i]) > 0 || f.anyOld(i) != nil || f.asked(i) {
			continue
		}
		for _, g := range groups {
			fresh := g.fresh(d)
			// Where nobody knows what was there before, a disk in use was.
			if fresh == other && len(d.OSDs) == 0 || fresh == unknown && uses(d) == "" {
				found = append(found, i)
				break
			}
		}
	}
	return found
}

// asked says that a question about another slot is about this disk.
func (f *finder) asked(i int) bool {
	return slices.ContainsFunc(f.groups, func(g *group) bool { return g.question != "" && slices.Contains(g.maybe, i) })
}

func (f *finder) list(disks []int) string {
	var names []string
	for _, i := range disks {
		n := describe(f.all[i])
		if use := uses(f.all[i]); use != "" {
			n += ", which " + use
		}
		names = append(names, n)
	}
	return strings.Join(names, "; ")
}

// pair matches groups and disks that are each other's only choice: by class and size,
// then by class, then because nothing else is left. What remains is returned.
func (f *finder) pair(groups []*group, disks []int) ([]*group, []int) {
	class := func(g *group, i int) bool { return g.old.Rotational == f.all[i].Rotational }
	size := func(g *group, i int) bool { return near(g.old.Size, f.all[i].Size) }
	for _, stage := range []func(*group, int) bool{
		func(g *group, i int) bool { return class(g, i) && size(g, i) },
		class,
		func(*group, int) bool { return len(groups) == 1 && len(disks) == 1 },
	} {
		groups, disks = f.stage(groups, disks, stage)
	}
	return groups, disks
}

// stage matches until no group and disk are each other's only choice any more.
func (f *finder) stage(groups []*group, disks []int, fits func(*group, int) bool) ([]*group, []int) {
	for again := true; again; {
		again = false
		for gi, g := range groups {
			mine := only(len(disks), func(k int) bool { return fits(g, disks[k]) })
			if mine < 0 || only(len(groups), func(k int) bool { return fits(groups[k], disks[mine]) }) != gi {
				continue
			}
			d := f.all[disks[mine]]
			f.claim(g, disks[mine], fmt.Sprintf("the old disk (serial %s) is gone, and this one (serial %s) came after the OSD was destroyed", g.old.Serial, d.Serial))
			groups, disks = slices.Delete(slices.Clone(groups), gi, gi+1), slices.Delete(slices.Clone(disks), mine, mine+1)
			again = true
			break
		}
	}
	return groups, disks
}

// only is the one index below n that fits, or -1 if there is none or another.
func only(n int, fits func(int) bool) int {
	found := -1
	for i := range n {
		if !fits(i) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

func near(a, b uint64) bool {
	lo, hi := min(a, b), max(a, b)
	return hi-lo <= hi/100*sizePercent
}

// unexplained holds the disks that came while an old disk is still plugged in: the
// new one may have been put in first.
func (f *finder) unexplained() {
	for _, g := range f.groups {
		if g.settled {
			continue
		}
		var came []int
		for _, i := range f.arrivals([]*group{g}) {
			if uses(f.all[i]) == "" {
				came = append(came, i)
			}
		}
		if len(came) > 0 {
			g.maybe = came
			g.question = fmt.Sprintf("there are blank disks that may be meant for it, and the old one has not been proven gone: %s; pull the old disk, or name the new one with osd.rook.io/replace-with", f.list(came))
		}
	}
}

func (f *finder) outcome() Outcome {
	out := Outcome{Matches: map[int]Match{}, Reserved: map[string]string{}, Questions: map[int]string{}}
	reserve := func(i int, g *group) {
		if have := out.Reserved[f.all[i].Path]; have == "" {
			out.Reserved[f.all[i].Path] = g.name()
		} else if have != g.name() {
			out.Reserved[f.all[i].Path] = have + ", " + g.name()
		}
	}
	for _, g := range f.groups {
		for _, i := range f.whole {
			if g.compare(f.all[i]) == same || g.keeps(f.all[i]) {
				reserve(i, g)
			}
		}
		for _, i := range g.maybe {
			reserve(i, g)
		}
		for _, m := range g.members {
			if g.question != "" {
				out.Questions[m.OSD] = g.question
			}
		}
		if g.disk < 0 {
			continue
		}
		reserve(g.disk, g)
		for _, m := range g.members {
			out.Matches[m.OSD] = f.match(m, g)
		}
	}
	return out
}

func (f *finder) match(p Pending, g *group) Match {
	d := f.all[g.disk]
	m := Match{OSD: p.OSD, Device: Stable(d, f.all), Serial: d.Serial, Size: d.Size, Proof: g.proof, Warnings: slices.Clone(g.extra)}
	if o := g.old; o.Size > 0 && !near(o.Size, d.Size) {
		word := "larger"
		if d.Size < o.Size {
			word = "smaller"
		}
		m.Warnings = append(m.Warnings, fmt.Sprintf("it is %s than the old disk: %d bytes, not %d", word, d.Size, o.Size))
	}
	// A disk that has left its name or size has left its kind too; what several OSDs had on a
	// disk says nothing of the size of that.
	if o := g.old; (o.Size > 0 || o.Serial != "" || o.WWN != "") && o.Rotational != d.Rotational {
		kind := map[bool]string{true: "rotating", false: "solid-state"}
		m.Warnings = append(m.Warnings, fmt.Sprintf("it is a %s disk, and the old one was %s", kind[d.Rotational], kind[g.old.Rotational]))
	}
	return m
}

// Stable is a path of the disk that outlives a restart: by its serial, else by its
// slot, else the kernel's name. A link that other disks claim too (there are disks
// that all have the same serial) is passed over.
func Stable(d device.Device, all []device.Device) string {
	for _, l := range []string{d.ByID(), d.ByPath()} {
		if l != "" && !slices.ContainsFunc(all, func(o device.Device) bool { return o.Name != d.Name && slices.Contains(o.Links, l) }) {
			return l
		}
	}
	return d.Path
}
