package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestFilesystemPoolNames(t *testing.T) {
	for _, tc := range []struct {
		title        string
		preserve     bool
		metadataName string
		dataNames    []string
		wantMetadata string
		wantData     []string
		wantHasPools bool
	}{
		{
			title:        "without names the place in the list counts",
			dataNames:    []string{"", ""},
			wantMetadata: "myfs-metadata",
			wantData:     []string{"myfs-data0", "myfs-data1"},
			wantHasPools: true,
		},
		{
			title:        "a named pool between others does not shift their numbers",
			dataNames:    []string{"", "ec", ""},
			wantMetadata: "myfs-metadata",
			wantData:     []string{"myfs-data0", "myfs-ec", "myfs-data2"},
			wantHasPools: true,
		},
		{
			title:        "preserved names stand as they are, and only given ones",
			preserve:     true,
			metadataName: "cephfs.old.meta",
			dataNames:    []string{"cephfs.old.data", ""},
			wantMetadata: "cephfs.old.meta",
			wantData:     []string{"cephfs.old.data", "myfs-data1"},
			wantHasPools: true,
		},
		{
			title:        "the metadata pool's name counts only when preserved",
			metadataName: "meta",
			dataNames:    []string{"replicated"},
			wantMetadata: "myfs-metadata",
			wantData:     []string{"myfs-replicated"},
			wantHasPools: true,
		},
		{
			title:        "no pools: the filesystem exists already",
			wantMetadata: "myfs-metadata",
			wantData:     []string{},
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			f := CephFilesystem{ObjectMeta: named("rook-ceph", "myfs")}
			f.Spec.PreservePoolNames = tc.preserve
			f.Spec.MetadataPool.Name = tc.metadataName
			for _, name := range tc.dataNames {
				f.Spec.DataPools = append(f.Spec.DataPools, NamedPoolSpec{Name: name})
			}
			if got := f.MetadataPoolName(); got != tc.wantMetadata {
				t.Errorf("MetadataPoolName = %q, want %q", got, tc.wantMetadata)
			}
			if diff := cmp.Diff(tc.wantData, f.DataPoolNames()); diff != "" {
				t.Errorf("DataPoolNames (-want +got):\n%s", diff)
			}
			if got := f.HasPools(); got != tc.wantHasPools {
				t.Errorf("HasPools = %v, want %v", got, tc.wantHasPools)
			}
		})
	}
}

func TestMDSCacheMemoryLimit(t *testing.T) {
	gib := int64(1) << 30
	list := func(memory string) corev1.ResourceList {
		if memory == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	factor := func(f float64) *float64 { return &f }
	for _, tc := range []struct {
		title          string
		limit, request string
		ofLimit, ofReq *float64
		want           int64
	}{
		{title: "neither: Ceph's default holds"},
		{title: "half of the limit", limit: "4Gi", want: 2 * gib},
		{title: "the limit goes before the request", limit: "4Gi", request: "1Gi", want: 2 * gib},
		{title: "four fifths of the request", request: "5Gi", want: 4 * gib},
		{title: "own share of the limit", limit: "4Gi", ofLimit: factor(0.25), want: gib},
		{title: "own share of the request", request: "4Gi", ofReq: factor(0.5), want: 2 * gib},
		{title: "a share of nothing is asked for", limit: "4Gi", ofLimit: factor(0)},
	} {
		t.Run(tc.title, func(t *testing.T) {
			s := MetadataServerSpec{
				Resources:                corev1.ResourceRequirements{Limits: list(tc.limit), Requests: list(tc.request)},
				CacheMemoryLimitFactor:   tc.ofLimit,
				CacheMemoryRequestFactor: tc.ofReq,
			}
			if got := s.CacheMemoryLimit(); got != tc.want {
				t.Errorf("CacheMemoryLimit = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestMDSDaemonCount(t *testing.T) {
	for _, standbyReplay := range []bool{false, true} {
		s := MetadataServerSpec{ActiveCount: 3, ActiveStandby: standbyReplay}
		if got := s.DaemonCount(); got != 6 {
			t.Errorf("DaemonCount with activeStandby %v = %d, want 6", standbyReplay, got)
		}
	}
}

func TestSubVolumeGroupNames(t *testing.T) {
	for _, tc := range []struct {
		title, object, name, id string
		want, clusterID         string
	}{
		{title: "name of the object", object: "csi", want: "csi", clusterID: "e1026845ad66577abae1d16671b464c8"},
		{title: "name of the spec", object: "myfs-csi", name: "csi", want: "csi", clusterID: "e1026845ad66577abae1d16671b464c8"},
		{title: "id of the spec", object: "csi", id: "mine", want: "csi", clusterID: "mine"},
	} {
		t.Run(tc.title, func(t *testing.T) {
			g := CephFilesystemSubVolumeGroup{
				ObjectMeta: named("rook-ceph", tc.object),
				Spec:       CephFilesystemSubVolumeGroupSpec{FilesystemName: "myfs", Name: tc.name, ClusterID: tc.id},
			}
			if got := g.GroupName(); got != tc.want {
				t.Errorf("GroupName = %q, want %q", got, tc.want)
			}
			if got := g.ClusterID(); got != tc.clusterID {
				t.Errorf("ClusterID = %q, want %q", got, tc.clusterID)
			}
		})
	}
}
