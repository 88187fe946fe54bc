package swap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/device"
)

const tb = 1 << 40

// disk in slot n, blank.
func disk(slot int, serial string, change ...func(*device.Device)) device.Device {
	name := fmt.Sprintf("sd%c", 'a'+slot)
	d := device.Device{
		Name: name, Path: "/dev/" + name, Type: device.Disk, Size: 4 * tb, HasNode: true, Rotational: true, Serial: serial,
		Links: []string{path(slot)},
	}
	if serial != "" {
		d.Links = append([]string{"/dev/disk/by-id/ata-X_" + serial}, d.Links...)
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func path(slot int) string { return fmt.Sprintf("/dev/disk/by-path/ata-%d", slot) }

func osd(id int) func(*device.Device) {
	return func(d *device.Device) {
		d.OSDs = []device.OSD{{ID: id, UUID: fmt.Sprintf("uuid-%d", id), FSID: "f", Role: device.RoleBlock}}
	}
}
func size(n uint64) func(*device.Device) { return func(d *device.Device) { d.Size = n } }
func ssd(d *device.Device)               { d.Rotational = false }
func fs(d *device.Device)                { d.FSType = "xfs" }
func wwn(w string) func(*device.Device)  { return func(d *device.Device) { d.WWN = w } }
func pend(id, slot int, change ...func(*Pending)) Pending {
	p := Pending{OSD: id, UUID: fmt.Sprintf("uuid-%d", id), Before: []string{"serial SPARE", fmt.Sprintf("serial OLD%d", id)}, Old: Disk{
		Serial: fmt.Sprintf("OLD%d", id), ByPath: path(slot), ByID: fmt.Sprintf("/dev/disk/by-id/ata-X_OLD%d", id), Size: 4 * tb, Rotational: true,
	}}
	for _, c := range change {
		c(&p)
	}
	return p
}
func with(ref string) func(*Pending) { return func(p *Pending) { p.With = ref } }

// brief is an outcome in short: matches as "5=sdb", questions as words to look for.
type brief struct {
	Matches, Reserved []string
	Asked             []int
}

func short(o Outcome, devices []device.Device) brief {
	var b brief
	for id, m := range o.Matches {
		d := devices[device.Find(devices, m.Device)]
		s := fmt.Sprintf("%d=%s", id, d.Name)
		if len(m.Warnings) > 0 {
			s += fmt.Sprintf(" (%d warnings)", len(m.Warnings))
		}
		b.Matches = append(b.Matches, s)
	}
	for p, why := range o.Reserved {
		b.Reserved = append(b.Reserved, strings.TrimPrefix(p, "/dev/")+" "+why)
	}
	for id := range o.Questions {
		b.Asked = append(b.Asked, id)
	}
	slices.Sort(b.Matches)
	slices.Sort(b.Reserved)
	slices.Sort(b.Asked)
	return b
}

func TestFind(t *testing.T) {
	spare := disk(9, "SPARE")
	for _, c := range []struct {
		name    string
		pending []Pending
		devices []device.Device
		want    brief
		// says is in each question or proof.
		says string
	}{
		{name: "not swapped yet", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "OLD5", osd(5)), spare},
			want: brief{Reserved: []string{"sdb osd.5"}}},
		{name: "pulled and nothing put in", pending: []Pending{pend(5, 1)}, devices: []device.Device{spare}, want: brief{}},
		{name: "same slot, another serial", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW"), spare},
			want: brief{Matches: []string{"5=sdb"}, Reserved: []string{"sdb osd.5"}}, says: "serial NEW, not OLD5"},
		{name: "same slot, and the old disk moved to another", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW"), disk(2, "OLD5", osd(5))},
			want: brief{Matches: []string{"5=sdb"}, Reserved: []string{"sdb osd.5", "sdc osd.5"}}},
		{name: "the spare is put into the slot", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "SPARE")},
			want: brief{Matches: []string{"5=sdb"}, Reserved: []string{"sdb osd.5"}}},
		{name: "old disk wiped in place", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "OLD5")},
			want: brief{Reserved: []string{"sdb osd.5"}, Asked: []int{5}}, says: "wiped"},
		{name: "old disk wiped and moved", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(3, "OLD5")},
			want: brief{Reserved: []string{"sdd osd.5"}}},
		{name: "in the slot, not blank", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW", fs)},
			want: brief{Reserved: []string{"sdb osd.5"}, Asked: []int{5}}, says: "xfs"},
		{name: "in the slot, an OSD of another cluster", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW", osd(77))},
			want: brief{Reserved: []string{"sdb osd.5"}, Asked: []int{5}}, says: "osd.77"},
		{name: "in the slot, too small for any OSD", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW", size(1<<30))},
			want: brief{Reserved: []string{"sdb osd.5"}, Asked: []int{5}}, says: "5368709120"},
		{name: "in the slot, smaller and solid-state", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW", size(2*tb), ssd)},
			want: brief{Matches: []string{"5=sdb (2 warnings)"}, Reserved: []string{"sdb osd.5"}}},
		{name: "in the slot, larger", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW", size(8*tb))},
			want: brief{Matches: []string{"5=sdb (1 warnings)"}, Reserved: []string{"sdb osd.5"}}},
		{name: "no serials, same size", pending: []Pending{pend(5, 1, func(p *Pending) { p.Old.Serial, p.Old.ByID = "", "" })}, devices: []device.Device{disk(1, "")},
			want: brief{Reserved: []string{"sdb osd.5"}, Asked: []int{5}}, says: "nothing tells"},
		{name: "no serials, another size", pending: []Pending{pend(5, 1, func(p *Pending) { p.Old.Serial, p.Old.ByID = "", "" })}, devices: []device.Device{disk(1, "", size(8*tb))},
			want: brief{Matches: []string{"5=sdb (1 warnings)"}, Reserved: []string{"sdb osd.5"}}, says: "bytes"},
		{name: "no serials, the old OSD on it", pending: []Pending{pend(5, 1, func(p *Pending) { p.Old.Serial, p.Old.ByID = "", "" })}, devices: []device.Device{disk(1, "", osd(5))},
			want: brief{Reserved: []string{"sdb osd.5"}}},
		{name: "one serial for all disks, another WWN", pending: []Pending{pend(5, 1, func(p *Pending) { p.Old.WWN = "0x1" })}, devices: []device.Device{disk(1, "OLD5", wwn("0x2"))},
			want: brief{Matches: []string{"5=sdb"}, Reserved: []string{"sdb osd.5"}}, says: "WWN 0x2"},
		{name: "another slot, new, the old one gone", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(3, "NEW"), spare},
			want: brief{Matches: []string{"5=sdd"}, Reserved: []string{"sdd osd.5"}}, says: "came after"},
		{name: "another slot, the old one still there", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "OLD5", osd(5)), disk(3, "NEW")},
			want: brief{Reserved: []string{"sdb osd.5", "sdd osd.5"}, Asked: []int{5}}, says: "pull the old disk"},
		{name: "another slot, nobody knows what was there before", pending: []Pending{pend(5, 1, func(p *Pending) { p.Before = nil })}, devices: []device.Device{disk(3, "NEW")},
			want: brief{Reserved: []string{"sdd osd.5"}, Asked: []int{5}}, says: "not certain"},
		{name: "another slot, without a serial", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(3, "", size(8*tb))},
			want: brief{Reserved: []string{"sdd osd.5"}, Asked: []int{5}}, says: "no serial"},
		{name: "two new disks in other slots", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(3, "NEW1"), disk(4, "NEW2")},
			want: brief{Reserved: []string{"sdd osd.5", "sde osd.5"}, Asked: []int{5}}, says: "NEW2"},
		{name: "one new disk in the slot, one for growth", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(1, "NEW1"), disk(4, "NEW2")},
			want: brief{Matches: []string{"5=sdb"}, Reserved: []string{"sdb osd.5"}}},
		{name: "new disk elsewhere is not blank", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(4, "NEW", fs)},
			want: brief{Reserved: []string{"sde osd.5"}, Asked: []int{5}}, says: "xfs"},
		{name: "solid-state in another slot", pending: []Pending{pend(5, 1)}, devices: []device.Device{disk(4, "NEW", ssd)},
			want: brief{Matches: []string{"5=sde (1 warnings)"}, Reserved: []string{"sde osd.5"}}},
		{name: "two slots, both swapped in place", pending: []Pending{pend(5, 1), pend(6, 2)}, devices: []device.Device{disk(2, "NEW1"), disk(1, "NEW2")},
			want: brief{Matches: []string{"5=sdb", "6=sdc"}, Reserved: []string{"sdb osd.5", "sdc osd.6"}}},
		{name: "two slots, one in place, one elsewhere", pending: []Pending{pend(5, 1), pend(6, 2)}, devices: []device.Device{disk(2, "NEW1"), disk(7, "NEW2")},
			want: brief{Matches: []string{"5=sdh", "6=sdc"}, Reserved: []string{"sdc osd.6", "sdh osd.5"}}},
		{name: "two disks exchanged with each other", pending: []Pending{pend(5, 1), pend(6, 2)}, devices: []device.Device{disk(2, "OLD5"), disk(1, "OLD6")},
			want: brief{Reserved: []string{"sdb osd.5, osd.6", "sdc osd.5, osd.6"}, Asked: []int{5, 6}}, says: "was"},
		{name: "two elsewhere, told apart by class", pending: []Pending{pend(5, 1), pend(6, 2, func(p *Pending) { p.Old.Rotational = false })},
			devices: []device.Device{disk(7, "NEW1", ssd), disk(8, "NEW2")},
			want:    brief{Matches: []string{"5=sdi", "6=sdh"}, Reserved: []string{"sdh osd.6", "sdi osd.5"}}},
		{name: "two elsewhere, told apart by size", pending: []Pending{pend(5, 1), pend(6, 2, func(p *Pending) { p.Old.Size = 20 * tb })},
			devices: []device.Device{disk(7, "NEW1", size(20*tb)), disk(8, "NEW2")},
			want:    brief{Matches: []string{"5=sdi", "6=sdh"}, Reserved: []string{"sdh osd.6", "sdi osd.5"}}},
		{name: "two elsewhere, one by size and the other because it is left", pending: []Pending{pend(5, 1), pend(6, 2, func(p *Pending) { p.Old.Size = 20 * tb })},
			devices: []device.Device{disk(7, "NEW1", size(22*tb)), disk(8, "NEW2")},
			want:    brief{Matches: []string{"5=sdi", "6=sdh (1 warnings)"}, Reserved: []string{"sdh osd.6", "sdi osd.5"}}},
		{name: "two elsewhere, alike", pending: []Pending{pend(5, 1), pend(6, 2)}, devices: []device.Device{disk(7, "NEW1"), disk(8, "NEW2")},
			want: brief{Reserved: []string{"sdh osd.5, osd.6", "sdi osd.5, osd.6"}, Asked: []int{5, 6}}},
		{name: "two gone, one disk elsewhere, alike", pending: []Pending{pend(5, 1), pend(6, 2)}, devices: []device.Device{disk(7, "NEW1")},
			want: brief{Reserved: []string{"sdh osd.5, osd.6"}, Asked: []int{5, 6}}},
		{name: "two gone, one disk elsewhere, of one's size", pending: []Pending{pend(5, 1), pend(6, 2, func(p *Pending) { p.Old.Size = 20 * tb })}, devices: []device.Device{disk(7, "NEW1")},
			want: brief{Matches: []string{"5=sdh"}, Reserved: []string{"sdh osd.5"}}},
		{name: "named, though the old one is there", pending: []Pending{pend(5, 1, with("/dev/disk/by-id/ata-X_NEW"))}, devices: []device.Device{disk(1, "OLD5", osd(5)), disk(3, "NEW")},
			want: brief{Matches: []string{"5=sdd"}, Reserved: []string{"sdb osd.5", "sdd osd.5"}}, says: "named"},
		{name: "named: the spare", pending: []Pending{pend(5, 1, with("/dev/sdj"))}, devices: []device.Device{disk(1, "NEW"), spare},
			want: brief{Matches: []string{"5=sdj"}, Reserved: []string{"sdj osd.5"}}},
		{name: "named: the old one, wiped", pending: []Pending{pend(5, 1, with("sdb"))}, devices: []device.Device{disk(1, "OLD5")},
			want: brief{Matches: []string{"5=sdb (1 warnings)"}, Reserved: []string{"sdb osd.5"}}},
		{name: "named: not there, and the disk in the slot is not taken instead", pending: []Pending{pend(5, 1, with("/dev/sdz"))}, devices: []device.Device{disk(1, "NEW")},
			want: brief{Asked: []int{5}}, says: "/dev/sdz"},
		{name: "named: not blank", pending: []Pending{pend(5, 1, with("sdd"))}, devices: []device.Device{disk(3, "NEW", fs)},
			want: brief{Reserved: []string{"sdd osd.5"}, Asked: []int{5}}, says: "wipe"},
		{name: "named: a partition", pending: []Pending{pend(5, 1, with("sdd1"))},
			devices: []device.Device{{Name: "sdd1", Path: "/dev/sdd1", Type: device.Partition, HasNode: true, Size: tb}},
			want:    brief{Asked: []int{5}}, says: "whole disk"},
		{name: "named twice", pending: []Pending{pend(5, 1, with("sdd")), pend(6, 2, with("/dev/disk/by-id/ata-X_NEW"))}, devices: []device.Device{disk(3, "NEW")},
			want: brief{Reserved: []string{"sdd osd.5, osd.6"}, Asked: []int{5, 6}}, says: "more than one"},
		{name: "named for another slot", pending: []Pending{pend(5, 1), pend(6, 2, with("sdb"))}, devices: []device.Device{disk(1, "NEW")},
			want: brief{Matches: []string{"6=sdb"}, Reserved: []string{"sdb osd.6"}}},
		{name: "several OSDs of one disk", pending: []Pending{pend(5, 1), pend(6, 1, func(p *Pending) { p.Old = pend(5, 1).Old })}, devices: []device.Device{disk(1, "NEW")},
			want: brief{Matches: []string{"5=sdb", "6=sdb"}, Reserved: []string{"sdb osd.5, osd.6"}}},
		{name: "several OSDs of one disk, named differently", pending: []Pending{pend(5, 1, with("sdb")), pend(6, 1, with("sdc"), func(p *Pending) { p.Old = pend(5, 1).Old })},
			devices: []device.Device{disk(1, "NEW"), disk(2, "NEW2")}, want: brief{Asked: []int{5, 6}}},
		{name: "things nobody plugs in", pending: []Pending{pend(5, 1)},
			devices: []device.Device{
				{Name: "dm-3", Path: "/dev/mapper/x", Type: device.LVM, Size: tb, HasNode: true}, {Name: "sr0", Path: "/dev/sr0", Type: device.ROM, Size: tb, HasNode: true},
				{Name: "nbd0", Path: "/dev/nbd0", Type: device.Disk, Size: tb, HasNode: true}, {Name: "loop3", Path: "/dev/loop3", Type: device.Loop, HasNode: true},
				disk(4, "NEW", func(d *device.Device) { d.HasNode = false }),
			}, want: brief{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Find(c.pending, c.devices)
			if diff := cmp.Diff(c.want, short(got, c.devices)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, got)
			}
			for id, q := range got.Questions {
				if !strings.Contains(q, c.says) {
					t.Errorf("osd.%d is asked %q, want %q in it", id, q, c.says)
				}
			}
			for id, m := range got.Matches {
				if !strings.Contains(m.Proof, c.says) {
					t.Errorf("osd.%d: proof %q, want %q in it", id, m.Proof, c.says)
				}
			}
		})
	}
}

