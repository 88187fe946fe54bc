package release

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const hash = "7f793731f1b39eb4f465e960113d2363c311b964"
	for _, tc := range []struct {
		title, line string
		want        Version
		label, text string
	}{
		{
			title: "upstream",
			line:  "ceph version 20.2.4 (" + hash + ") tentacle (stable)",
			want:  Version{20, 2, 4, 0, hash}, label: "20.2.4-0", text: "20.2.4",
		},
		{
			title: "as daemons report it",
			line:  "ceph version 20.2.4 (" + hash + ") tentacle (stable - RelWithDebInfo)",
			want:  Version{20, 2, 4, 0, hash}, label: "20.2.4-0", text: "20.2.4",
		},
		{
			title: "Debian",
			line:  "ceph version 16.2.15+ds-0+deb12u1 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)",
			want:  Version{16, 2, 15, 0, "618f440892089921c3e944a991122ddc44e60516"}, label: "16.2.15-0", text: "16.2.15",
		},
		{
			title: "between releases",
			line:  "ceph version 19.2.3-45-g1A2B3C4 (1A2B3C4d) squid (stable)\n",
			want:  Version{19, 2, 3, 45, "1a2b3c4d"}, label: "19.2.3-45", text: "19.2.3-45",
		},
		{
			title: "enterprise build",
			line:  "ceph version 19.2.1-222.el9cp (" + hash + ") squid (stable)",
			want:  Version{19, 2, 1, 222, hash}, label: "19.2.1-222", text: "19.2.1-222",
		},
		{
			title: "without a commit",
			line:  "ceph version 19.2.0",
			want:  V(19, 2, 0), label: "19.2.0-0", text: "19.2.0",
		},
		{
			title: "after other output",
			line:  "warning: something\nceph version 20.2.2 (" + hash + ") tentacle (stable)\n",
			want:  Version{20, 2, 2, 0, hash}, label: "20.2.2-0", text: "20.2.2",
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			got, err := Parse(tc.line)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
			if got.Label() != tc.label || got.String() != tc.text {
				t.Errorf("Label and String = %q, %q, want %q, %q", got.Label(), got, tc.label, tc.text)
			}
			back, err := ParseLabel(got.Label())
			if err != nil || !back.Same(got) {
				t.Errorf("ParseLabel(%q) = %v, %v, want the same version", got.Label(), back, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		"", "unknown", "20.2.4", "ceph version", "ceph version Development (no_version)",
		"ceph version 20.2", "ceph version 99999999999999999999.2.4", strings.Repeat("x", 1<<16),
	} {
		if v, err := Parse(line); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", clip(line), v)
		} else if len(err.Error()) > 200 {
			t.Errorf("the error repeats %d bytes of its input", len(err.Error()))
		}
	}
	for _, s := range []string{"", "20.2.4", "20.2.4-", "20.2-0", "v20.2.4-0", "20.2.4-0-g1", "20.2.4-0\n"} {
		if v, err := ParseLabel(s); err == nil {
			t.Errorf("ParseLabel(%q) = %v, want an error", s, v)
		}
	}
}

func TestCompare(t *testing.T) {
	ascending := []Version{{}, V(18, 2, 7), V(19, 2, 0), V(19, 2, 3), {19, 2, 3, 45, ""}, V(19, 2, 10), V(20, 0, 0), V(20, 2, 0), V(21, 1, 0)}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := sign(a.Compare(b)); got != sign(i-j) {
				t.Errorf("Compare(%v, %v) = %d, want %d", a, b, got, sign(i-j))
			}
			if got := a.AtLeast(b); got != (i >= j) {
				t.Errorf("AtLeast(%v, %v) = %v", a, b, got)
			}
		}
	}
	a, b := Version{20, 2, 4, 0, "aaaaaaa"}, Version{20, 2, 4, 0, "bbbbbbb"}
	if !a.Same(b) {
		t.Error("two builds of one release must count as the same")
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func TestCodename(t *testing.T) {
	for major, want := range map[int]string{16: "", 17: "quincy", 18: "reef", 19: "squid", 20: "tentacle", 21: "umbrella", 22: ""} {
		if got := V(major, 2, 0).Codename(); got != want {
			t.Errorf("codename of %d = %q, want %q", major, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ceph version 20.2.4 (7f793731f1b39eb4f465e960113d2363c311b964) tentacle (stable)")
	f.Add("ceph version 19.2.3-45-g1a2b3c4 squid")
	f.Fuzz(func(t *testing.T, line string) {
		v, err := Parse(line)
		if err != nil {
			return
		}
		back, err := ParseLabel(v.Label())
		if err != nil || !back.Same(v) {
			t.Fatalf("%q: label %q gives %v, %v", line, v.Label(), back, err)
		}
		_, _ = Supported(v, true), Change(V(19, 2, 0), v, false)
	})
}
