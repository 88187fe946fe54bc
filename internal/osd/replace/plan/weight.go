package plan

import "math"

const (
	// sameSize is how far the sizes of two disks, or a weight and the size that it was
	// made of, may differ and count as the same: makers of disks differ by less.
	sameSize = 0.02
	// tebibyte is the size that Ceph gives the weight 1.
	tebibyte = 1 << 40
)

// Weight is the CRUSH weight that the OSD on the new disk should have; false when it has
// it. now is its weight, bytes its size as Ceph counts it.
//
// A new disk of the old one's size class keeps the weight. One of another size gets the
// weight of its size, if the old weight was that of the old size: one that somebody has
// set to something else stays, whatever the disk is. A weight that was changed during
// the replacement is left alone; one that was lost with the id is restored.
func (n Note) Weight(now float64, bytes int64) (float64, bool) {
	old := n.Before.Bytes
	if old == 0 {
		old = n.size()
	}
	before := n.Before.CrushWeight
	want := before
	if bytes > 0 && old > 0 && before > 0 && !alike(float64(bytes), float64(old)) && alike(before*tebibyte, float64(old)) {
		want = math.Max(float64(bytes)/tebibyte, 0.00001) // the least that Ceph gives by itself
	}
	if !n.SlotLost && !equal(now, before) || want == 0 || equal(now, want) {
		return 0, false
	}
	return want, true
}

// size is what was recorded of the OSD's parts. Ceph counts data and database.
func (n Note) size() int64 {
	total := n.Record.Data.Size
	if n.Record.DB != nil {
		total += n.Record.DB.Size
	}
	if total > math.MaxInt64 {
		return 0
	}
	return int64(total)
}

func alike(a, b float64) bool { return math.Abs(a-b) <= sameSize*math.Max(a, b) }

// equal compares CRUSH weights, which Ceph keeps in 1/65536.
func equal(a, b float64) bool { return math.Abs(a-b) < 1.0/32768 }
