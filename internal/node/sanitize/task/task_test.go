package task

import (
	"strings"
	"testing"
)

func TestSummaryTellsFailuresFirstAndFits(t *testing.T) {
	r := Report{}
	for range 200 {
		r.Items = append(r.Items, Item{What: "osd.1", Where: "/dev/sdb", Outcome: Cleaned})
	}
	r.Items = append(r.Items, Item{What: "osd.7", Where: "/dev/sdz", Outcome: Failed, Message: "is held by somebody"})
	s := r.Summary(4096)
	if !strings.HasPrefix(s, "osd.7 on /dev/sdz: failed, is held by somebody; ") || len(s) > 4096 || !strings.Contains(s, " more") {
		t.Errorf("%d bytes: %s", len(s), s)
	}
	if n := len(r.Failures()); n != 1 {
		t.Errorf("%d failures", n)
	}
	long := Report{Items: []Item{{What: strings.Repeat("ä", 100), Outcome: Failed}}}
	if s := long.Summary(51); len(s) > 51 || strings.ContainsRune(s, '\uFFFD') {
		t.Errorf("%q", s)
	}
	if (Report{}).Summary(100) == "" {
		t.Error("an empty report says nothing")
	}
}
