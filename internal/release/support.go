package release

import "fmt"

// The newest majors that are supported, as in Rook v1.21.
const (
	// NewestMajor is the newest one without cephVersion.allowUnsupported.
	NewestMajor = 20
	// AllowedNewestMajor is the newest one with it.
	AllowedNewestMajor = 21
)

// mostMajorsAtOnce is over how many majors Ceph can be upgraded in one step
// (docs.ceph.com, "Ceph Releases (general)": upgrades from up to two releases
// before).
const mostMajorsAtOnce = 2

// Minimum is the oldest supported release, as in Rook v1.21.
func Minimum() Version { return V(19, 2, 0) }

// Verdict is the answer to a question of support. A refusal is final until the
// spec changes; a warning is for a condition, and holds up nothing.
type Verdict struct {
	// Refusal is why it is not done, and what to do instead; empty when it is.
	Refusal string
	// Warnings are what a person should know.
	Warnings []string
}

// OK says whether it is done.
func (v Verdict) OK() bool { return v.Refusal == "" }

func refuse(format string, args ...any) Verdict {
	return Verdict{Refusal: fmt.Sprintf(format, args...)}
}

// Supported says whether a cluster may run v. allowUnsupported is
// cephVersion.allowUnsupported of the CephCluster.
func Supported(v Version, allowUnsupported bool) Verdict {
	switch {
	case v.IsZero():
		return refuse("the Ceph version of the image is not known")
	case !v.AtLeast(Minimum()):
		return refuse("Ceph %s is older than %s, the oldest supported release: use an image of Ceph %s or newer", v, Minimum(), Minimum())
	case v.Major > AllowedNewestMajor:
		return refuse("Ceph %s is newer than this operator knows: use an image of Ceph %d, or a newer operator", v, NewestMajor)
	case v.Major > NewestMajor && !allowUnsupported:
		return refuse("Ceph %s is not supported yet: use an image of Ceph %d, or set cephVersion.allowUnsupported to try it", v, NewestMajor)
	}
	var out Verdict
	if v.Major > NewestMajor {
		out.warn("Ceph %s is not supported yet and runs because of cephVersion.allowUnsupported", v)
	}
	switch v.Minor {
	case 0:
		out.warn("Ceph %s is a development build: data written by it may not be readable by a release", v)
	case 1:
		out.warn("Ceph %s is a release candidate: use a release of %d.2 for data that matters", v, v.Major)
	}
	if v.Same(V(20, 2, 0)) {
		out.warn("Ceph 20.2.0 has known faults: use the newest release of 20.2")
	}
	return out
}

func (v *Verdict) warn(format string, args ...any) {
	v.Warnings = append(v.Warnings, fmt.Sprintf(format, args...))
}

// Change says whether a cluster that runs from may be brought to to. A from
// that is not known (a new cluster) allows any supported version.
//
// Within a major, going back is allowed with a warning; across majors it needs
// allowUnsupported, since on-disk formats may have changed. Ceph itself
// supports upgrades over at most two majors.
func Change(from, to Version, allowUnsupported bool) Verdict {
	out := Supported(to, allowUnsupported)
	if !out.OK() || from.IsZero() {
		return out
	}
	switch {
	case to.Major < from.Major && !allowUnsupported:
		return refuse("Ceph cannot go back from %s to %s: daemons of the newer release may have changed what they keep on disk; "+
			"use an image of Ceph %d, or set cephVersion.allowUnsupported if you know that they did not", from, to, from.Major)
	case to.Major < from.Major:
		out.warn("Ceph goes back from %s to %s because of cephVersion.allowUnsupported: daemons may not start", from, to)
	case to.Major-from.Major > mostMajorsAtOnce:
		return refuse("Ceph cannot be upgraded from %s to %s at once: it supports %d majors in one step; use an image of Ceph %d first",
			from, to, mostMajorsAtOnce, from.Major+mostMajorsAtOnce)
	case to.Compare(from) < 0:
		out.warn("Ceph goes back from %s to %s: within a release that is seldom a problem, but Ceph does not test it", from, to)
	}
	return out
}
