package clusterconfig_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
)

// The bytes that ceph-csi-operator writes, as documented, for two profiles.
const (
	goldenMinimal = `[{"clusterID":"p1","monitors":["10.0.0.1:3300"],"cephFS":{"kernelMountOptions":"","fuseMountOptions":"","controllerPublishSecretRef":{}},"rbd":{"controllerPublishSecretRef":{},"nodePublishSecretRef":{}},"nfs":{},"nvmeof":{"controllerPublishSecretRef":{}},"readAffinity":{}}]`
	goldenRook    = `[{"clusterID":"rook-ceph","monitors":["10.0.0.1:3300","10.0.0.2:3300"],"cephFS":{"kernelMountOptions":"","fuseMountOptions":"","controllerPublishSecretRef":{"name":"rook-csi-cephfs-provisioner","namespace":"rook-ceph"}},"rbd":{"mirrorCount":1,"controllerPublishSecretRef":{"name":"rook-csi-rbd-provisioner","namespace":"rook-ceph"},"nodePublishSecretRef":{"name":"rook-csi-rbd-node","namespace":"rook-ceph"}},"nfs":{},"nvmeof":{"controllerPublishSecretRef":{}},"readAffinity":{"enabled":true,"crushLocationLabels":["kubernetes.io/hostname"]}}]`
)

// bothCounts adds the one key that we write beyond those bytes: drivers read the
// number of rbd-mirror daemons from mirrorDaemonCount only.
func bothCounts(golden string) string {
	return strings.ReplaceAll(golden, `"mirrorCount":1,`, `"mirrorCount":1,"mirrorDaemonCount":1,`)
}

