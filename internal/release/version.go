// Package release knows Ceph releases: how their versions are written and
// compared, which of them are supported, what each can do, and in which order
// the daemons of a cluster are upgraded.
//
// It is pure. It must not ask a cluster for anything: callers hand over what
// Ceph said, and get an answer that names the reason.
package release

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Version is the version of a Ceph build, as in "20.2.4". The zero value means
// that the version is not known.
type Version struct {
	// Major names the release: 19 is Squid, 20 is Tentacle.
	Major int
	// Minor is 0 for development, 1 for release candidates, 2 for stable
	// releases.
	Minor int
	// Patch counts the stable releases of a major.
	Patch int
	// Build counts commits after the tag in builds between releases; 0 in
	// releases.
	Build int
	// Commit is the git commit that was built, empty where it is not known.
	// It takes no part in comparisons: packagers build one release from
	// several commits.
	Commit string
}

// V is the version of a release.
func V(major, minor, patch int) Version { return Version{Major: major, Minor: minor, Patch: patch} }

// versionLine is what "ceph-mon --version" prints and "ceph versions" counts
// by. Distributions put their own mark after the number ("20.2.4+ds"), builds
// between releases a count of commits and an abbreviated commit
// ("19.2.3-45-g1a2b3c4").
var versionLine = regexp.MustCompile(`ceph version (\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:-(\d{1,9}))?(?:[-+~.][0-9A-Za-z.+~-]*)?(?: \(([0-9a-fA-F]{7,64})[^)]*\))?`)

// Parse reads the version in a line such as
//
//	ceph version 20.2.4 (7f793731f1b39eb4f465e960113d2363c311b964) tentacle (stable)
//
// Text before and after it does not matter.
func Parse(line string) (Version, error) {
	m := versionLine.FindStringSubmatch(line)
	if m == nil {
		return Version{}, fmt.Errorf("no Ceph version in %q", clip(line))
	}
	return fromGroups(m[1:5], m[5]), nil
}

// label is a version as the label ceph-version holds it.
var label = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})\.(\d{1,4})-(\d{1,9})$`)

// ParseLabel reads what Label wrote: the value of the label "ceph-version", of
// status.version.version of a CephCluster, and of keyCephVersion.
func ParseLabel(s string) (Version, error) {
	m := label.FindStringSubmatch(s)
	if m == nil {
		return Version{}, fmt.Errorf("a Ceph version is written as 20.2.4-0, not %q", clip(s))
	}
	return fromGroups(m[1:5], ""), nil
}

// fromGroups needs groups of digits short enough for an int.
func fromGroups(digits []string, commit string) Version {
	n := make([]int, len(digits))
	for i, d := range digits {
		n[i], _ = strconv.Atoi(d) // digits only; an absent group counts as 0
	}
	return Version{Major: n[0], Minor: n[1], Patch: n[2], Build: n[3], Commit: strings.ToLower(commit)}
}

func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// IsZero says whether the version is not known.
func (v Version) IsZero() bool { return v == Version{} }

// Label is the form for labels and status: "20.2.4-0".
func (v Version) Label() string {
	return fmt.Sprintf("%d.%d.%d-%d", v.Major, v.Minor, v.Patch, v.Build)
}

// String is the form for people: "20.2.4", or "19.2.3-45" between releases.
func (v Version) String() string {
	if v.IsZero() {
		return "unknown"
	}
	s := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Build > 0 {
		s += "-" + strconv.Itoa(v.Build)
	}
	return s
}

// Codename is the name of the release, as "osd require-osd-release" takes it;
// empty for one that this operator does not know.
func (v Version) Codename() string {
	switch v.Major {
	case 17:
		return "quincy"
	case 18:
		return "reef"
	case 19:
		return "squid"
	case 20:
		return "tentacle"
	case 21:
		return "umbrella"
	}
	return ""
}

// Compare is negative when v is older than w, 0 when they are the same release
// and build, positive when v is newer.
func (v Version) Compare(w Version) int {
	return cmp.Or(
		cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor),
		cmp.Compare(v.Patch, w.Patch), cmp.Compare(v.Build, w.Build),
	)
}

// AtLeast says whether v is w or newer. An unknown version is older than any.
func (v Version) AtLeast(w Version) bool { return v.Compare(w) >= 0 }

// Same says whether v and w are the same release and build.
func (v Version) Same(w Version) bool { return v.Compare(w) == 0 }
