package request

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/choice"
)

func TestRoundTrip(t *testing.T) {
	in := Provision{
		Namespace: "rook-ceph", Node: "node1", ConfigMap: "rook-ceph-osd-node1-status", FSID: "f", MonHost: "[v2:10.0.0.1:3300]",
		Selection: Selection{Filter: "^sd[b-d]$", Named: []Named{{Ref: "sdb", Config: choice.Config{OSDsPerDevice: 2}}}, Config: choice.Config{DeviceClass: "hdd"}},
		AllowLoop: true, Reserved: map[string]string{"/dev/sdz": "osd.5"},
	}
	s, err := Encode(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Provision
	if err := Decode(s, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadRequests(t *testing.T) {
	for _, s := range []string{"", "{", `{"id":1,"nonsense":true}`} {
		if err := Decode(s, &Activate{}); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestBadPatternNamesTheField(t *testing.T) {
	for field, sel := range map[string]Selection{
		"deviceFilter":     {Filter: "sd["},
		"devicePathFilter": {PathFilter: strings.Repeat("a", maxPattern+1)},
	} {
		_, err := sel.Compile()
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("error %v, want one about %s", err, field)
		}
	}
}