func TestMatchNamesTheDisk(t *testing.T) {
	got := Find([]Pending{pend(5, 1)}, []device.Device{disk(1, "NEW", size(8*tb))})
	want := Outcome{
		Matches: map[int]Match{5: {
			OSD: 5, Device: "/dev/disk/by-id/ata-X_NEW", Serial: "NEW", Size: 8 * tb,
			Proof:    "it is in the old disk's slot (ata-1) and is another disk: serial NEW, not OLD5",
			Warnings: []string{"it is larger than the old disk: 8796093022208 bytes, not 4398046511104"},
		}},
		Reserved: map[string]string{"/dev/sdb": "osd.5"}, Questions: map[int]string{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// world is a random node with random pending replacements.
func world(r *rand.Rand) ([]Pending, []device.Device) {
	var pending []Pending
	var devices []device.Device
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	for n := range r.IntN(4) {
		p := pend(n, n+1)
		p.Old.Serial = pick("A", "B", "C", "D", "")
		p.Old.WWN = pick("", "", "w1", "w2")
		p.Old.ByID = ""
		p.Old.Size = uint64(1+r.IntN(2)) * tb
		p.Old.Rotational = r.IntN(2) == 0
		p.Before = nil
		for _, s := range []string{"A", "B", "C", "D", "E", "F"} {
			if r.IntN(3) == 0 {
				p.Before = append(p.Before, "serial "+s)
			}
		}
		if r.IntN(8) == 0 {
			p.With = pick("sdb", "sdc", "sdd")
		}
		pending = append(pending, p)
	}
	for n := range r.IntN(6) {
		d := disk(n+1, pick("A", "B", "C", "D", "E", "F", "G", "H", ""), size(uint64(1+r.IntN(2))*tb))
		d.Rotational = r.IntN(2) == 0
		d.WWN = pick("", "", "w1", "w2", "w3")
		switch r.IntN(6) {
		case 0:
			fs(&d)
		case 1:
			osd(r.IntN(5))(&d)
		}
		devices = append(devices, d)
	}
	return pending, devices
}

// TestProperties holds Find to what must be true whatever a node looks like.
func TestProperties(t *testing.T) {
	matched, asked := 0, 0
	for seed := range uint64(60000) {
		r := rand.New(rand.NewPCG(seed, 1))
		pending, devices := world(r)
		got := Find(pending, devices)
		fail := func(format string, args ...any) {
			t.Fatalf("seed %d: %s\npending %+v\ndevices %+v\noutcome %+v", seed, fmt.Sprintf(format, args...), pending, devices, got)
		}
		taken := map[string]Pending{}
		for _, p := range pending {
			m, ok := got.Matches[p.OSD]
			if !ok {
				continue
			}
			matched++
			i := device.Find(devices, m.Device)
			if i < 0 {
				fail("the match of osd.%d is no device", p.OSD)
			}
			d := devices[i]
			if uses(d) != "" {
				fail("osd.%d gets a disk that %s", p.OSD, uses(d))
			}
			if got.Reserved[d.Path] == "" {
				fail("the disk of osd.%d is not reserved", p.OSD)
			}
			if got.Questions[p.OSD] != "" {
				fail("osd.%d has a disk and a question", p.OSD)
			}
			if p.With == "" && d.Serial != "" && d.Serial == p.Old.Serial && (d.WWN == "" || p.Old.WWN == "" || d.WWN == p.Old.WWN) {
				fail("osd.%d gets its old disk", p.OSD)
			}
			inSlot := slices.Contains(d.Links, p.Old.ByPath)
			known := len(p.Before) == 0 || slices.Contains(p.Before, Identity(d.Serial, d.WWN, d.Path, d.Size))
			if p.With == "" && !inSlot && known {
				fail("osd.%d gets a spare", p.OSD)
			}
			if q, ok := taken[d.Path]; ok && (q.Old.Serial != p.Old.Serial || q.Old.ByPath != p.Old.ByPath) {
				fail("osd.%d and osd.%d get one disk", p.OSD, q.OSD)
			}
			taken[d.Path] = p
		}
		asked += len(got.Questions)
		p2, d2 := slices.Clone(pending), slices.Clone(devices)
		r.Shuffle(len(p2), func(i, j int) { p2[i], p2[j] = p2[j], p2[i] })
		again := Find(p2, devices)
		if diff := cmp.Diff(got, again); diff != "" {
			fail("the order of the slots matters:\n%s", diff)
		}
		r.Shuffle(len(d2), func(i, j int) { d2[i], d2[j] = d2[j], d2[i] })
		if diff := cmp.Diff(short(got, devices), short(Find(pending, d2), d2)); diff != "" {
			fail("the order of the disks matters:\n%s", diff)
		}
	}
	if matched < 1000 || asked < 1000 {
		t.Errorf("%d matches and %d questions: the worlds say too little", matched, asked)
	}
	t.Logf("%d matches, %d questions", matched, asked)
}

// Of OSDs that are replaced together the size of the disk may not be known, only that of
// their volumes; its kind is.
func TestWarningsOfASet(t *testing.T) {
	set := func(size uint64) []Pending {
		old := pend(5, 1).Old
		old.Size = size
		return []Pending{pend(4, 1, func(p *Pending) { p.Old = old }), pend(5, 1, func(p *Pending) { p.Old = old })}
	}
	for _, c := range []struct {
		name    string
		pending []Pending
		disk    device.Device
		want    []string
	}{
		{"the same", set(4 * tb), disk(1, "NEW"), nil},
		{"larger", set(4 * tb), disk(1, "NEW", size(8*tb)), []string{"it is larger than the old disk: 8796093022208 bytes, not 4398046511104"}},
		{"another kind", set(4 * tb), disk(1, "NEW", ssd), []string{"it is a solid-state disk, and the old one was rotating"}},
		{"the size is not known", set(0), disk(1, "NEW", size(8*tb)), nil},
		{"another kind, and the size is not known", set(0), disk(1, "NEW", ssd), []string{"it is a solid-state disk, and the old one was rotating"}},
		{"nothing is known", []Pending{pend(5, 1, with("/dev/sdb"), func(p *Pending) { p.Old = Disk{ByPath: path(1)} })}, disk(1, "NEW", ssd), nil},
	} {
		out := Find(c.pending, []device.Device{c.disk})
		if len(out.Matches) != len(c.pending) {
			t.Errorf("%s: %+v", c.name, out)
		}
		for id, m := range out.Matches {
			if diff := cmp.Diff(c.want, m.Warnings); diff != "" {
				t.Errorf("%s, osd.%d: %s", c.name, id, diff)
			}
		}
	}
}

// Nobody is told to wipe a disk that an OSD is on, without a word on whether it is needed.
func TestAQuestionAboutADiskWithAnOSD(t *testing.T) {
	for name, c := range map[string]struct {
		pending Pending
		disk    device.Device
		has     string
	}{
		"in the slot":                {pend(5, 1), disk(1, "NEW", osd(9)), "leave it alone"},
		"named":                      {pend(5, 1, with("/dev/sdb")), disk(1, "NEW", osd(9)), "leave it alone"},
		"in the slot, a file system": {pend(5, 1), disk(1, "NEW", fs), "wipe it, or put a blank one into another slot"},
	} {
		if q := Find([]Pending{c.pending}, []device.Device{c.disk}).Questions[5]; !strings.Contains(q, c.has) {
			t.Errorf("%s: %q", name, q)
		}
	}
}