func profile(name string) *csiv1.ClientProfile {
	return &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func connection(monitors ...string) *csiv1.CephConnection {
	return &csiv1.CephConnection{Spec: csiv1.CephConnectionSpec{Monitors: monitors}}
}

func replication(remote string, pools ...csiv1.PoolMappingSpec) *csiv1.ClientProfileReplication {
	r := &csiv1.ClientProfileReplication{}
	r.Spec.RemoteClientProfile = remote
	if pools != nil {
		r.Spec.RBD = &csiv1.RBDReplicationSpec{PoolMapping: pools}
	}
	return r
}

func TestBuild(t *testing.T) {
	secret := func(name string) corev1.SecretReference {
		return corev1.SecretReference{Name: name, Namespace: "rook-ceph"}
	}
	rook := profile("rook-ceph")
	rook.Spec.CephFs = &csiv1.CephFsConfigSpec{CephCsiSecrets: &csiv1.CephCsiSecretsSpec{ControllerPublishSecret: secret("rook-csi-cephfs-provisioner")}}
	rook.Spec.Rbd = &csiv1.RbdConfigSpec{CephCsiSecrets: &csiv1.CephCsiSecretsSpec{
		ControllerPublishSecret: secret("rook-csi-rbd-provisioner"), NodePublishSecret: secret("rook-csi-rbd-node")}}
	rookConn := connection("10.0.0.1:3300", "10.0.0.2:3300")
	rookConn.Spec.RbdMirrorDaemonCount = 1
	rookConn.Spec.ReadAffinity = &csiv1.ReadAffinitySpec{CrushLocationLabels: []string{"kubernetes.io/hostname"}}

	full := profile("full")
	full.Spec.CephFs = &csiv1.CephFsConfigSpec{
		SubVolumeGroup: "group", RadosNamespace: ptr.To("fsns"),
		KernelMountOptions: map[string]string{"recover_session": "clean", "noatime": "", "ms_mode": "secure"},
		FuseMountOptions:   map[string]string{"debug": "", "attr_timeout": "3"},
	}
	full.Spec.Rbd = &csiv1.RbdConfigSpec{RadosNamespace: ptr.To("rbdns")}
	full.Spec.Nvmeof = &csiv1.NvmeofConfigSpec{RadosNamespace: ptr.To("nvns"), CephCsiSecrets: &csiv1.CephCsiSecretsSpec{ControllerPublishSecret: secret("s")}}

	noRBD := connection("m")
	noRBD.Spec.RbdMirrorDaemonCount = 3

	for _, tt := range []struct {
		name        string
		profile     *csiv1.ClientProfile
		connection  *csiv1.CephConnection
		replication *csiv1.ClientProfileReplication
		want        string
	}{
		{name: "minimal", profile: profile("p1"), connection: connection("10.0.0.1:3300"), want: goldenMinimal},
		{name: "the default profile of Rook", profile: rook, connection: rookConn, want: bothCounts(goldenRook)},
		{name: "mirror count without rbd", profile: profile("p1"), connection: noRBD, want: strings.Replace(goldenMinimal, "10.0.0.1:3300", "m", 1)},
		{name: "every field", profile: full, connection: connection("m"),
			want: `[{"clusterID":"full","monitors":["m"],"cephFS":{"subvolumeGroup":"group","kernelMountOptions":"ms_mode=secure,noatime,recover_session=clean","fuseMountOptions":"attr_timeout=3,debug","radosNamespace":"fsns","controllerPublishSecretRef":{}},"rbd":{"radosNamespace":"rbdns","controllerPublishSecretRef":{},"nodePublishSecretRef":{}},"nfs":{},"nvmeof":{"radosNamespace":"nvns","controllerPublishSecretRef":{"name":"s","namespace":"rook-ceph"}},"readAffinity":{}}]`},
		{name: "replicated", profile: profile("p1"), connection: connection("10.0.0.1:3300"),
			replication: replication("secondary-cluster", csiv1.PoolMappingSpec{Name: "replicapool", RemoteID: "6"}, csiv1.PoolMappingSpec{Name: "rbd", RemoteID: "5"}),
			want:        strings.TrimSuffix(goldenMinimal, "}]") + `,"replicationDestination":{"remoteClusterID":"secondary-cluster","rbd":{"remotePoolMapping":{"rbd":{"poolID":"5"},"replicapool":{"poolID":"6"}}}}}]`},
		{name: "replicated with equal ids", profile: profile("p1"), connection: connection("10.0.0.1:3300"), replication: replication("secondary-cluster"),
			want: strings.TrimSuffix(goldenMinimal, "}]") + `,"replicationDestination":{"remoteClusterID":"secondary-cluster"}}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f clusterconfig.File
			record := clusterconfig.Build(tt.profile, tt.connection, tt.replication)
			if err := f.Set(record); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, f.String()); d != "" {
				t.Errorf("file (-want +got):\n%s", d)
			}
			back, err := clusterconfig.Parse(f.String())
			if err != nil {
				t.Fatal(err)
			}
			if !back.Holds(record) {
				t.Error("the file does not hold the record that was set")
			}
		})
	}
}

// TestForeign: what others wrote survives, whatever we do beside it.
func TestForeign(t *testing.T) {
	const hand = `{ "clusterID": "hand-made", "monitors": ["m"], "big": 12345678901234567890, "replicationDestination": {"remoteClusterID":"x","new":true} }`
	const odd = `{"note":"no cluster id"}`
	const old = `{"clusterID":"p1","future":{"a":1},"rbd":{"netNamespaceFilePath":"/ns","mirrorCount":7},"replicationDestination":{"remoteClusterID":"gone"}}`
	f, err := clusterconfig.Parse("[" + hand + ", " + old + ",\n" + odd + ", 7]")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Set(clusterconfig.Build(profile("p1"), connection("10.0.0.1:3300"), nil)); err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(strings.Trim(goldenMinimal, "[]"), `"nodePublishSecretRef":{}}`, `"nodePublishSecretRef":{},"netNamespaceFilePath":"/ns"}`, 1)
	own = strings.TrimSuffix(own, "}") + `,"future":{"a":1}}`
	if d := cmp.Diff("["+hand+","+own+","+odd+",7]", f.String()); d != "" {
		t.Errorf("after setting (-want +got):\n%s", d)
	}
	if !f.Holds(clusterconfig.Build(profile("p1"), connection("10.0.0.1:3300"), nil)) {
		t.Error("unknown keys make the record look different")
	}
	f.Remove("p1")
	if d := cmp.Diff("["+hand+","+odd+",7]", f.String()); d != "" {
		t.Errorf("after removing (-want +got):\n%s", d)
	}
	f.Remove("")
	if f.Len() != 3 {
		t.Errorf("removing nothing left %d records", f.Len())
	}
}

func TestOrderAndDuplicates(t *testing.T) {
	var f clusterconfig.File
	for _, name := range []string{"c", "a", "b"} {
		if err := f.Set(clusterconfig.Build(profile(name), connection("m"), nil)); err != nil {
			t.Fatal(err)
		}
	}
	f.Remove("a")
	if d := cmp.Diff([]string{"c", "b"}, f.IDs()); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
	f, err := clusterconfig.Parse(`[{"clusterID":"x"},{"clusterID":"y"},{"clusterID":"x"},{"clusterID":"z"}]`)
	if err != nil {
		t.Fatal(err)
	}
	before := f.Clone()
	if err := f.Set(clusterconfig.Build(profile("x"), connection("m"), nil)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"x", "y", "z"}, f.IDs()); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"x", "y", "x", "z"}, before.IDs()); d != "" {
		t.Errorf("the clone changed with the original (-want +got):\n%s", d)
	}
	if err := f.Set(clusterconfig.Record{}); err == nil {
		t.Error("a record without cluster id was accepted")
	}
}

func TestDiffering(t *testing.T) {
	parse := func(text string) clusterconfig.File {
		f, err := clusterconfig.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a := parse(`[{"clusterID":"same"},{"clusterID":"changed","x":1},{"clusterID":"gone"},{"clusterID":"same","later":1},7]`)
	b := parse(`[{"clusterID":"new"},{"clusterID":"changed","x":2},{"clusterID":"same"},8]`)
	got := clusterconfig.Differing(a, b)
	slices.Sort(got)
	if d := cmp.Diff([]string{"changed", "gone", "new"}, got); d != "" {
		t.Errorf("differing (-want +got):\n%s", d)
	}
	if got := clusterconfig.Differing(a, a); len(got) > 0 {
		t.Errorf("a file differs from itself: %v", got)
	}
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{"{", "{}", `[{"clusterID":"a"}`, "null garbage", `"text"`} {
		if _, err := clusterconfig.Parse(text); !errors.Is(err, clusterconfig.ErrBroken) {
			t.Errorf("%q: got %v, want ErrBroken", text, err)
		}
	}
	for _, text := range []string{"", " \n", "[]", "null"} {
		f, err := clusterconfig.Parse(text)
		if err != nil || f.Len() != 0 || f.String() != "[]" {
			t.Errorf("%q: got %v %v", text, f, err)
		}
	}
	f, err := clusterconfig.Parse(`[{"clusterID":"a","monitors":7}]`)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Get("a"); !errors.Is(err, clusterconfig.ErrBroken) {
		t.Errorf("a record of wrong types: got %v, want ErrBroken", err)
	}
}

func mapping(name string, specs ...csiv1.MappingsSpec) csiv1.ClientProfileMapping {
	return csiv1.ClientProfileMapping{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: csiv1.ClientProfileMappingSpec{Mappings: specs}}
}

func pair(local, remote string, pools ...csiv1.BlockPoolIDPair) csiv1.MappingsSpec {
	return csiv1.MappingsSpec{LocalClientProfile: local, RemoteClientProfile: remote, BlockPoolIdMapping: pools}
}

func TestMappings(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []csiv1.ClientProfileMapping
		want string
		bad  []clusterconfig.Contradiction
	}{
		{name: "none", want: `[]`},
		{name: "documented", in: []csiv1.ClientProfileMapping{mapping("m", pair("l", "r", csiv1.BlockPoolIDPair{"1", "2"}, csiv1.BlockPoolIDPair{"3", "4"}))},
			want: `[{"clusterIdMapping":{"l":"r"},"RBDPoolIDMapping":[{"1":"2"},{"3":"4"}]}]`},
		{name: "no pools", in: []csiv1.ClientProfileMapping{mapping("m", pair("l", "r"))}, want: `[{"clusterIdMapping":{"l":"r"}}]`},
		{name: "several objects, in the order of names", in: []csiv1.ClientProfileMapping{
			mapping("z", pair("l", "r", csiv1.BlockPoolIDPair{"5", "6"}, csiv1.BlockPoolIDPair{"1", "2"}), pair("r", "l")),
			mapping("a", pair("l", "r", csiv1.BlockPoolIDPair{"1", "2"}))},
			want: `[{"clusterIdMapping":{"l":"r"},"RBDPoolIDMapping":[{"1":"2"},{"5":"6"}]},{"clusterIdMapping":{"r":"l"}}]`},
		{name: "contradiction", in: []csiv1.ClientProfileMapping{
			mapping("a", pair("l", "r", csiv1.BlockPoolIDPair{"1", "2"})), mapping("b", pair("l", "r", csiv1.BlockPoolIDPair{"1", "3"}))},
			want: `[{"clusterIdMapping":{"l":"r"},"RBDPoolIDMapping":[{"1":"2"},{"1":"3"}]}]`,
			bad: []clusterconfig.Contradiction{{Objects: []string{"a", "b"},
				Text: "between profiles 'l' and 'r' pool pair [1, 3] contradicts [1, 2]"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			records, bad := clusterconfig.BuildMappings(tt.in)
			got, err := clusterconfig.EncodeMappings(records)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("file (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.bad, bad); d != "" {
				t.Errorf("contradictions (-want +got):\n%s", d)
			}
			back, err := clusterconfig.ParseMappings(got)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(records, back); d != "" {
				t.Errorf("read again (-want +got):\n%s", d)
			}
		})
	}
	if _, err := clusterconfig.ParseMappings("{"); !errors.Is(err, clusterconfig.ErrBroken) {
		t.Errorf("got %v, want ErrBroken", err)
	}
	// Hand-written files spell the key as the drivers' source does.
	m, err := clusterconfig.ParseMappings(`[{"clusterIDMapping":{"a":"d"},"RBDPoolIDMapping":[{"1":"3"}]}]`)
	if err != nil || len(m) != 1 || m[0].ClusterIDMapping["a"] != "d" {
		t.Errorf("got %v %v", m, err)
	}
}

// FuzzFile: no file panics, and setting and removing a record leaves everything
// else as it was.
func FuzzFile(f *testing.F) {
	f.Add(goldenRook)
	f.Add(`[{"clusterID":"p1","x":1},{"clusterID":"q","clusterID":"p1"}]`)
	f.Add(`[1,null,"x",{"rbd":[]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := clusterconfig.Parse(text)
		if err != nil {
			return
		}
		others := file.Clone()
		others.Remove("p1")
		record := clusterconfig.Build(profile("p1"), connection("m"), replication("r"))
		if err := file.Set(record); err != nil {
			t.Fatalf("setting: %v", err)
		}
		again, err := clusterconfig.Parse(file.String())
		if err != nil {
			t.Fatalf("reading what was written: %v", err)
		}
		if got, ok, err := again.Get("p1"); err != nil || !ok || got.ReplicationDestination == nil || got.ReplicationDestination.RemoteClusterID != "r" {
			t.Fatalf("the record is not there: %v %v %+v", ok, err, got)
		}
		file.Remove("p1")
		if d := cmp.Diff(others.String(), file.String()); d != "" {
			t.Errorf("others changed (-before +after):\n%s", d)
		}
	})
}
