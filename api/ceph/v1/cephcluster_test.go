package v1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestSchemeHoldsEveryKind(t *testing.T) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{
		"CephCluster", "CephBlockPool", "CephBlockPoolRadosNamespace", "CephFilesystem", "CephFilesystemSubVolumeGroup",
		"CephFilesystemMirror", "CephRBDMirror", "CephNFS", "CephNVMeOFGateway", "CephClient", "CephObjectStore",
		"CephObjectRealm", "CephObjectZoneGroup", "CephObjectZone", "CephObjectStoreUser", "CephObjectStoreAccount",
		"CephBucketTopic", "CephBucketNotification", "CephCOSIDriver",
	} {
		if !s.Recognizes(SchemeGroupVersion.WithKind(kind)) || !s.Recognizes(SchemeGroupVersion.WithKind(kind+"List")) {
			t.Errorf("%s or its list is not in the scheme", kind)
		}
	}
}

func TestMonSpec(t *testing.T) {
	plain := MonSpec{Zones: []MonZoneSpec{{Name: "a"}, {Name: "b", VolumeClaimTemplate: &VolumeClaimTemplate{}}}}
	stretched := MonSpec{Count: 5, FailureDomainLabel: "other", Zones: []MonZoneSpec{{Name: "x"}}, StretchCluster: &StretchClusterSpec{
		FailureDomainLabel: "example.net/hall", Zones: []MonZoneSpec{{Name: "a"}, {Name: "c", Arbiter: true}, {Name: "b"}},
	}}
	for _, tc := range []struct {
		title string
		mon   MonSpec
		count int
		zones int
		label string
		tie   string
	}{
		{"nothing", MonSpec{}, 3, 0, corev1.LabelTopologyZone, ""},
		{"one", MonSpec{Count: 1}, 1, 0, corev1.LabelTopologyZone, ""},
		{"zones", plain, 3, 2, corev1.LabelTopologyZone, ""},
		{"stretched", stretched, 5, 3, "example.net/hall", "c"},
	} {
		if got := tc.mon.EffectiveCount(); got != tc.count {
			t.Errorf("%s: count %d, want %d", tc.title, got, tc.count)
		}
		if got := len(tc.mon.EffectiveZones()); got != tc.zones {
			t.Errorf("%s: %d zones, want %d", tc.title, got, tc.zones)
		}
		if got := tc.mon.EffectiveFailureDomainLabel(); got != tc.label {
			t.Errorf("%s: label %s, want %s", tc.title, got, tc.label)
		}
		if got := tc.mon.ArbiterZone(); got != tc.tie {
			t.Errorf("%s: arbiter %q, want %q", tc.title, got, tc.tie)
		}
	}
	own := &VolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	shared := &VolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	m := MonSpec{VolumeClaimTemplate: shared, Zones: []MonZoneSpec{{Name: "a", VolumeClaimTemplate: own}, {Name: "b"}}}
	if m.ClaimFor("a") != own || m.ClaimFor("b") != shared || m.ClaimFor("") != shared {
		t.Error("the claim of a zone goes before that of all mons, and only in that zone")
	}
	if (*VolumeClaimTemplate)(nil).ToPVC() != nil || own.ToPVC().Name != "own" {
		t.Error("ToPVC takes the metadata along, and nothing from nothing")
	}
}

