package plugin

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

var update = flag.Bool("update", false, "write golden files anew")

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// deployment is the one of osd.5 with annotations, as pairs of name and value.
func deployment(pairs ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: spec.Name(5), Namespace: "rook-ceph", Labels: map[string]string{"app": spec.App, spec.IDLabel: "5"}, Annotations: map[string]string{},
	}}
	for i := 0; i < len(pairs); i += 2 {
		d.Annotations[pairs[i]] = pairs[i+1]
	}
	d.Status.AvailableReplicas = 1
	return d
}

func replacement(phase cephv1.OSDReplacementPhase) *cephv1.OSDReplacement {
	return &cephv1.OSDReplacement{ID: 5, Phase: phase}
}

const byID = "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"

var (
	asked      = []string{spec.ReplaceAnnotation, "yes-really-replace-osd-5"}
	inProgress = append(append([]string{}, asked...), spec.InProgressAnnotation, "true")
	ready      = append(append([]string{}, inProgress...), spec.ReadyAnnotation, "true")
)

// rebuilt is the Deployment of an OSD that was given back on its new disk.
func rebuilt(pairs ...string) *appsv1.Deployment {
	note := plan.Note{UUID: "u", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u"}, Replaced: "v"}
	return deployment(append([]string{spec.ReplacedAnnotation, note.Encode()}, pairs...)...)
}

// attempted is the Deployment of a destroyed OSD for which a disk was tried.
func attempted(failed string) *appsv1.Deployment {
	note := plan.Note{UUID: "u", Node: "n1", Record: prepare.Result{ID: 5, UUID: "u"}, Attempt: &plan.Attempt{Number: 1, Device: "/dev/sdx", Failed: failed}}
	return deployment(append([]string{spec.NoteAnnotation, note.Encode()}, ready...)...)
}

func TestRequests(t *testing.T) {
	replace := func(with string) func(OSD) (Request, error) {
		return func(o OSD) (Request, error) { return AskReplace(o, with) }
	}
	fenced := deployment()
	fenced.Labels[fenceLabel] = "true"
	clone := deployment()
	clone.Name += "-maintenance"
	fencedByUs := deployment(inProgress...)
	fencedByUs.Labels[fenceLabel] = "true"
	for _, c := range []struct {
		name  string
		ask   func(OSD) (Request, error)
		osd   OSD
		set   map[string]string
		gone  []string
		error string
	}{
		{"replace", replace(""), OSD{Deployment: deployment()}, map[string]string{spec.ReplaceAnnotation: "yes-really-replace-osd-5"}, nil, ""},
		{"replace by a disk", replace(byID), OSD{Deployment: deployment()}, map[string]string{spec.ReplaceAnnotation: "yes-really-replace-osd-5", spec.WithAnnotation: byID}, nil, ""},
		{"replace again", replace(""), OSD{Deployment: fencedByUs, Replacement: replacement(cephv1.OSDReplacementDraining)}, map[string]string{}, nil, ""},
		{"name the disk later", replace(byID), OSD{Deployment: deployment(ready...), Replacement: replacement(cephv1.OSDReplacementReadyForSwap)}, map[string]string{spec.WithAnnotation: byID}, nil, ""},
		{"a wrong confirmation is put right", replace(""), OSD{Deployment: deployment(spec.ReplaceAnnotation, "yes")}, map[string]string{spec.ReplaceAnnotation: "yes-really-replace-osd-5"}, nil, ""},
		{"a name that can change", replace("/dev/sdb"), OSD{Deployment: deployment()}, nil, nil, "by-id"},
		{"a path elsewhere", replace("/dev/disk/../../etc/passwd"), OSD{Deployment: deployment()}, nil, nil, "below /dev"},
		{"a relative path", replace("sdb"), OSD{Deployment: deployment()}, nil, nil, "below /dev"},
		{"fenced by an administrator", replace(""), OSD{Deployment: fenced}, nil, nil, "label deployment rook-ceph-osd-5 ceph.rook.io/do-not-reconcile-"},
		{"being cancelled", replace(""), OSD{Deployment: deployment(spec.InProgressAnnotation, "true"), Replacement: replacement(cephv1.OSDReplacementCancelling)}, nil, nil, "cancelled"},
		{"being abandoned", replace(""), OSD{Deployment: deployment(ready...), Replacement: replacement(cephv1.OSDReplacementAbandoning)}, nil, nil, "given up"},
		{"another Deployment", replace(""), OSD{Deployment: clone}, nil, nil, "not the one of an OSD"},

		{"cancel", AskCancel, OSD{Deployment: deployment(inProgress...), Replacement: replacement(cephv1.OSDReplacementDraining)}, nil, []string{spec.ReplaceAnnotation}, ""},
		{"cancel with a disk", AskCancel, OSD{Deployment: deployment(append(asked, spec.WithAnnotation, byID)...)}, nil, []string{spec.ReplaceAnnotation, spec.WithAnnotation}, ""},
		{"cancel what was refused", AskCancel, OSD{Deployment: deployment(spec.ReplaceAnnotation, "yes"), Replacement: replacement(cephv1.OSDReplacementRefused)}, nil, []string{spec.ReplaceAnnotation}, ""},
		{"cancel twice", AskCancel, OSD{Deployment: deployment(spec.InProgressAnnotation, "true"), Replacement: replacement(cephv1.OSDReplacementCancelling)}, nil, nil, ""},
		{"cancel nothing", AskCancel, OSD{Deployment: deployment()}, nil, nil, "nothing to cancel"},
		{"cancel too late, by the mark", AskCancel, OSD{Deployment: deployment(ready...)}, nil, nil, "replace abandon 5"},
		{"cancel too late, by the status", AskCancel, OSD{Deployment: deployment(inProgress...), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, nil, "replace abandon 5"},

		{"abandon", AskAbandon, OSD{Deployment: deployment(ready...), Replacement: replacement(cephv1.OSDReplacementReadyForSwap)}, map[string]string{spec.AbandonAnnotation: "yes-really-purge-osd-5"}, nil, ""},
		{"abandon twice", AskAbandon, OSD{Deployment: deployment(append(ready, spec.AbandonAnnotation, "yes-really-purge-osd-5")...)}, nil, nil, ""},
		{"abandon what runs", AskAbandon, OSD{Deployment: deployment()}, nil, nil, "not being replaced"},
		{"abandon before the end", AskAbandon, OSD{Deployment: deployment(inProgress...), Replacement: replacement(cephv1.OSDReplacementDraining)}, nil, nil, "replace cancel 5"},
		{"replace an OSD that does not come up on its new disk", replace(""), OSD{Deployment: rebuilt(), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, map[string]string{spec.ReplaceAnnotation: "yes-really-replace-osd-5"}, nil, ""},
		{"the same by its metadata device", func(o OSD) (Request, error) { return AskMetadata(o, "", false) }, OSD{Deployment: rebuilt(), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, map[string]string{spec.MetadataAnnotation: spec.MetadataConfirmation(5)}, nil, ""},
		{"take that request back at once", AskCancel, OSD{Deployment: rebuilt(asked...), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, []string{spec.ReplaceAnnotation}, ""},
		{"cancel what starts", AskCancel, OSD{Deployment: rebuilt(), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, nil, "nothing to cancel"},
		{"abandon what starts", AskAbandon, OSD{Deployment: rebuilt(), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, nil, "ask for its replacement again"},
		{"abandon what starts and was asked for again", AskAbandon, OSD{Deployment: rebuilt(asked...), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, nil, "ask for its replacement again"},
		{"abandon after a disk has failed", AskAbandon, OSD{Deployment: attempted("mkfs failed"), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, map[string]string{spec.AbandonAnnotation: "yes-really-purge-osd-5"}, nil, ""},
		{"abandon while another disk is prepared", AskAbandon, OSD{Deployment: attempted(""), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, nil, "being prepared"},
		{"abandon while a disk is prepared", AskAbandon, OSD{Deployment: deployment(ready...), Replacement: replacement(cephv1.OSDReplacementProvisioning)}, nil, nil, "being prepared"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.osd.ID = 5
			r, err := c.ask(c.osd)
			if c.error != "" {
				if err == nil || !strings.Contains(err.Error(), c.error) {
					t.Fatalf("the error %v is without %q", err, c.error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.set, r.Set); diff != "" && len(c.set)+len(r.Set) > 0 {
				t.Errorf("set (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.gone, r.Remove); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
			if r.Message == "" {
				t.Error("the user is told nothing")
			}
		})
	}
}

// A replacement is followed from the request to its end, by every way it can end.
func TestJudge(t *testing.T) {
	type look struct {
		osd  OSD
		line string
	}
	at := func(phase cephv1.OSDReplacementPhase, progress, waits string, pairs ...string) OSD {
		r := replacement(phase)
		r.Progress, r.WaitingFor, r.Since = progress, waits, ago(2*time.Minute)
		return OSD{ID: 5, Deployment: deployment(pairs...), Replacement: r}
	}
	plain := func(pairs ...string) OSD { return OSD{ID: 5, Deployment: deployment(pairs...)} }
	notYet := plain(spec.ReplacedAnnotation, "{}")
	for name, looks := range map[string][]look{
		"replaced": {
			{plain(asked...), "osd.5  waiting for the operator"},
			{at(cephv1.OSDReplacementDraining, "42% (118 of 281 PGs left)", "its data is being moved to other OSDs", inProgress...), "osd.5  Draining  42% (118 of 281 PGs left)  for 2m  its data is being moved to other OSDs"},
			{at(cephv1.OSDReplacementReadyForSwap, "", "pull the disk", ready...), "osd.5  ReadyForSwap  for 2m  pull the disk"},
			{at(cephv1.OSDReplacementProvisioning, "", "", ready...), "osd.5  Provisioning  for 2m"},
			{OSD{ID: 5}, "osd.5  its Deployment is being made anew"},
			{notYet, "osd.5  starting"},
			{plain(), "done osd.5: replaced, and running on its new disk"},
		},
		"cancelled": {
			{at(cephv1.OSDReplacementDraining, "", "", inProgress...), "osd.5  Draining  for 2m"},
			{at(cephv1.OSDReplacementCancelling, "", "", spec.InProgressAnnotation, "true"), "osd.5  Cancelling  for 2m"},
			{plain(), "done osd.5: cancelled, and running as before"},
		},
		"abandoned": {
			{at(cephv1.OSDReplacementAbandoning, "", "", ready...), "osd.5  Abandoning  for 2m"},
			{OSD{ID: 5}, "done osd.5: its slot is given up"},
		},
		"taken back by somebody": {
			{at(cephv1.OSDReplacementAccepted, "", "", asked...), "osd.5  Accepted  for 2m"},
			{plain(), "done osd.5: the request was taken back"},
		},
		"refused": {
			{plain(asked...), "osd.5  waiting for the operator"},
			{at(cephv1.OSDReplacementRefused, "", "osd.5 is on a PVC", asked...), "failed osd.5: the request does not hold: osd.5 is on a PVC; take it back with kubectl castellan osd replace cancel 5"},
		},
		"never there": {{OSD{ID: 5}, "failed osd.5: it has no Deployment"}},
	} {
		t.Run(name, func(t *testing.T) {
			var last cephv1.OSDReplacementPhase
			for i, l := range looks {
				v := Judge(l.osd, last, now, now)
				last = v.Phase
				got := v.Line
				switch {
				case v.Err != nil:
					got = "failed " + v.Err.Error()
				case v.Done:
					got = "done " + got
				}
				if got != l.line {
					t.Errorf("look %d: %q, not %q", i, got, l.line)
				}
				if v.Done != (i == len(looks)-1) {
					t.Errorf("look %d: done is %t", i, v.Done)
				}
			}
		})
	}
	if v := Judge(plain(asked...), "", now, now.Add(time.Minute)); !strings.Contains(v.Line, "does it run? kubectl -n rook-ceph get pods") {
		t.Errorf("an operator that is silent: %q", v.Line)
	}
}

func TestScreen(t *testing.T) {
	lines := []Verdict{{Line: "a 1s", Key: "a"}, {Line: "a 2s", Key: "a"}, {Line: "b is long", Key: "b"}}
	for terminal, want := range map[bool]string{
		false: "a 1s\nb is long\nend\n",
		true:  "\r\x1b[Ka 1s\r\x1b[Ka 2s\r\x1b[Kb is…\r\x1b[Kend\n",
	} {
		var b bytes.Buffer
		s := &screen{out: &b, terminal: terminal, width: 6}
		for _, v := range lines {
			if err := s.show(v); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.end("end"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("terminal %t (-want +got):\n%s", terminal, diff)
		}
	}
}

func view() View {
	c := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: "rook-ceph", Generation: 4}}
	c.Status = cephv1.ClusterStatus{
		Phase: "Progressing", Message: "2 OSDs are being updated", ObservedGeneration: 3,
		CephStatus: &cephv1.CephStatus{
			Health: "HEALTH_WARN", LastChecked: now.Add(-40 * time.Second).Format(time.RFC3339),
			Details:  map[string]cephv1.CephHealthMessage{"PG_DEGRADED": {Severity: "HEALTH_WARN", Message: "3 pgs degraded"}, "OSD_DOWN": {Severity: "HEALTH_WARN", Message: "1 osds down"}},
			Capacity: cephv1.Capacity{TotalBytes: 6 << 40, UsedBytes: 3 << 39, AvailableBytes: 9 << 39},
		},
		CephVersion: &cephv1.ClusterVersion{Version: "20.2.4-0", Image: "quay.io/ceph/ceph:v20.2.4"},
		Mon:         &cephv1.MonStatus{InQuorum: 2, Wanted: 3},
		OSD:         &cephv1.OSDSummary{Up: 5, In: 6, Total: 6},
		BlockedBy: []cephv1.BlockedBy{
			{Subject: "mon-c", Reason: "PodNotScheduled", Message: "no node is free", Since: ago(3 * time.Hour)},
			{Subject: "osd.5", Reason: "AwaitingSwap", Message: "pull the disk", Since: ago(26 * time.Hour)},
		},
		CephStorage: &cephv1.CephStorage{Replacements: []cephv1.OSDReplacement{
			{ID: 12, Node: "worker-2", Phase: cephv1.OSDReplacementDraining, Since: ago(5 * time.Minute), Progress: "42% (118 of 281 PGs left)", WaitingFor: "its data is being moved to other OSDs"},
			{ID: 5, Node: "worker-1", Phase: cephv1.OSDReplacementReadyForSwap, Since: ago(26 * time.Hour), WaitingFor: "pull the disk and put a new one in", Disk: &cephv1.OSDDisk{Serial: "ZHZ1", Slot: "4", Path: "/dev/disk/by-path/pci-0000:00:1f.2-ata-4"}},
		}},
	}
	return View{
		Cluster: c,
		Nodes: []NodeDevices{
			{Node: "worker-1", Devices: []provision.Device{
				{Path: "/dev/sda", Type: "disk", Size: 240 << 30, Reason: "Mounted", Message: "mounted at /"},
				{Path: "/dev/sdb", Type: "disk", Size: 18 << 40, Use: true, Reason: "Selected", Message: "new OSD"},
			}},
			{Node: "worker-2", Devices: []provision.Device{{Path: "/dev/sdz", Reason: "NoSuchDevice", Message: "the spec names it, and the node has no such device"}}},
		},
		Drivers: []csiv1.Driver{{
			ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph.rbd.csi.ceph.com", Namespace: "rook-ceph"},
			Status:     csiv1.DriverStatus{Phase: "Progressing", Message: "1 of 3 node pods is not available", ControllerPlugin: &csiv1.PodCount{Desired: 2, Available: 2}, NodePlugin: &csiv1.PodCount{Desired: 3, Available: 2}},
		}},
		Problems: []string{"ConfigMap x: its devices cannot be read"},
	}
}

func TestRenderStatus(t *testing.T) {
	var b bytes.Buffer
	if err := RenderStatus(&b, view(), now); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", b.String())
	b.Reset()
	if err := RenderStatus(&b, View{Cluster: &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "ns"}}}, now); err != nil {
		t.Fatal(err)
	}
	golden(t, "status-new.txt", b.String())
}

// A writer that fails is an error, not a shorter answer.
func TestRenderFails(t *testing.T) {
	for n := range 12 {
		w := &failing{left: n}
		if err := RenderStatus(w, view(), now); !errors.Is(err, errFull) {
			t.Errorf("after %d writes: %v", n, err)
		}
	}
}

var errFull = errors.New("full")

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestChoose(t *testing.T) {
	cluster := func(ns, name string) cephv1.CephCluster {
		return cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	}
	two := []cephv1.CephCluster{cluster("b", "x"), cluster("a", "y")}
	for _, c := range []struct {
		list        []cephv1.CephCluster
		where       Where
		want, error string
	}{
		{two[:1], Where{Namespace: "b"}, "b/x", ""},
		{two, Where{Name: "y"}, "a/y", ""},
		{two, Where{}, "", "several CephClusters: name one with -n and --ceph-cluster: a/y, b/x"},
		{two, Where{Name: "z"}, "", "no CephCluster z; there are a/y, b/x"},
		{nil, Where{Namespace: "b", Explicit: true}, "", "no CephCluster in namespace b"},
		{nil, Where{Namespace: "b"}, "", "there is no CephCluster"},
	} {
		got, err := choose(c.list, c.where)
		switch {
		case c.error != "":
			if err == nil || !strings.Contains(err.Error(), c.error) {
				t.Errorf("%+v: %v", c.where, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c.where, err)
		case got.Namespace+"/"+got.Name != c.want:
			t.Errorf("%+v: %s/%s", c.where, got.Namespace, got.Name)
		}
	}
}

func TestMetadataDevice(t *testing.T) {
	note := func(leader int) string {
		return fmt.Sprintf(`{"uuid":"u5","node":"n","record":{"id":5,"uuid":"u5"},"set":{"kind":"metadata","leader":%d,"members":[{"id":4,"uuid":"u4"},{"id":5,"uuid":"u5"}]}}`, leader)
	}
	member := []string{spec.NoteAnnotation, note(4), spec.InProgressAnnotation, "true"}
	leads := []string{spec.NoteAnnotation, note(5), spec.InProgressAnnotation, "true", spec.MetadataAnnotation, spec.MetadataConfirmation(5)}
	ask := func(loss bool) func(OSD) (Request, error) {
		return func(o OSD) (Request, error) { return AskMetadata(o, "", loss) }
	}
	plain := func(o OSD) (Request, error) { return AskReplace(o, "") }
	for _, c := range []struct {
		name  string
		pairs []string
		ask   func(OSD) (Request, error)
		set   map[string]string
		gone  []string
		fails string
	}{
		{"new", nil, ask(false), map[string]string{spec.MetadataAnnotation: "yes-really-replace-metadata-of-osd-5"}, nil, ""},
		{"new, with loss", nil, ask(true), map[string]string{spec.MetadataAnnotation: "yes-really-replace-metadata-of-osd-5-accept-data-on-it-is-lost"}, nil, ""},
		{"loss afterwards", leads, ask(true), map[string]string{spec.MetadataAnnotation: spec.LossConfirmation(5)}, nil, ""},
		{"again", leads, ask(false), nil, nil, ""},
		{"of a set that another leads", member, ask(true), nil, nil, "as is asked for on osd.4"},
		{"while its disk is replaced", []string{spec.ReplaceAnnotation, spec.Confirmation(5)}, ask(false), nil, nil, "on its own"},
		{"its disk, while its metadata device is replaced", leads, plain, nil, nil, "metadata device of osd.5 is being replaced"},
		{"its disk, as one of the set", member, plain, nil, nil, "metadata device of osd.5 is being replaced"},
		{"cancel", leads, AskCancel, nil, []string{spec.MetadataAnnotation}, ""},
		{"cancel on another", member, AskCancel, nil, nil, "asked for on osd.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := c.ask(OSD{ID: 5, Deployment: deployment(c.pairs...)})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("%+v, %v", r, err)
				}
				return
			}
			if len(r.Set) == 0 {
				r.Set = nil
			}
			if diff := cmp.Diff(c.set, r.Set); err != nil || diff != "" || !slices.Equal(r.Remove, c.gone) || r.Message == "" {
				t.Errorf("%v, remove %v, %q\n%s", err, r.Remove, r.Message, diff)
			}
		})
	}
}
