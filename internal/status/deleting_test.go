package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

// What was said before the deletion is not what it does and waits for.
func TestADeletionSaysWhatItWaitsFor(t *testing.T) {
	since := metav1.NewTime(time.Unix(1790000000, 0))
	const cleaning = "2 of 3 hosts are being cleaned: node1, node2"
	condition := func(kind, reason, message string) cephv1.Condition {
		return cephv1.Condition{Type: cephv1.ConditionType(kind), Status: "False", Reason: cephv1.ConditionReason(reason), Message: message, LastTransitionTime: since}
	}
	held := condition("DeletionIsBlocked", "CleaningHosts", cleaning)
	held.Status = "True"
	for _, tc := range []struct {
		name       string
		conditions []cephv1.Condition
		message    string
		blocked    []cephv1.BlockedBy
	}{
		{"nothing reported", nil, "the cluster is being deleted", nil},
		{
			"a host is cleaned", []cephv1.Condition{condition("FoundationReady", "CleaningHosts", cleaning), held}, cleaning,
			[]cephv1.BlockedBy{{Subject: "deletion", Reason: "CleaningHosts", Message: cleaning, Since: since}},
		},
		{
			"all are cleaned", []cephv1.Condition{
				condition("FoundationReady", "Deleting", "letting go"), condition("DeletionIsBlocked", "NoDependents", "nothing holds it back"),
			}, "letting go", nil,
		},
		{"other subjects do not count", []cephv1.Condition{
			{Type: "FoundationReady", Status: "True", Message: "founded"}, condition("OSDReady", "OSDsNotUp", "osd.1 is not up yet"),
		}, "the cluster is being deleted", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cl := &cephv1.CephCluster{}
			cl.Status.Conditions = tc.conditions
			cl.Status.Message = "spec.cleanupPolicy.confirmation is set: the cluster is left as it is until it is deleted"
			cl.Status.BlockedBy = []cephv1.BlockedBy{{Subject: "foundation", Message: "old"}}
			next, ok := (&Controller{}).Teardown(cl, Seen{}).Status.(*cephv1.CephCluster)
			if !ok {
				t.Fatal("no status")
			}
			if next.Status.Message != tc.message {
				t.Errorf("message %q, want %q", next.Status.Message, tc.message)
			}
			if diff := cmp.Diff(tc.blocked, next.Status.BlockedBy); diff != "" {
				t.Errorf("blockedBy (-want +got):\n%s", diff)
			}
		})
	}
}
