package network

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cmpAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func TestPlan(t *testing.T) {
	got, err := Plan(2)
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{
		{Name: "node1", Index: 1, Addr: netip.MustParsePrefix("172.30.0.11/24"), PodCIDR: netip.MustParsePrefix("10.244.1.0/24"), Veth: "veth1"},
		{Name: "node2", Index: 2, Addr: netip.MustParsePrefix("172.30.0.12/24"), PodCIDR: netip.MustParsePrefix("10.244.2.0/24"), Veth: "veth2"},
	}
	if d := cmp.Diff(want, got, cmpAddr); d != "" {
		t.Error(d)
	}
}

func TestPlanBounds(t *testing.T) {
	for _, n := range []int{-1, 0, MaxNodes + 1} {
		if _, err := Plan(n); err == nil {
			t.Errorf("Plan(%d): no error", n)
		}
	}
	nodes, err := Plan(MaxNodes)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Prefix]string{}
	for _, n := range nodes {
		for _, p := range []netip.Prefix{n.Addr, n.PodCIDR} {
			if other, ok := seen[p]; ok {
				t.Errorf("%s and %s share %s", n.Name, other, p)
			}
			seen[p] = n.Name
		}
		if !netip.MustParsePrefix(PodCIDR).Overlaps(n.PodCIDR) {
			t.Errorf("pods of %s are outside %s", n.Name, PodCIDR)
		}
	}
}

func TestRoutes(t *testing.T) {
	nodes, err := Plan(3)
	if err != nil {
		t.Fatal(err)
	}
	route := func(to, via string) Route {
		return Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via)}
	}
	tests := map[string]struct{ got, want []Route }{
		"a node": {
			NodeRoutes(nodes[1], nodes),
			[]Route{route("0.0.0.0/0", ControlIP), route("10.244.1.0/24", "172.30.0.11"), route("10.244.3.0/24", "172.30.0.13")},
		},
		"the control plane": {
			ControlRoutes(nodes[:2]),
			[]Route{route("10.244.1.0/24", "172.30.0.11"), route("10.244.2.0/24", "172.30.0.12"), route(ServiceCIDR, "172.30.0.11")},
		},
		"services move to a running node": {
			ControlRoutes(nodes[2:]),
			[]Route{route("10.244.3.0/24", "172.30.0.13"), route(ServiceCIDR, "172.30.0.13")},
		},
		"no node runs": {ControlRoutes(nil), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, tt.got, cmpAddr); d != "" {
				t.Error(d)
			}
		})
	}
}
