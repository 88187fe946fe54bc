package release

import (
	"strings"
	"testing"
)

func TestSupported(t *testing.T) {
	for _, tc := range []struct {
		v       Version
		allow   bool
		refusal string // words of it; empty when supported
		warning string // words of the only warning; empty when there is none
	}{
		{v: V(19, 2, 0)},
		{v: V(19, 2, 3)},
		{v: V(20, 2, 4)},
		{v: V(20, 2, 1)},
		{v: V(20, 2, 0), warning: "known faults"},
		{v: V(20, 1, 0), warning: "release candidate"},
		{v: V(20, 0, 1), warning: "development build"},
		{v: Version{19, 2, 3, 45, ""}},
		{v: V(21, 2, 0), refusal: "not supported yet"},
		{v: V(21, 2, 0), allow: true, warning: "because of cephVersion.allowUnsupported"},
		{v: V(22, 2, 0), refusal: "newer than this operator knows"},
		{v: V(22, 2, 0), allow: true, refusal: "newer than this operator knows"},
		{v: V(19, 1, 9), refusal: "older than 19.2.0"},
		{v: V(18, 2, 7), refusal: "older than 19.2.0"},
		{v: V(18, 2, 7), allow: true, refusal: "older than 19.2.0"},
		{v: Version{}, allow: true, refusal: "not known"},
	} {
		checkVerdict(t, "Supported "+tc.v.String(), Supported(tc.v, tc.allow), tc.refusal, tc.warning)
	}
}

func checkVerdict(t *testing.T, what string, got Verdict, refusal, warning string) {
	t.Helper()
	if got.OK() != (refusal == "") || !strings.Contains(got.Refusal, refusal) {
		t.Errorf("%s: refusal %q, want words %q", what, got.Refusal, refusal)
	}
	switch {
	case warning == "" && len(got.Warnings) > 0:
		t.Errorf("%s: unwanted warnings %q", what, got.Warnings)
	case warning != "" && (len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], warning)):
		t.Errorf("%s: warnings %q, want one with %q", what, got.Warnings, warning)
	}
}

func TestChange(t *testing.T) {
	for _, tc := range []struct {
		from, to         Version
		allow            bool
		refusal, warning string
	}{
		{from: Version{}, to: V(20, 2, 4)},
		{from: Version{}, to: V(18, 2, 0), refusal: "older than 19.2.0"},
		{from: V(20, 2, 4), to: V(20, 2, 4)},
		{from: V(19, 2, 2), to: V(19, 2, 3)},
		{from: V(19, 2, 3), to: V(20, 2, 4)},
		{from: V(18, 2, 7), to: V(20, 2, 4)}, // a cluster of an older Rook
		{from: V(17, 2, 7), to: V(20, 2, 4), refusal: "use an image of Ceph 19 first"},
		{from: V(17, 2, 7), to: V(20, 2, 4), allow: true, refusal: "use an image of Ceph 19 first"},
		{from: V(20, 2, 4), to: V(20, 2, 3), warning: "goes back from 20.2.4 to 20.2.3"},
		{from: Version{20, 2, 4, 7, ""}, to: V(20, 2, 4), warning: "goes back from 20.2.4-7 to 20.2.4"},
		{from: V(20, 2, 4), to: V(19, 2, 3), refusal: "cannot go back from 20.2.4 to 19.2.3"},
		{from: V(20, 2, 4), to: V(19, 2, 3), allow: true, warning: "because of cephVersion.allowUnsupported"},
		{from: V(20, 2, 4), to: V(18, 2, 7), allow: true, refusal: "older than 19.2.0"},
		{from: V(20, 2, 4), to: V(21, 2, 0), refusal: "not supported yet"},
		{from: V(19, 2, 3), to: V(21, 2, 0), allow: true, warning: "not supported yet"},
	} {
		checkVerdict(t, tc.from.String()+" to "+tc.to.String(), Change(tc.from, tc.to, tc.allow), tc.refusal, tc.warning)
	}
}

func TestHas(t *testing.T) {
	for _, tc := range []struct {
		f    Feature
		have []Version
		lack []Version
	}{
		{AuthRotate, []Version{V(19, 2, 3), V(20, 2, 0)}, []Version{{}, V(19, 2, 2)}},
		{AES256K, []Version{V(20, 2, 0), V(20, 2, 4), V(21, 2, 0)}, []Version{{}, V(19, 2, 3)}},
		{CABundleByEnvironment, []Version{V(20, 2, 0)}, []Version{{}, V(19, 2, 3)}},
		{StretchWeightTolerance, []Version{V(20, 2, 2)}, []Version{{}, V(20, 2, 1), V(19, 2, 3)}},
		{RookModuleUsable, []Version{V(19, 2, 3), V(20, 2, 1), V(20, 2, 5), V(21, 2, 0)}, []Version{{}, V(20, 2, 2), V(20, 2, 3), V(20, 2, 4)}},
		{"no such feature", nil, []Version{{}, V(20, 2, 4)}},
	} {
		for _, v := range tc.have {
			if !v.Has(tc.f) {
				t.Errorf("%s should have %s", v, tc.f)
			}
		}
		for _, v := range tc.lack {
			if v.Has(tc.f) {
				t.Errorf("%s should not have %s", v, tc.f)
			}
		}
	}
}
