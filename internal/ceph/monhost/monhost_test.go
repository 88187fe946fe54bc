package monhost

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addr(proto, s string) Addr { return Addr{proto, netip.MustParseAddrPort(s)} }

func TestParse(t *testing.T) {
	for in, want := range map[string][][]Addr{
		"[v2:10.0.0.1:3300],[v2:10.0.0.2:3300]":                      {{addr(V2, "10.0.0.1:3300")}, {addr(V2, "10.0.0.2:3300")}},
		"[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300]":     {{addr(V2, "10.0.0.1:3300"), addr(V1, "10.0.0.1:6789")}, {addr(V2, "10.0.0.2:3300")}},
		"[v2:[fd00::1]:3300,v1:[fd00::1]:6789], [v2:[fd00::2]:3300]": {{addr(V2, "[fd00::1]:3300"), addr(V1, "[fd00::1]:6789")}, {addr(V2, "[fd00::2]:3300")}},
		"v2:10.0.0.1:3300,10.0.0.2:6789,[fd00::3]:6789":              {{addr(V2, "10.0.0.1:3300")}, {addr("", "10.0.0.2:6789")}, {addr("", "[fd00::3]:6789")}},
		"": nil,
	} {
		got, err := Parse(in)
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(Addr{})); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", in, err, d)
		}
	}
}

// A list that is not understood as a whole is not taken for a shorter one.
func TestWhatIsNoList(t *testing.T) {
	for _, in := range []string{
		"mon.example.com:3300", "10.0.0.1", "[v2:10.0.0.1:3300/0]", "[v2:10.0.0.1:3300],mon.example.com", "10.0.0.1:0",
		"[v2:10.0.0.1:3300", "v2:10.0.0.1:3300]", "[v2:10.0.0.1:3300,]", "[v3:10.0.0.1:3300]", "v1:v2:10.0.0.1:3300", "10.0.0.1:3300 10.0.0.2:3300",
		"]10.0.0.1:3300,[v2:10.0.0.2:3300]",
	} {
		if got, err := Parse(in); err == nil || got != nil {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for in, want := range map[string][]string{
		"": nil, " , ": nil, "a,b, c": {"a", "b", "c"}, "a,": {"a"},
		"[v2:1:1,v1:1:2],[v2:[f::1]:1]": {"[v2:1:1,v1:1:2]", "[v2:[f::1]:1]"},
	} {
		if d := cmp.Diff(want, Split(in)); d != "" {
			t.Errorf("%q (-want +got):\n%s", in, d)
		}
	}
}
