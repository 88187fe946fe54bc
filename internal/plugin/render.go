package plugin

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/node/provision"
)

// View is all that status shows.
type View struct {
	Cluster *cephv1.CephCluster
	Nodes   []NodeDevices
	Drivers []csiv1.Driver
	// Problems are what could not be read.
	Problems []string
}

// NodeDevices is what a node has reported of its disks.
type NodeDevices struct {
	Node    string
	Devices []provision.Device
}

// table writes rows with aligned columns.
type table struct {
	w   *tabwriter.Writer
	err error
}

func newTable(out io.Writer) *table { return &table{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

func (t *table) row(cells ...string) {
	if t.err == nil {
		_, t.err = fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
}

func (t *table) end() error { return cmp.Or(t.err, t.w.Flush()) }

// section writes a heading and a table below it, if there are rows.
func section(out io.Writer, heading string, header []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(out, "\n%s\n", heading); err != nil {
		return err
	}
	t := newTable(out)
	t.row(indent(header)...)
	for _, r := range rows {
		t.row(indent(r)...)
	}
	return t.end()
}

func indent(cells []string) []string {
	out := slices.Clone(cells)
	out[0] = "  " + out[0]
	return out
}

// RenderStatus writes a cluster's state for a person.
func RenderStatus(out io.Writer, v View, now time.Time) error {
	if err := renderCluster(out, v.Cluster, now); err != nil {
		return err
	}
	steps := []func() error{
		func() error {
			return section(out, "Blocked by", []string{"SUBJECT", "SINCE", "REASON", "MESSAGE"}, blockedRows(v.Cluster, now))
		},
		func() error { return RenderReplacements(out, replacementsOf(v.Cluster), now, "\nReplacements") },
		func() error {
			return section(out, "Disks", []string{"NODE", "DEVICE", "SIZE", "TYPE", "USED", "REASON", "WHY"}, deviceRows(v.Nodes))
		},
		func() error {
			return section(out, "CSI drivers", []string{"NAME", "PHASE", "CONTROLLER", "NODES", "MESSAGE"}, driverRows(v.Drivers))
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	for _, p := range v.Problems {
		if _, err := fmt.Fprintf(out, "\nnot shown: %s\n", p); err != nil {
			return err
		}
	}
	return nil
}

func renderCluster(out io.Writer, c *cephv1.CephCluster, now time.Time) error {
	s := c.Status
	t := newTable(out)
	t.row("Cluster", c.Namespace+"/"+c.Name)
	phase := cmp.Or(string(s.Phase), "not looked at yet: does the operator run?")
	if s.Message != "" {
		phase += ": " + s.Message
	}
	if s.ObservedGeneration != 0 && s.ObservedGeneration < c.Generation {
		phase += " (the newest spec is not in effect yet)"
	}
	t.row("Phase", phase)
	if h := s.CephStatus; h != nil {
		health := h.Health
		if at, err := time.Parse(time.RFC3339, h.LastChecked); err == nil {
			health += fmt.Sprintf(" (asked %s ago)", age(now, at))
		}
		t.row("Health", health)
		for _, code := range slices.Sorted(maps.Keys(h.Details)) {
			t.row("", code+": "+h.Details[code].Message)
		}
		if cap := h.Capacity; cap.TotalBytes > 0 {
			t.row("Capacity", fmt.Sprintf("%s of %s used, %s free", size(cap.UsedBytes), size(cap.TotalBytes), size(cap.AvailableBytes)))
		}
	}
	if s.CephVersion != nil {
		t.row("Ceph", strings.TrimSpace(s.CephVersion.Version+" "+s.CephVersion.Image))
	}
	if s.Mon != nil {
		t.row("Mons", fmt.Sprintf("%d of %d in quorum", s.Mon.InQuorum, s.Mon.Wanted))
	}
	if s.OSD != nil {
		t.row("OSDs", fmt.Sprintf("%d up, %d in, of %d", s.OSD.Up, s.OSD.In, s.OSD.Total))
	}
	return t.end()
}

func blockedRows(c *cephv1.CephCluster, now time.Time) [][]string {
	var rows [][]string
	for _, b := range c.Status.BlockedBy {
		rows = append(rows, []string{b.Subject, since(now, b.Since), b.Reason, b.Message})
	}
	return rows
}

func replacementsOf(c *cephv1.CephCluster) []cephv1.OSDReplacement {
	if c.Status.CephStorage == nil {
		return nil
	}
	return c.Status.CephStorage.Replacements
}

// RenderReplacements writes a table of replacements, under a heading where there is
// one.
func RenderReplacements(out io.Writer, list []cephv1.OSDReplacement, now time.Time, heading string) error {
	if len(list) == 0 {
		return nil
	}
	pad := ""
	if heading != "" {
		if _, err := fmt.Fprintln(out, heading); err != nil {
			return err
		}
		pad = "  "
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b cephv1.OSDReplacement) int { return cmp.Compare(a.ID, b.ID) })
	t := newTable(out)
	t.row(pad+"OSD", "NODE", "PHASE", "SINCE", "PROGRESS", "DISK", "WAITING FOR")
	for _, r := range list {
		t.row(fmt.Sprintf("%sosd.%d", pad, r.ID), dash(r.Node), string(r.Phase), since(now, r.Since), dash(r.Progress), dash(disk(r.Disk)), r.WaitingFor)
	}
	return t.end()
}

// disk names a disk so that it can be found in a chassis.
func disk(d *cephv1.OSDDisk) string {
	if d == nil {
		return ""
	}
	var parts []string
	if d.Serial != "" {
		parts = append(parts, "serial "+d.Serial)
	}
	if d.Slot != "" {
		parts = append(parts, "slot "+d.Slot)
	}
	if d.Path != "" {
		parts = append(parts, d.Path)
	}
	return strings.Join(parts, ", ")
}

func deviceRows(nodes []NodeDevices) [][]string {
	var rows [][]string
	for _, n := range nodes {
		for _, d := range n.Devices {
			used := "no"
			if d.Use {
				used = "yes"
			}
			rows = append(rows, []string{n.Node, d.Path, size(d.Size), dash(string(d.Type)), used, string(d.Reason), d.Message})
		}
	}
	return rows
}

func driverRows(list []csiv1.Driver) [][]string {
	var rows [][]string
	for _, d := range list {
		rows = append(rows, []string{d.Namespace + "/" + d.Name, dash(d.Status.Phase), count(d.Status.ControllerPlugin), count(d.Status.NodePlugin), d.Status.Message})
	}
	return rows
}

func count(c *csiv1.PodCount) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.Available, c.Desired)
}

func since(now time.Time, t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return age(now, t.Time)
}

func age(now, t time.Time) string { return duration.HumanDuration(now.Sub(t)) }

func dash(s string) string { return cmp.Or(s, "-") }

// size writes bytes in binary units.
func size(b uint64) string {
	if b == 0 {
		return "-"
	}
	f := float64(b)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			return fmt.Sprintf("%.3g %s", f, unit)
		}
		f /= 1024
	}
	return fmt.Sprintf("%.3g PiB", f)
}
