package plan

import (
	"strings"
	"testing"
)

// A mon with a Deployment that neither Ceph nor the list knows may hold the only copy of
// something: it is named, and nothing is done about it, and nothing else is held up.
func TestAnUnknownMonIsNamedAndKept(t *testing.T) {
	known := func() State {
		w := newWorld(t, 3, 3)
		w.settle()
		return w.state()
	}
	before := Next(known())
	if before.Kind == Await && before.Reason == "MonUnknown" {
		t.Fatalf("without an unknown mon: %s", before)
	}
	for name, c := range map[string]struct {
		mon  Mon
		says bool
	}{
		"unknown":                {Mon{Deployed: true}, true},
		"without a Deployment":   {Mon{}, false},
		"marked as leaving":      {Mon{Deployed: true, Leaving: true}, false},
		"in Ceph's map":          {Mon{Deployed: true, InMap: true}, false},
		"left alone by the user": {Mon{Deployed: true, Skipped: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := known()
			s.Mons["x"] = c.mon
			got := Next(s)
			if says := got.Kind == Await && got.Reason == "MonUnknown"; says != c.says {
				t.Fatalf("%s", got)
			}
			if c.says && (!got.Blocked || !strings.Contains(got.Message, "mon x has a Deployment")) {
				t.Errorf("it is not named: %+v", got)
			}
		})
	}
}
