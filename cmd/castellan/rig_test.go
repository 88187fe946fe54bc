package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/test/operator"
)

// The tests of whole clusters run the controllers that the operator runs, in its order:
// a controller that is added here must be added there, or be named with a reason.
func TestTestsRunAllControllers(t *testing.T) {
	elsewhere := operator.Elsewhere()
	var want, got []string
	for _, e := range controllers() {
		if elsewhere[e.name] == "" {
			want = append(want, e.name)
		}
		delete(elsewhere, e.name)
	}
	for _, c := range (operator.Parts{Settings: operator.DefaultSettings}).Controllers() {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("controllers of the operator and of test/operator (-operator +test):\n%s", diff)
	}
	if len(elsewhere) > 0 {
		t.Errorf("test/operator leaves out what the operator does not have: %v", elsewhere)
	}
}
