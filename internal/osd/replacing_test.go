package osd

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/swap"
	"github.com/castellan-storage/castellan/internal/osd/selection"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// While a disk is replaced, a node whose disks are looked at is no failure of
// provisioning, and neither is the device that was pulled; what else goes wrong there is
// told as part of the replacement.
func TestAReplacementIsNoFailureOfProvisioning(t *testing.T) {
	now := time.Unix(1790000000, 0)
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "i", Version: "20.2.4-0"}
	n := selection.Node{Name: "n1", Host: "n1", Index: -1}
	old := swap.Pending{OSD: 3, UUID: "u3", Old: swap.Disk{Serial: "S1", ByID: "/dev/disk/by-id/ata-X_S1", ByPath: "/dev/disk/by-path/ata-1"}}
	c := &Provisioner{}
	seen := ProvisionSeen{
		Now: now, Founded: true, HasKey: true, Cluster: podspec.Cluster{Namespace: "ns", FSID: "f", CephImage: "i"}, Resolved: selection.Result{Nodes: []selection.Node{n}},
		Jobs: map[string]*batchv1.Job{}, Stuck: map[string]string{}, Reports: map[string]Report{}, Devices: map[string]string{}, Slots: map[string][]swap.Pending{"n1": {old}},
	}
	p := c.Plan(cl, seen)
	if len(p.Create) != 1 || p.Wait != nil || p.Next == 0 {
		t.Fatalf("a look for a new disk: %s", p)
	}
	job, ok := p.Create[0].(*batchv1.Job)
	if !ok {
		t.Fatalf("%T", p.Create[0])
	}
	hash := job.Labels[spec.RequestLabel]
	report := func(missing ...string) Report {
		return Report{State: "completed", Request: hash, Missing: missing}
	}
	for _, c2 := range []struct {
		name    string
		missing []string
		says    string
	}{
		{"the pulled disk by its id", []string{"/dev/disk/by-id/ata-X_S1"}, ""},
		{"by another link with its serial", []string{"/dev/disk/by-id/scsi-0_S1"}, ""},
		{"its slot", []string{"/dev/disk/by-path/ata-1"}, ""},
		{"another one", []string{"/dev/disk/by-path/ata-1", "/dev/disk/by-path/ata-2"}, "has no device /dev/disk/by-path/ata-2;"},
	} {
		seen.Reports["n1"] = report(c2.missing...)
		p := c.Plan(cl, seen)
		if c2.says == "" && (p.Wait != nil || len(p.Create) > 0) {
			t.Errorf("%s: %s", c2.name, p)
		}
		if c2.says != "" && (p.Wait == nil || p.Wait.Reason != "ReplacingDisks" || !strings.Contains(p.Wait.Message, c2.says) || !strings.Contains(p.Wait.Message, "osd.3")) {
			t.Errorf("%s: %s", c2.name, p)
		}
	}
	// Without a replacement all of that is a problem of provisioning.
	seen.Slots = nil
	seen.Reports["n1"] = Report{}
	p = c.Plan(cl, seen)
	if p.Wait == nil || p.Wait.Reason != "PreparingDisks" {
		t.Errorf("without a replacement: %s", p)
	}
	job, _ = p.Create[0].(*batchv1.Job)
	seen.Reports["n1"] = Report{State: "completed", Request: job.Labels[spec.RequestLabel], Missing: []string{"/dev/disk/by-id/ata-X_S1"}}
	if p = c.Plan(cl, seen); p.Wait == nil || p.Wait.Reason != spec.ReasonDeviceMissing {
		t.Errorf("without a replacement: %s", p)
	}
}
