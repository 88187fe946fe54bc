package endpoints

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var equal = cmp.Options{cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()}

func TestIDs(t *testing.T) {
	for i, want := range map[int]string{0: "a", 1: "b", 25: "z", 26: "aa", 27: "ab", 51: "az", 52: "ba", 701: "zz", 702: "aaa"} {
		if got := ID(i); got != want {
			t.Errorf("ID(%d) = %q, want %q", i, got, want)
		}
	}
	for i := range 2000 {
		if got, err := Index(ID(i)); err != nil || got != i {
			t.Fatalf("Index(ID(%d)) = %d, %v", i, got, err)
		}
	}
	for _, bad := range []string{"", "A", "a1", "-", "aaaaaaaa"} {
		if _, err := Index(bad); err == nil {
			t.Errorf("Index(%q) succeeds", bad)
		}
	}
}

func mon(id, addr string) Mon { return Mon{ID: id, Addr: netip.MustParseAddrPort(addr)} }

func list(t *testing.T, mons ...Mon) List {
	t.Helper()
	l := Empty()
	for _, m := range mons {
		var err error
		if l, err = l.With(m); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestAnIDNeverComesBack(t *testing.T) {
	l := list(t, mon("a", "10.0.0.1:3300"), mon("b", "10.0.0.2:3300"), mon("c", "10.0.0.3:3300"))
	l, err := l.Without("c")
	if err != nil {
		t.Fatal(err)
	}
	id, next := l.Next()
	if id != "d" {
		t.Errorf("after c has left, the next id is %q, want d", id)
	}
	if l.MaxID != 2 || next.MaxID != 3 {
		t.Errorf("MaxID %d then %d, want 2 then 3", l.MaxID, next.MaxID)
	}
	data, err := next.Data("")
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(data)
	if err != nil || back.MaxID != 3 {
		t.Errorf("MaxID is lost when it is stored: %d, %v", back.MaxID, err)
	}
}

func TestRules(t *testing.T) {
	l := list(t, mon("a", "10.0.0.1:3300"))
	if _, err := l.With(mon("b", "10.0.0.1:3300")); err == nil || !strings.Contains(err.Error(), "mon a has it") {
		t.Errorf("two mons on one address: %v", err)
	}
	if _, err := l.Without("a"); err == nil {
		t.Error("the last mon can be taken out")
	}
	if _, err := Empty().Data(""); err == nil {
		t.Error("an empty list can be written")
	}
}

func TestMonHost(t *testing.T) {
	l := list(t, mon("a", "10.0.0.1:3300"), mon("b", "10.0.0.2:6789"), mon("c", "[fd00::3]:3300"))
	want := "[v2:10.0.0.1:3300],[v2:10.0.0.2:3300,v1:10.0.0.2:6789],[v2:[fd00::3]:3300]"
	if got := l.MonHost(); got != want {
		t.Errorf("mon_host = %s\nwant       %s", got, want)
	}
	if got := l.Members(); got != "a,b,c" {
		t.Errorf("members = %s", got)
	}
}

func TestRoundTrip(t *testing.T) {
	a := mon("a", "10.0.0.1:3300")
	a.Place = &Place{Name: "node1", Hostname: "node1", Address: "172.30.0.11"}
	b := mon("b", "10.0.0.2:3300")
	b.OutOfQuorum = true
	l := list(t, a, b, mon("aa", "10.0.0.3:3300"))
	data, err := l.Data("[]")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"data": "a=10.0.0.1:3300,b=10.0.0.2:3300,aa=10.0.0.3:3300", "maxMonId": "26", "outOfQuorum": "b", "externalMons": "",
		"mapping":                 `{"node":{"a":{"Name":"node1","Hostname":"node1","Address":"172.30.0.11"},"aa":null,"b":null}}`,
		"csi-cluster-config-json": "[]",
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	back, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l, back, equal); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for key, value := range map[string]string{"data": "a:10.0.0.1", "maxMonId": "x", "mapping": "{"} {
		if _, err := Parse(map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%q: %v, want an error that names the key", key, value, err)
		}
	}
	for _, d := range []string{"a=10.0.0.1", "a=nowhere:3300", "a=10.0.0.1:3300,a=10.0.0.2:3300", "A=10.0.0.1:3300"} {
		if _, err := Parse(map[string]string{"data": d}); err == nil {
			t.Errorf("data=%q was accepted", d)
		}
	}
}
