package monmap

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// list is what a pod is told of mons with these addresses and ports.
func list(t *testing.T, mons map[string]string) (members, hosts string) {
	t.Helper()
	l := endpoints.Empty()
	for id, addr := range mons {
		var err error
		if l, err = l.With(endpoints.Mon{ID: id, Addr: netip.MustParseAddrPort(addr)}); err != nil {
			t.Fatal(err)
		}
	}
	return l.Members(), l.MonHost()
}

func TestFounders(t *testing.T) {
	for _, tc := range []struct {
		name string
		id   string
		mons map[string]string
		want []Mon
	}{
		{
			name: "both protocols", id: "b", mons: map[string]string{"a": "10.0.0.1:6789", "b": "10.0.0.2:6789", "c": "10.0.0.3:6789"},
			want: []Mon{
				{"a", "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"}, {"b", "[v2:10.0.0.2:3300,v1:10.0.0.2:6789]"}, {"c", "[v2:10.0.0.3:3300,v1:10.0.0.3:6789]"},
			},
		},
		{name: "v2 only, IPv6", id: "a", mons: map[string]string{"a": "[fd00::1]:3300"}, want: []Mon{{"a", "[v2:[fd00::1]:3300]"}}},
		{
			name: "IPv6, both protocols", id: "a", mons: map[string]string{"a": "[fd00::1]:6789", "b": "[fd00::2]:6789"},
			want: []Mon{{"a", "[v2:[fd00::1]:3300,v1:[fd00::1]:6789]"}, {"b", "[v2:[fd00::2]:3300,v1:[fd00::2]:6789]"}},
		},
		{name: "one was replaced", id: "d", mons: map[string]string{"a": "10.0.0.1:6789", "b": "10.0.0.2:6789", "d": "10.0.0.4:6789"}},
		{name: "the first was replaced", id: "b", mons: map[string]string{"b": "10.0.0.2:6789", "c": "10.0.0.3:6789", "d": "10.0.0.4:6789"}},
		{name: "not listed", id: "c", mons: map[string]string{"a": "10.0.0.1:6789", "b": "10.0.0.2:6789"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			members, hosts := list(t, tc.mons)
			if diff := cmp.Diff(tc.want, Founders(tc.id, members, hosts)); diff != "" {
				t.Errorf("of %s at %s (-want +got):\n%s", members, hosts, diff)
			}
		})
	}
}

func TestNoMapOfWhatDoesNotFit(t *testing.T) {
	for _, tc := range [][2]string{
		{"", ""}, {"a", ""}, {"a,b", "[v2:10.0.0.1:3300]"}, {"a", "[v2:10.0.0.1:3300],[v2:10.0.0.2:3300]"},
		{"a", "10.0.0.1"}, {"a", "10.0.0.1:6789"}, {"a", "[v2:10.0.0.1:3300"}, {"a", "mon.example.com"},
	} {
		if got := Founders("a", tc[0], tc[1]); got != nil {
			t.Errorf("%q at %q: %v", tc[0], tc[1], got)
		}
	}
}

func TestArgs(t *testing.T) {
	got := Args("f", []Mon{{"a", "[v2:10.0.0.1:3300]"}, {"b", "[v2:10.0.0.2:3300,v1:10.0.0.2:6789]"}}, "/tmp/map")
	want := []string{
		"--create", "--clobber", "--fsid", "f", "--addv", "a", "[v2:10.0.0.1:3300]", "--addv", "b", "[v2:10.0.0.2:3300,v1:10.0.0.2:6789]", "/tmp/map",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLast(t *testing.T) {
	ports := func(s ...string) (out []netip.AddrPort) {
		for _, s := range s {
			out = append(out, netip.MustParseAddrPort(s))
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		id     string
		mons   map[string]string
		others []netip.AddrPort
		last   bool
	}{
		// Ranks as mons of 20.2.4 have given them to themselves: b 0, a 1, c 2.
		{"the lowest address, not the first name", "b", map[string]string{"a": "10.96.15.59:3300", "b": "10.96.5.46:3300", "c": "10.96.187.111:3300"}, ports("10.96.15.59:3300", "10.96.187.111:3300"), true},
		{"another", "a", map[string]string{"a": "10.96.15.59:3300", "b": "10.96.5.46:3300", "c": "10.96.187.111:3300"}, ports("10.96.5.46:3300", "10.96.187.111:3300"), false},
		{"both protocols", "a", map[string]string{"a": "10.0.0.1:6789", "b": "10.0.0.2:6789"}, ports("10.0.0.2:3300"), true},
		{"IPv6", "b", map[string]string{"a": "[fd00::2]:6789", "b": "[fd00::1]:6789"}, ports("[fd00::2]:3300"), true},
		{"alone", "a", map[string]string{"a": "10.0.0.1:3300"}, nil, false},
	} {
		members, hosts := list(t, tc.mons)
		others, last := Last(tc.id, Founders(tc.id, members, hosts))
		if diff := cmp.Diff(tc.others, others, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || last != tc.last {
			t.Errorf("%s: last %v, others (-want +got):\n%s", tc.name, last, diff)
		}
	}
}
