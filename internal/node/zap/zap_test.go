package zap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/node/request"
)

// node has volumes by name with uuid and tags, and removes them.
type node struct {
	lvs  map[string][2]string
	ran  []string
	open error
	// fails is the command that fails.
	fails string
	// lies: lvremove says yes and does nothing.
	lies bool
	// closed are the uuids whose mappings were to be closed.
	closed []string
}

func (n *node) Close(_ context.Context, lvs []request.LV) ([]string, error) {
	n.ran = append(n.ran, "close")
	for _, l := range lvs {
		n.closed = append(n.closed, l.UUID)
	}
	return nil, n.open
}

func (n *node) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	if name == "lvs" {
		var lines []string
		for full, lv := range n.lvs {
			vg, l, _ := strings.Cut(full, "/")
			lines = append(lines, fmt.Sprintf(`{"vg_name":%q,"lv_name":%q,"lv_uuid":%q,"lv_size":"5","lv_tags":%q,"lv_path":"/dev/%s","devices":"/dev/sdb(0)"}`, vg, l, lv[0], lv[1], full))
		}
		return []byte(`{"report":[{"lv":[` + strings.Join(lines, ",") + `]}]}`), nil
	}
	n.ran = append(n.ran, name+" "+strings.Join(args, " "))
	if len(n.ran) > 1 && n.ran[len(n.ran)-1] == n.fails {
		return nil, errors.New("in use")
	}
	if name == "lvremove" && !n.lies {
		delete(n.lvs, args[len(args)-1])
	}
	return nil, nil
}

func TestRun(t *testing.T) {
	mine, other := "ceph.osd_fsid=u5,ceph.osd_id=5,ceph.cephx_lockbox_secret=s", "ceph.osd_fsid=u6,ceph.osd_id=6"
	req := request.Zap{OSD: 5, UUID: "u5", LVs: []request.LV{{VG: "fast", Name: "db5", UUID: "L5"}, {VG: "fast", Name: "wal5"}}}
	removed := []string{"close", "lvchange --activate n fast/db5", "lvchange --activate y fast/db5", "wipefs --all /dev/fast/db5", "lvremove --yes fast/db5"}
	attempt := "ceph.osd_fsid=u5b,ceph.osd_id=5"
	for name, c := range map[string]struct {
		node *node
		req  request.Zap
		ran  []string
		says string
	}{
		"ours only":                            {&node{lvs: map[string][2]string{"fast/db5": {"L5", mine}, "fast/db6": {"L6", other}}}, req, removed, ""},
		"gone already":                         {&node{lvs: map[string][2]string{"fast/db6": {"L6", other}}}, req, nil, ""},
		"another's tags":                       {&node{lvs: map[string][2]string{"fast/db5": {"L5", other}}}, req, nil, "osd.6"},
		"no tags":                              {&node{lvs: map[string][2]string{"fast/db5": {"L5", ""}}}, req, nil, "left alone"},
		"made again":                           {&node{lvs: map[string][2]string{"fast/db5": {"L9", mine}}}, req, nil, "L9"},
		"one of two":                           {&node{lvs: map[string][2]string{"fast/db5": {"L5", mine}, "fast/wal5": {"L7", other}}}, req, nil, "left alone"},
		"mapping open":                         {&node{lvs: map[string][2]string{"fast/db5": {"L5", mine}}, open: errors.New("still open")}, req, []string{"close"}, "still open"},
		"a lie":                                {&node{lvs: map[string][2]string{"fast/db5": {"L5", mine}}, lies: true}, req, removed, "still there"},
		"of an attempt":                        {&node{lvs: map[string][2]string{"fast/db5": {"L5", attempt}}}, req, removed, ""},
		"of an attempt, its uuid not recorded": {&node{lvs: map[string][2]string{"fast/wal5": {"L7", attempt}}}, req, nil, "left alone"},
		"remade":                               {&node{lvs: map[string][2]string{"fast/db5": {"L9", "castellan.replaces=u5"}}}, req, removed, ""},
		"remade, and then attempted":           {&node{lvs: map[string][2]string{"fast/db5": {"L9", attempt + ",castellan.replaces=u5"}}}, req, removed, ""},
		"remade for another":                   {&node{lvs: map[string][2]string{"fast/db5": {"L9", "castellan.replaces=u6"}}}, req, nil, "L9"},
		"remade, and another's now":            {&node{lvs: map[string][2]string{"fast/db5": {"L9", other + ",castellan.replaces=u5"}}}, req, nil, "osd.6"},
		"in use":                               {&node{lvs: map[string][2]string{"fast/db5": {"L5", mine}}, fails: removed[1]}, req, removed[:2], "nobody uses"},
		"no uuid":                              {&node{}, request.Zap{OSD: 5}, nil, "uuid"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), c.node, c.node, c.req)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("err = %v, want %q in it", err, c.says)
			}
			if diff := cmp.Diff(c.ran, c.node.ran); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A mapping is named by the uuid of the volume that is there, which is not the recorded
// one when it was made again.
func TestClosesWhatIsThere(t *testing.T) {
	n := &node{lvs: map[string][2]string{"fast/db5": {"L9", "castellan.replaces=u5"}}}
	if err := Run(t.Context(), n, n, request.Zap{OSD: 5, UUID: "u5", LVs: []request.LV{{VG: "fast", Name: "db5", UUID: "L5"}}}); err != nil {
		t.Fatal(err)
	}
	for _, uuid := range []string{"L5", "L9"} {
		if !slices.Contains(n.closed, uuid) {
			t.Errorf("%s was not closed: %v", uuid, n.closed)
		}
	}
}
