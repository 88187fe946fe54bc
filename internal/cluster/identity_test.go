package cluster

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/cleanup"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/release"
)

const (
	oneFSID   = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"
	otherFSID = "aaaaaaaa-5c80-4051-8f99-2b3d36e8fb05"
)

// ran is a CephCluster that has run with an fsid.
func ran(fsid string) *cephv1.CephCluster {
	cl := &cephv1.CephCluster{}
	cl.Namespace, cl.Name = "rook-ceph", "rook-ceph"
	cl.Spec.CleanupPolicy.Confirmation = cephv1.DeleteDataDirOnHostsConfirmation
	if fsid != "" {
		cl.Status.CephStatus = &cephv1.CephStatus{FSID: fsid}
	}
	return cl
}

// The Secret says whose disks are wiped. Where that of another cluster was restored into
// the namespace, that other one's disks on the same hosts would be.
func TestNothingIsCleanedByTheIdentityOfAnotherCluster(t *testing.T) {
	hosts := cleanup.Hosts{"n1": {Name: "n1", Node: "n1", Mons: []string{"a"}}}
	for name, c := range map[string]struct {
		ran, secret, stored string
		blocked             bool
	}{
		"its own":                       {oneFSID, oneFSID, oneFSID, false},
		"never seen to run":             {"", oneFSID, oneFSID, false},
		"the Secret is gone":            {oneFSID, "", oneFSID, false},
		"another one's":                 {oneFSID, otherFSID, "", true},
		"another one's, stored already": {oneFSID, otherFSID, otherFSID, true},
		"changed while it is cleaned":   {"", otherFSID, oneFSID, true},
	} {
		t.Run(name, func(t *testing.T) {
			fsid := c.secret
			if fsid == "" {
				fsid = c.stored
			}
			seen := Seen{Cluster: podspec.Cluster{Namespace: "rook-ceph", FSID: fsid, CephImage: "ceph"}, Leaving: &Leaving{Listed: c.stored != "", Stored: hosts, Found: hosts, StoredFSID: c.stored}}
			p := destroy(ran(c.ran), seen)
			if got := p.Wait != nil && p.Wait.Reason == "IdentityMismatch"; got != c.blocked {
				t.Errorf("%s", p)
			}
			if c.blocked && (len(p.Apply)+len(p.Do)+len(p.Create)+len(p.Delete) > 0 || !p.Wait.Blocked || !strings.Contains(p.Wait.Message, otherFSID)) {
				t.Errorf("%s", p)
			}
		})
	}
}

// A CephCluster that is made again at once finds the Secret of the one before, which goes
// with that one. With it the new one would begin, and then be without an identity.
func TestNothingIsMadeFromASecretThatGoesWithAnotherCephCluster(t *testing.T) {
	for name, c := range map[string]struct {
		owners []types.UID
		waits  bool
	}{
		"its own": {[]types.UID{"now"}, false}, "nobody's, as restored": {nil, false}, "of the one before": {[]types.UID{"before"}, true}, "of both": {[]types.UID{"before", "now"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := ran("")
			cl.UID, cl.Spec.CleanupPolicy.Confirmation = "now", ""
			cl.Spec.DataDirHostPath, cl.Spec.CephVersion.Image = "/var/lib/rook", "quay.io/ceph/ceph:v20.2.4"
			p := (&Controller{}).Plan(cl, Seen{Stored: access.Cluster{Founded: true, Owners: c.owners, Identity: identity.Identity{FSID: oneFSID}}})
			if got := p.Wait != nil && p.Wait.Reason == "EarlierClusterLeaving"; got != c.waits || c.waits && len(p.Create)+len(p.Apply)+len(p.Do)+len(p.Delete) > 0 {
				t.Errorf("%s", p)
			}
		})
	}
}

// The keys of another cluster are not handed to the daemons of this one.
func TestTheKeysOfAnotherClusterAreNotHandedOut(t *testing.T) {
	for name, c := range map[string]struct {
		ran     string
		blocked bool
	}{"its own": {oneFSID, false}, "another one's": {otherFSID, true}, "never seen to run": {"", false}} {
		t.Run(name, func(t *testing.T) {
			seen := Seen{Stored: access.Cluster{Founded: true, Identity: identity.Identity{FSID: oneFSID, Mon: ceph.NewSecret("m"), User: identity.AdminUser, Key: ceph.NewSecret("k")}}}
			p := kit.Plan{}
			found(ran(c.ran), seen, release.Version{}, &p)
			if got := p.Wait != nil && p.Wait.Reason == "IdentityMismatch"; got != c.blocked || (len(p.Apply) == 0) != c.blocked {
				t.Errorf("%s", p)
			}
		})
	}
}
