package status

import (
	"cmp"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit"
)

// foundation is the subject of the controller that deletes the cluster.
const foundation = "Foundation"

// Teardown implements kit.Controller: the status says what the deletion does and waits
// for, as the cluster's own controller reports it. What Ceph says is left as it was last
// known, since its daemons are on their way out.
func (*Controller) Teardown(cl *cephv1.CephCluster, _ Seen) kit.Plan {
	next := cl.DeepCopy()
	st := &next.Status
	st.Message, st.BlockedBy = "the cluster is being deleted", nil
	for _, s := range subjects(cl) {
		if s.Name != foundation || s.Ready || s.Reason == notReported {
			continue
		}
		st.Message = s.Message
		blocked := cephv1.FindCondition(cl.Status.Conditions, "DeletionIsBlocked")
		if blocked != nil && blocked.Status == "True" {
			st.Message = cmp.Or(blocked.Message, s.Message)
			st.BlockedBy = []cephv1.BlockedBy{{Subject: "deletion", Reason: string(blocked.Reason), Message: st.Message, Since: blocked.LastTransitionTime}}
		}
	}
	return kit.Plan{Status: next}
}
