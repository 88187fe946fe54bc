package v1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestObjectStoreNames(t *testing.T) {
	s := CephObjectStore{ObjectMeta: named("rook-ceph", "my-store")}
	if got := s.ServiceDomainName(); got != "rook-ceph-rgw-my-store.rook-ceph.svc" {
		t.Errorf("service %s", got)
	}
	metadata, data := PoolNames(s.ZoneName())
	want := []string{
		"my-store.rgw.control", "my-store.rgw.meta", "my-store.rgw.log", "my-store.rgw.buckets.index",
		"my-store.rgw.buckets.non-ec", "my-store.rgw.otp",
	}
	if diff := cmp.Diff(want, metadata); diff != "" {
		t.Errorf("metadata pools (-want +got):\n%s", diff)
	}
	if data != "my-store.rgw.buckets.data" {
		t.Errorf("data pool %s", data)
	}
	s.Spec.Zone.Name = "zone-west"
	if !s.Spec.IsMultisite() || s.ZoneName() != "zone-west" {
		t.Error("the zone of a store in multisite is the zone it names")
	}
}

func TestGateway(t *testing.T) {
	for _, tc := range []struct {
		title     string
		g         GatewaySpec
		port      int32
		tls       bool
		instances int32
	}{
		{"nothing", GatewaySpec{}, 80, false, 1},
		{"scaled to nothing", GatewaySpec{Instances: new(int32(0)), Port: 8080}, 8080, false, 0},
		{"HTTPS alone", GatewaySpec{SecurePort: 443, SSLCertificateRef: "cert"}, 0, true, 1},
		{"HTTPS without a certificate", GatewaySpec{SecurePort: 443}, 0, false, 1},
		{"a certificate of the Service", GatewaySpec{Port: 80, SecurePort: 443, Service: &RGWServiceSpec{Annotations: Annotations{servingCertAnnotation: "cert"}}}, 80, true, 1},
	} {
		if got := tc.g.EffectivePort(); got != tc.port {
			t.Errorf("%s: port %d, want %d", tc.title, got, tc.port)
		}
		if got := tc.g.HasTLS(); got != tc.tls {
			t.Errorf("%s: TLS %v, want %v", tc.title, got, tc.tls)
		}
		if got := tc.g.EffectiveInstances(); got != tc.instances {
			t.Errorf("%s: %d gateways, want %d", tc.title, got, tc.instances)
		}
	}
	host := &NetworkSpec{Provider: NetworkProviderHost}
	if !(&GatewaySpec{}).IsHost(host) || (&GatewaySpec{HostNetwork: new(false)}).IsHost(host) {
		t.Error("a gateway's own wish goes before the cluster's network")
	}
}

func TestDefaultPlacement(t *testing.T) {
	a := PoolPlacementSpec{Name: "a", MetadataPoolName: "m", DataPoolName: "d"}
	named := PoolPlacementSpec{Name: "default", MetadataPoolName: "m", DataPoolName: "d"}
	marked := PoolPlacementSpec{Name: "b", Default: true, MetadataPoolName: "m", DataPoolName: "d"}
	for _, tc := range []struct {
		title string
		pools ObjectSharedPoolsSpec
		want  string
		ok    bool
	}{
		{"none", ObjectSharedPoolsSpec{}, "", false},
		{"only others", ObjectSharedPoolsSpec{PoolPlacements: []PoolPlacementSpec{a}}, "", false},
		{"by name", ObjectSharedPoolsSpec{PoolPlacements: []PoolPlacementSpec{a, named}}, "default", true},
		{"by mark", ObjectSharedPoolsSpec{PoolPlacements: []PoolPlacementSpec{named, marked}}, "b", true},
		{"the pair", ObjectSharedPoolsSpec{MetadataPoolName: "m", DataPoolName: "d", PoolPlacements: []PoolPlacementSpec{a}}, "default", true},
		{"half a pair", ObjectSharedPoolsSpec{MetadataPoolName: "m"}, "", false},
	} {
		if got, ok := tc.pools.DefaultPlacement(); got.Name != tc.want || ok != tc.ok {
			t.Errorf("%s: %q %v, want %q %v", tc.title, got.Name, ok, tc.want, tc.ok)
		}
	}
}

func TestS3Enabled(t *testing.T) {
	for _, tc := range []struct {
		p    ProtocolSpec
		want bool
	}{
		{ProtocolSpec{}, true},
		{ProtocolSpec{S3: &S3Spec{}}, true},
		{ProtocolSpec{S3: &S3Spec{Enabled: new(false)}}, false},
		{ProtocolSpec{EnableAPIs: []ObjectStoreAPI{"swift", "s3"}, S3: &S3Spec{Enabled: new(false)}}, true},
		{ProtocolSpec{EnableAPIs: []ObjectStoreAPI{"swift"}}, false},
	} {
		if got := tc.p.IsS3Enabled(); got != tc.want {
			t.Errorf("%+v: %v", tc.p, got)
		}
	}
}

func TestPoolSpec(t *testing.T) {
	replicated := PoolSpec{Replicated: ReplicatedSpec{Size: 3}}
	coded := PoolSpec{ErasureCoded: ErasureCodedSpec{DataChunks: 2, CodingChunks: 1}, FailureDomain: "rack"}
	if !replicated.IsReplicated() || replicated.IsErasureCoded() || replicated.IsEmpty() || replicated.EffectiveFailureDomain() != "host" {
		t.Error("a replicated pool")
	}
	if coded.IsReplicated() || !coded.IsErasureCoded() || coded.IsEmpty() || coded.EffectiveFailureDomain() != "rack" {
		t.Error("an erasure coded pool")
	}
	if !(&PoolSpec{}).IsEmpty() {
		t.Error("a pool of nothing")
	}
	if (&ReplicatedSpec{}).EffectiveSubFailureDomain() != "host" || (&ReplicatedSpec{SubFailureDomain: "rack"}).EffectiveSubFailureDomain() != "rack" {
		t.Error("the domain within a domain")
	}
}