func TestResolveNode(t *testing.T) {
	s := StorageScopeSpec{
		Selection: Selection{DeviceFilter: "^sd"},
		Config:    map[string]string{"databaseSizeMB": "1024", "deviceClass": "hdd"},
		Nodes: []Node{
			{Name: "a"},
			{Name: "b", Selection: Selection{Devices: []Device{{Name: "sdb", Config: map[string]string{"deviceClass": "ssd"}}}}, Config: map[string]string{"databaseSizeMB": "2048"}},
			{Name: "c", Selection: Selection{UseAllDevices: new(false)}},
		},
	}
	if n, ok := s.ResolveNode("a"); !ok || n.DeviceFilter != "^sd" || n.Config["databaseSizeMB"] != "1024" {
		t.Errorf("a node that says nothing takes the cluster's choice and settings, got %+v %v", n, ok)
	}
	n, ok := s.ResolveNode("b")
	if !ok || n.DeviceFilter != "" || len(n.Devices) != 1 {
		t.Errorf("a node's own choice goes first, got %+v %v", n, ok)
	}
	want := map[string]string{"databaseSizeMB": "2048", "deviceClass": "ssd"}
	if diff := cmp.Diff(want, n.ConfigFor(n.Devices[0])); diff != "" {
		t.Errorf("settings of a device (-want +got):\n%s", diff)
	}
	if n, ok := s.ResolveNode("c"); !ok || n.DeviceFilter != "" || n.GetUseAllDevices() {
		t.Errorf("a node that wants no device gets none, got %+v %v", n, ok)
	}
	if _, ok := s.ResolveNode("d"); ok {
		t.Error("a node that is not listed is not chosen")
	}
	s.UseAllNodes = true
	if n, ok := s.ResolveNode("b"); !ok || len(n.Devices) != 0 || n.DeviceFilter != "^sd" {
		t.Errorf("with useAllNodes the list of nodes says nothing, got %+v %v", n, ok)
	}
	if _, ok := s.Config["x"]; ok || len(s.Config) != 2 {
		t.Error("resolving changed the spec")
	}
	for d, want := range map[*Device]string{{Name: "sdb"}: "/dev/sdb", {Name: "/dev/sdb"}: "/dev/sdb", {Name: "a", FullPath: "/dev/disk/by-id/x"}: "/dev/disk/by-id/x", {}: ""} {
		if got := d.Path(); got != want {
			t.Errorf("%+v is at %q, want %q", d, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	if got := (&ClusterSpec{}).EffectiveOSDWait(); got != 10*time.Minute {
		t.Errorf("default wait %v", got)
	}
	if got := (&ClusterSpec{WaitTimeoutForHealthyOSDInMinutes: 5}).EffectiveOSDWait(); got != 5*time.Minute {
		t.Errorf("5 in the spec is %v, want 5 minutes", got)
	}
	if got := (DisruptionManagementSpec{OSDMaintenanceTimeout: 45}).EffectiveOSDMaintenanceTimeout(); got != 45*time.Minute {
		t.Errorf("45 in the spec is %v, want 45 minutes", got)
	}
	for timeout, want := range map[string]struct {
		d  time.Duration
		ok bool
	}{"": {time.Hour, true}, "0": {0, true}, "0s": {0, true}, "5m": {5 * time.Minute, true}, "soon": {time.Hour, false}, "-5m": {time.Hour, false}} {
		if d, ok := (HealthCheckSpec{Timeout: timeout}).EffectiveTimeout(time.Hour); d != want.d || ok != want.ok {
			t.Errorf("timeout %q gives %v %v, want %v", timeout, d, ok, want)
		}
	}
	if got := (HealthCheckSpec{Interval: &metav1.Duration{Duration: -1}}).EffectiveInterval(time.Minute); got != time.Minute {
		t.Errorf("a negative interval gives %v", got)
	}
}

func TestNetworkSpec(t *testing.T) {
	yes := func(c ConnectionsSpec) NetworkSpec { return NetworkSpec{Connections: &c} }
	for _, tc := range []struct {
		title                            string
		n                                NetworkSpec
		host, multus, msgr2, enc, compre bool
	}{
		{title: "default"},
		{title: "host", n: NetworkSpec{Provider: "host"}, host: true},
		{title: "host of old", n: NetworkSpec{HostNetwork: true}, host: true},
		{title: "host of old and multus", n: NetworkSpec{HostNetwork: true, Provider: "multus"}, multus: true},
		{title: "encrypted", n: yes(ConnectionsSpec{Encryption: &EncryptionSpec{Enabled: true}}), msgr2: true, enc: true},
		{title: "compressed", n: yes(ConnectionsSpec{Compression: &CompressionSpec{Enabled: true}}), msgr2: true, compre: true},
		{title: "msgr2", n: yes(ConnectionsSpec{RequireMsgr2: true}), msgr2: true},
		{title: "nothing of it", n: yes(ConnectionsSpec{Encryption: &EncryptionSpec{}})},
	} {
		got := []bool{tc.n.IsHost(), tc.n.IsMultus(), tc.n.RequiresMsgr2(), tc.n.IsEncrypted(), tc.n.IsCompressed()}
		if diff := cmp.Diff([]bool{tc.host, tc.multus, tc.msgr2, tc.enc, tc.compre}, got); diff != "" {
			t.Errorf("%s: host, multus, msgr2, encrypted, compressed (-want +got):\n%s", tc.title, diff)
		}
	}
	host := &NetworkSpec{Provider: "host"}
	if !(&MgrSpec{}).IsHost(host) || (&MgrSpec{HostNetwork: new(false)}).IsHost(host) || !(&MgrSpec{HostNetwork: new(true)}).IsHost(&NetworkSpec{}) {
		t.Error("a mgr's own wish goes before the cluster's network")
	}
}

func TestPerDaemon(t *testing.T) {
	p := PlacementSpec{
		KeyAll: {NodeAffinity: &corev1.NodeAffinity{}, Tolerations: []corev1.Toleration{{Key: "all"}}, TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1}}},
		KeyOSD: {PodAntiAffinity: &corev1.PodAntiAffinity{}, Tolerations: []corev1.Toleration{{Key: "osd"}}},
	}
	got := p.ForDaemon(KeyOSD)
	if got.NodeAffinity == nil || got.PodAntiAffinity == nil || len(got.Tolerations) != 2 || len(got.TopologySpreadConstraints) != 1 {
		t.Errorf("placement of OSDs is that of all with its own on top, got %+v", got)
	}
	if len(p[KeyAll].Tolerations) != 1 {
		t.Error("merging changed the spec")
	}
	l := LabelsSpec{KeyAll: {"a": "1", "b": "1"}, KeyMon: {"b": "2"}}
	if diff := cmp.Diff(Labels{"a": "1", "b": "2"}, l.ForDaemon(KeyMon)); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if l.ForDaemon(KeyOSD)["b"] != "1" || (LabelsSpec{}).ForDaemon(KeyMon) != nil {
		t.Error("without labels of its own a daemon has those of all")
	}
	c := PriorityClassNamesSpec{KeyAll: "low", KeyMon: "high"}
	if c.ForDaemon(KeyMon) != "high" || c.ForDaemon(KeyOSD) != "low" {
		t.Error("priority classes")
	}
	one, two := corev1.ResourceList{"cpu": resource.MustParse("1")}, corev1.ResourceList{"cpu": resource.MustParse("2")}
	r := ResourceSpec{"osd": {Limits: one}, "osd-nvme": {Limits: two}}
	for class, want := range map[string]corev1.ResourceList{"": one, "hdd": one, "nvme": two} {
		if diff := cmp.Diff(want, r.ForOSD(class).Limits); diff != "" {
			t.Errorf("resources of the class %q (-want +got):\n%s", class, diff)
		}
	}
}

func TestPorts(t *testing.T) {
	for d, want := range map[DashboardSpec]int{{}: 7000, {SSL: true}: 8443, {SSL: true, Port: 9}: 9} {
		if got := d.EffectivePort(); got != want {
			t.Errorf("%+v: port %d, want %d", d, got, want)
		}
	}
	m := MonitoringSpec{}
	if m.EffectivePort() != 9283 || m.EffectiveExternalPort() != 9283 || m.EffectiveExporterPort() != 9926 {
		t.Error("default ports of metrics")
	}
	m = MonitoringSpec{Port: 1, ExternalMgrPrometheusPort: 2, Exporter: &CephExporterSpec{Port: new(int32(3))}}
	if m.EffectivePort() != 1 || m.EffectiveExternalPort() != 2 || m.EffectiveExporterPort() != 3 {
		t.Error("chosen ports of metrics")
	}
	for in, want := range map[string]string{"": "daily", "1d": "daily", "24h": "daily", "1h": "hourly", "weekly": "weekly"} {
		if got := (LogCollectorSpec{Periodicity: in}).EffectivePeriodicity(); got != want {
			t.Errorf("periodicity %q is %q, want %q", in, got, want)
		}
	}
}

func TestConditions(t *testing.T) {
	at := func(s int64) metav1.Time { return metav1.NewTime(time.Unix(s, 0)) }
	var list []Condition
	first := Condition{Type: ConditionReady, Status: corev1.ConditionFalse, Reason: "A", LastHeartbeatTime: at(1), LastTransitionTime: at(1)}
	if !SetCondition(&list, first) || len(list) != 1 || IsConditionTrue(list, ConditionReady) {
		t.Fatalf("adding a condition: %+v", list)
	}
	if SetCondition(&list, Condition{Type: ConditionReady, Status: corev1.ConditionFalse, Reason: "A", LastHeartbeatTime: at(2), LastTransitionTime: at(2)}) {
		t.Error("a heartbeat alone is no change")
	}
	if !SetCondition(&list, Condition{Type: ConditionReady, Status: corev1.ConditionFalse, Reason: "B", LastTransitionTime: at(3)}) || !list[0].LastTransitionTime.Equal(new(at(1))) {
		t.Errorf("another reason is a change and no transition: %+v", list)
	}
	if !SetCondition(&list, Condition{Type: ConditionReady, Status: corev1.ConditionTrue, Reason: "B", LastTransitionTime: at(4)}) || !list[0].LastTransitionTime.Equal(new(at(4))) {
		t.Errorf("another status is a transition: %+v", list)
	}
	if !IsConditionTrue(list, ConditionReady) || FindCondition(list, ConditionDeleting) != nil || len(list) != 1 {
		t.Errorf("the list: %+v", list)
	}
}

func TestRotationWanted(t *testing.T) {
	for _, tc := range []struct {
		c    CephxConfig
		at   uint32
		want bool
	}{
		{CephxConfig{}, 0, false},
		{CephxConfig{KeyGeneration: 2}, 1, false},
		{CephxConfig{KeyRotationPolicy: "Disabled", KeyGeneration: 2}, 1, false},
		{CephxConfig{KeyRotationPolicy: "KeyGeneration", KeyGeneration: 2}, 1, true},
		{CephxConfig{KeyRotationPolicy: "KeyGeneration", KeyGeneration: 2}, 2, false},
		{CephxConfig{KeyRotationPolicy: "KeyGeneration", KeyGeneration: 2}, 3, false},
	} {
		if got := tc.c.RotationWanted(CephxStatus{KeyGeneration: tc.at}); got != tc.want {
			t.Errorf("%+v at generation %d: %v", tc.c, tc.at, got)
		}
	}
}
