package layout_test

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/layout"
)

var update = flag.Bool("update", false, "write the golden files")

func types() []csiv1.DriverType {
	return []csiv1.DriverType{csiv1.RBDDriver, csiv1.CephFSDriver, csiv1.NFSDriver, csiv1.NVMeoFDriver}
}

func need(cpu, memory string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

// option is one thing that a user may ask for.
type option struct {
	name   string
	spec   func(*csiv1.DriverSpec)
	input  func(*layout.Input)
	images map[string]string
}

func options() []option {
	node := func(s *csiv1.DriverSpec) *csiv1.NodePluginSpec {
		if s.NodePlugin == nil {
			s.NodePlugin = &csiv1.NodePluginSpec{}
		}
		return s.NodePlugin
	}
	ctrl := func(s *csiv1.DriverSpec) *csiv1.ControllerPluginSpec {
		if s.ControllerPlugin == nil {
			s.ControllerPlugin = &csiv1.ControllerPluginSpec{}
		}
		return s.ControllerPlugin
	}
	return []option{
		{name: "base"},
		{name: "liveness", spec: func(s *csiv1.DriverSpec) { s.Liveness = &csiv1.LivenessSpec{MetricsPort: 9080} }},
		{name: "csi-addons", spec: func(s *csiv1.DriverSpec) { s.DeployCsiAddons = ptr.To(true) }},
		{name: "volume-condition", spec: func(s *csiv1.DriverSpec) { s.DeployCsiAddons = ptr.To(true) }, input: func(in *layout.Input) { in.VolumeCondition = true }},
		{name: "log-rotation", spec: func(s *csiv1.DriverSpec) {
			s.DeployCsiAddons = ptr.To(true)
			s.Log = &csiv1.LogSpec{Verbosity: 4, Rotation: &csiv1.LogRotationSpec{Periodicity: "daily", MaxLogSize: ptr.To(resource.MustParse("500Mi")), MaxFiles: 5}}
			ctrl(s).Privileged = ptr.To(true)
		}},
		{name: "topology", spec: func(s *csiv1.DriverSpec) {
			node(s).Topology = &csiv1.TopologySpec{DomainLabels: []string{"topology.kubernetes.io/zone", "example.com/rack"}}
		}},
		{name: "fencing", spec: func(s *csiv1.DriverSpec) { s.EnableFencing = ptr.To(true) }},
		{name: "host-network", spec: func(s *csiv1.DriverSpec) {
			ctrl(s).HostNetwork = ptr.To(true)
			s.Liveness = &csiv1.LivenessSpec{MetricsPort: 9080}
		}},
		{name: "selinux", spec: func(s *csiv1.DriverSpec) { node(s).EnableSeLinuxHostMount = ptr.To(true) }},
		{name: "mount-options", spec: func(s *csiv1.DriverSpec) {
			s.CephFsClientType = csiv1.KernelCephFsClient
			s.KernelMountOptions = map[string]string{"recover_session": "clean", "noatime": "", "ms_mode": "secure"}
			s.FuseMountOptions = map[string]string{"debug": "", "attr_timeout": "3"}
		}},
		{name: "image-sets", images: map[string]string{"plugin": "registry.example/cephcsi:1", "ex-snapshotter": "registry.example/ex:1", "addons": ""}},
		{name: "resources", spec: func(s *csiv1.DriverSpec) {
			s.DeployCsiAddons, s.GenerateOMapInfo = ptr.To(true), ptr.To(true)
			s.Liveness = &csiv1.LivenessSpec{MetricsPort: 9080}
			s.Log = &csiv1.LogSpec{Rotation: &csiv1.LogRotationSpec{Periodicity: "weekly"}}
			node(s).Resources = csiv1.NodePluginResourcesSpec{Registrar: need("1m", "1Mi"), Liveness: need("2m", "2Mi"), Addons: need("3m", "3Mi"),
				LogRotator: need("4m", "4Mi"), Plugin: need("5m", "5Mi")}
			ctrl(s).Resources = csiv1.ControllerPluginResourcesSpec{Attacher: need("1m", "1Mi"), Snapshotter: need("2m", "2Mi"), Resizer: need("3m", "3Mi"),
				Provisioner: need("4m", "4Mi"), OMapGenerator: need("5m", "5Mi"), Liveness: need("6m", "6Mi"), Addons: need("7m", "7Mi"),
				LogRotator: need("8m", "8Mi"), Plugin: need("9m", "9Mi")}
		}},
		{name: "snapshot-metadata-tls", spec: func(s *csiv1.DriverSpec) {
			ctrl(s).Volumes = []csiv1.VolumeSpec{{
				Volume: corev1.Volume{Name: "tls-key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "csi-snapshot-metadata-certs"}}},
				Mount:  corev1.VolumeMount{Name: "tls-key", MountPath: "/tmp/certificates", ReadOnly: true},
			}}
		}},
		{name: "snapshots-none", spec: func(s *csiv1.DriverSpec) { s.SnapshotPolicy = csiv1.NoneSnapshotPolicy }},
		{name: "snapshots-group", spec: func(s *csiv1.DriverSpec) { s.SnapshotPolicy = csiv1.VolumeGroupSnapshotPolicy }},
		{name: "kms", spec: func(s *csiv1.DriverSpec) {
			s.Encryption = &csiv1.EncryptionSpec{ConfigMapName: corev1.LocalObjectReference{Name: "kms"}}
		}},
		{name: "pods", spec: func(s *csiv1.DriverSpec) {
			s.ClusterName, s.GenerateOMapInfo, s.GRpcTimeout = ptr.To("east"), ptr.To(true), 30
			s.AttachRequired, s.FsGroupPolicy = ptr.To(false), storagev1.NoneFSGroupPolicy
			s.LeaderElection = &csiv1.LeaderElectionSpec{LeaseDuration: 60, RenewDeadline: 40, RetryPeriod: 10}
			common := csiv1.PodCommonSpec{
				ServiceAccountName: ptr.To("own-sa"), PriorityClassName: ptr.To("high"),
				Labels: map[string]string{"team": "storage", "app": "not-this"}, Annotations: map[string]string{"note": "x"},
				Affinity:        &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "storage", Operator: corev1.NodeSelectorOpExists}}}}}}},
				Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				ImagePullPolicy: corev1.PullAlways,
				Volumes: []csiv1.VolumeSpec{
					{Volume: corev1.Volume{Name: "host-run-mount", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/elsewhere"}}}},
					{Volume: corev1.Volume{Name: "extra", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, Mount: corev1.VolumeMount{Name: "extra", MountPath: "/extra"}},
				},
				ContainerExtraArgs: map[string][]string{"csi-provisioner": {"--kube-api-qps=50"}, "driver-registrar": {"--extra"}},
			}
			*node(s) = csiv1.NodePluginSpec{PodCommonSpec: common, KubeletDirPath: "/opt/kubelet/",
				UpdateStrategy: &appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}}
			*ctrl(s) = csiv1.ControllerPluginSpec{PodCommonSpec: common, Replicas: ptr.To[int32](3),
				DeploymentStrategy: &appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(0))}}}
		}},
	}
}

func input(kind csiv1.DriverType, o option) layout.Input {
	var spec csiv1.DriverSpec
	if o.spec != nil {
		o.spec(&spec)
	}
	in := layout.Input{
		Name: "rook-ceph." + string(kind) + ".csi.ceph.com", Namespace: "rook-ceph",
		Owner: metav1.OwnerReference{APIVersion: "csi.ceph.io/v1", Kind: "Driver", Name: "rook-ceph." + string(kind) + ".csi.ceph.com", UID: "u-1", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)},
		Spec:  layout.Merge(spec, nil), Images: layout.Overlay(o.images), Nodes: 3,
		ServiceAccountPrefix: "ceph-csi-operator-", OperatorImage: "registry.example/castellan:1",
	}
	if o.input != nil {
		o.input(&in)
	}
	return in
}

// render gives every object by file name part, as YAML.
func render(t *testing.T, o *layout.Objects) map[string]string {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, storagev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	v := reflect.ValueOf(*o)
	for i := range v.NumField() {
		obj, ok := v.Field(i).Interface().(runtime.Object)
		if !ok || v.Field(i).IsNil() {
			continue
		}
		obj = obj.DeepCopyObject()
		gvk, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			t.Fatal(err)
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		raw, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		out[v.Type().Field(i).Name] = string(raw)
	}
	return out
}

// TestGolden compares what is built for each driver type and option with files. A
// file of an option holds only the objects that differ from those of "base", and
// names those that are not there any more.
func TestGolden(t *testing.T) {
	for _, kind := range types() {
		base := map[string]string{}
		for _, opt := range options() {
			t.Run(string(kind)+"/"+opt.name, func(t *testing.T) {
				objects, err := layout.Build(input(kind, opt))
				if err != nil {
					t.Fatal(err)
				}
				all := render(t, objects)
				if opt.name == "base" {
					base = all
				}
				var b bytes.Buffer
				for _, name := range slices.Sorted(maps.Keys(all)) {
					if opt.name == "base" || all[name] != base[name] {
						b.WriteString("--- # " + name + "\n" + all[name])
					}
				}
				for _, name := range slices.Sorted(maps.Keys(base)) {
					if _, there := all[name]; !there {
						b.WriteString("--- # " + name + " is not made\n")
					}
				}
				for _, w := range objects.Warnings {
					b.WriteString("--- # warning: " + w + "\n")
				}
				if b.Len() == 0 {
					b.WriteString("# as base\n")
				}
				compare(t, filepath.Join("testdata", string(kind), opt.name+".yaml"), b.String())
			})
		}
	}
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", file, d)
	}
}

// TestDeterministic builds everything often: maps must not decide an order.
func TestDeterministic(t *testing.T) {
	for _, kind := range types() {
		for _, opt := range options() {
			first, err := layout.Build(input(kind, opt))
			if err != nil {
				t.Fatal(err)
			}
			want := render(t, first)
			for range 5 {
				again, err := layout.Build(input(kind, opt))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, render(t, again)); d != "" {
					t.Fatalf("%s/%s differs from one time to the next:\n%s", kind, opt.name, d)
				}
			}
		}
	}
}

// TestPodsAreSound holds what is true of every pod, whatever the options: no
// shell, no mount without a volume, no name twice, selectors that select.
func TestPodsAreSound(t *testing.T) {
	for _, kind := range types() {
		for _, opt := range options() {
			o, err := layout.Build(input(kind, opt))
			if err != nil {
				t.Fatal(err)
			}
			check := func(name string, s *metav1.LabelSelector, p corev1.PodTemplateSpec) {
				at := string(kind) + "/" + opt.name + "/" + name
				for k, v := range s.MatchLabels {
					if p.Labels[k] != v || len(v) > 63 {
						t.Errorf("%s: selector %s=%s, label %q", at, k, v, p.Labels[k])
					}
				}
				volumes := map[string]bool{}
				for _, v := range p.Spec.Volumes {
					if volumes[v.Name] {
						t.Errorf("%s: volume %s twice", at, v.Name)
					}
					volumes[v.Name] = true
				}
				names := map[string]bool{}
				for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
					if names[c.Name] || c.Image == "" {
						t.Errorf("%s: container %s twice or without an image", at, c.Name)
					}
					names[c.Name] = true
					for _, word := range slices.Concat(c.Command, c.Args) {
						if strings.Contains(word, "bash") || strings.HasSuffix(word, "/sh") || word == "-c" || word == "" {
							t.Errorf("%s: container %s runs %q", at, c.Name, word)
						}
					}
					paths := map[string]bool{}
					for _, m := range c.VolumeMounts {
						if !volumes[m.Name] || paths[m.MountPath] {
							t.Errorf("%s: container %s mounts %s at %s", at, c.Name, m.Name, m.MountPath)
						}
						paths[m.MountPath] = true
					}
				}
			}
			check("controller", o.Deployment.Spec.Selector, o.Deployment.Spec.Template)
			check("node", o.DaemonSet.Spec.Selector, o.DaemonSet.Spec.Template)
			if o.AddonsDaemonSet != nil {
				check("addons", o.AddonsDaemonSet.Spec.Selector, o.AddonsDaemonSet.Spec.Template)
			}
			if o.Liveness != nil {
				for k, v := range o.Liveness.Spec.Selector {
					if o.DaemonSet.Spec.Template.Labels[k] != v {
						t.Errorf("%s/%s: the metrics service selects nothing", kind, opt.name)
					}
				}
			}
		}
	}
}

// TestMerge: each field comes from the Driver, else from the defaults, else it is
// built in. It goes through all fields, so that a new one cannot be forgotten.
func TestMerge(t *testing.T) {
	full := func(tag string, n int) csiv1.DriverSpec {
		r := need("1m", "1Mi")
		r.Limits[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		common := csiv1.PodCommonSpec{
			ServiceAccountName: ptr.To(tag), PriorityClassName: ptr.To(tag), Labels: map[string]string{tag: tag}, Annotations: map[string]string{tag: tag},
			Affinity: &corev1.Affinity{}, Tolerations: []corev1.Toleration{{Key: tag}}, Volumes: []csiv1.VolumeSpec{{Volume: corev1.Volume{Name: tag}}},
			ImagePullPolicy: corev1.PullPolicy(tag), ContainerExtraArgs: map[string][]string{tag: {tag}},
		}
		return csiv1.DriverSpec{
			Log:         &csiv1.LogSpec{Verbosity: n, Rotation: &csiv1.LogRotationSpec{MaxFiles: n, MaxLogSize: resource.NewQuantity(int64(n), resource.DecimalSI), Periodicity: csiv1.PeriodicityType(tag), LogHostPath: tag}},
			ClusterName: ptr.To(tag), GRpcTimeout: n, SnapshotPolicy: csiv1.SnapshotPolicyType(tag), GenerateOMapInfo: ptr.To(n == 1), EnableFencing: ptr.To(n == 1),
			FsGroupPolicy: storagev1.FSGroupPolicy(tag), Encryption: &csiv1.EncryptionSpec{ConfigMapName: corev1.LocalObjectReference{Name: tag}},
			AttachRequired: ptr.To(n == 1), Liveness: &csiv1.LivenessSpec{MetricsPort: n}, DeployCsiAddons: ptr.To(n == 1),
			LeaderElection:   &csiv1.LeaderElectionSpec{LeaseDuration: n, RenewDeadline: n, RetryPeriod: n},
			CephFsClientType: csiv1.CephFsClientType(tag), KernelMountOptions: map[string]string{tag: tag}, FuseMountOptions: map[string]string{tag: tag},
			NodePlugin: &csiv1.NodePluginSpec{PodCommonSpec: common, UpdateStrategy: &appsv1.DaemonSetUpdateStrategy{Type: appsv1.DaemonSetUpdateStrategyType(tag)},
				Resources:      csiv1.NodePluginResourcesSpec{Registrar: r, Liveness: r, Addons: r, LogRotator: r, Plugin: r},
				KubeletDirPath: tag, EnableSeLinuxHostMount: ptr.To(n == 1), Topology: &csiv1.TopologySpec{DomainLabels: []string{tag}}},
			ControllerPlugin: &csiv1.ControllerPluginSpec{PodCommonSpec: common, DeploymentStrategy: &appsv1.DeploymentStrategy{Type: appsv1.DeploymentStrategyType(tag)},
				Replicas:   ptr.To(int32(n)),
				Resources:  csiv1.ControllerPluginResourcesSpec{Attacher: r, Snapshotter: r, Resizer: r, Provisioner: r, OMapGenerator: r, Liveness: r, Addons: r, LogRotator: r, Plugin: r},
				Privileged: ptr.To(n == 1), HostNetwork: ptr.To(n == 1)},
		}
	}
	driver, defaults := full("driver", 1), full("defaults", 2)
	if d := cmp.Diff(driver, layout.Merge(driver, &defaults)); d != "" {
		t.Errorf("a full Driver keeps all of its own (-want +got):\n%s", d)
	}
	if d := cmp.Diff(defaults, layout.Merge(csiv1.DriverSpec{}, &defaults)); d != "" {
		t.Errorf("an empty Driver takes all of the defaults (-want +got):\n%s", d)
	}
	// What Rook writes: sections that are there and empty.
	empty := csiv1.DriverSpec{Log: &csiv1.LogSpec{}, LeaderElection: &csiv1.LeaderElectionSpec{}, NodePlugin: &csiv1.NodePluginSpec{}, ControllerPlugin: &csiv1.ControllerPluginSpec{}}
	if d := cmp.Diff(defaults, layout.Merge(empty, &defaults)); d != "" {
		t.Errorf("empty sections take all of the defaults (-want +got):\n%s", d)
	}
	zero := empty
	zero.Log = &csiv1.LogSpec{Rotation: &csiv1.LogRotationSpec{MaxLogSize: ptr.To(resource.MustParse("0"))}}
	if got := layout.Merge(zero, &defaults).Log.Rotation.MaxLogSize; got.Value() != 2 {
		t.Errorf("a size of 0 counts as absent: got %s", got)
	}
	off := csiv1.DriverSpec{KernelMountOptions: map[string]string{}, ControllerPlugin: &csiv1.ControllerPluginSpec{HostNetwork: ptr.To(false)}}
	m := layout.Merge(off, &csiv1.DriverSpec{KernelMountOptions: map[string]string{"a": ""}, ControllerPlugin: &csiv1.ControllerPluginSpec{HostNetwork: ptr.To(true)}})
	if len(m.KernelMountOptions) != 0 || *m.ControllerPlugin.HostNetwork {
		t.Error("a Driver cannot take a default away")
	}
	// The two full specs must really fill every field, or the test proves nothing.
	for _, at := range []any{driver, *driver.NodePlugin, *driver.ControllerPlugin, driver.NodePlugin.PodCommonSpec, driver.NodePlugin.Resources, driver.ControllerPlugin.Resources, *driver.Log, *driver.Log.Rotation} {
		v := reflect.ValueOf(at)
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "ImageSet" && name != "EnableMetadata" {
				t.Errorf("%T.%s is not set by the test", at, name)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 30)
	for _, tt := range []struct {
		name  string
		in    func(*layout.Input)
		field string
		text  string
	}{
		{name: "unknown type", in: func(in *layout.Input) { in.Name = "zfs.csi.ceph.com" }, field: "metadata.name", text: "invalid driver name"},
		{name: "no type", in: func(in *layout.Input) { in.Name = ".csi.ceph.com" }, field: "metadata.name", text: "invalid driver name"},
		{name: "name too long", in: func(in *layout.Input) { in.Name = long + long + ".rbd.csi.ceph.com" }, field: "metadata.name", text: "leaves 52"},
		{name: "name too long with addons", in: func(in *layout.Input) { in.Name = long + ".rbd.csi.ceph.com"; in.Spec.DeployCsiAddons = ptr.To(true) }, field: "metadata.name", text: "leaves 41 with deployCsiAddons"},
		{name: "name too long with liveness", in: func(in *layout.Input) {
			in.Name = long + ".rbd.csi.ceph.com"
			in.Spec.Liveness = &csiv1.LivenessSpec{MetricsPort: 9000}
		}, field: "metadata.name", text: "leaves 44 with liveness"},
		{name: "no image", in: func(in *layout.Input) { delete(in.Images, "resizer") }, field: "spec.imageSet", text: `"resizer"`},
		{name: "rotation without a limit", in: func(in *layout.Input) { in.Spec.Log.Rotation = &csiv1.LogRotationSpec{LogHostPath: "/x"} }, field: "spec.log.rotation", text: "never be rotated"},
		{name: "election", in: func(in *layout.Input) { in.Spec.LeaderElection.RenewDeadline = 200 }, field: "spec.leaderElection", text: "137"},
		{name: "kubelet path", in: func(in *layout.Input) { in.Spec.NodePlugin.KubeletDirPath = "var/lib" }, field: "spec.nodePlugin.kubeletDirPath", text: "absolute"},
		{name: "log path", in: func(in *layout.Input) {
			in.Spec.Log.Rotation = &csiv1.LogRotationSpec{Periodicity: "daily", LogHostPath: "/var/../etc"}
		}, field: "spec.log.rotation.logHostPath", text: "absolute"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(csiv1.RBDDriver, option{})
			tt.in(&in)
			_, err := layout.Build(in)
			var f *layout.FieldError
			if !errors.As(err, &f) || f.Field != tt.field || !strings.Contains(f.Message, tt.text) {
				t.Errorf("got %v, want %s: ...%s...", err, tt.field, tt.text)
			}
		})
	}
	for _, value := range []string{"yes", ""} {
		if _, err := layout.VolumeCondition(map[string]string{csiv1.VolumeConditionAnnotation: value}); err == nil {
			t.Errorf("annotation %q was accepted", value)
		}
	}
}

func TestRotateConfig(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   csiv1.LogRotationSpec
		want string
	}{
		{name: "period and size", in: csiv1.LogRotationSpec{Periodicity: "daily", MaxLogSize: ptr.To(resource.MustParse("500Mi"))},
			want: "/csi-logs/*.log {\n\tmissingok\n\tcompress\n\tcopytruncate\n\tnotifempty\n\trotate 7\n\tdaily\n\tmaxsize 500M\n}\n"},
		{name: "period alone", in: csiv1.LogRotationSpec{Periodicity: "hourly", MaxFiles: 3, MaxLogSize: ptr.To(resource.MustParse("0"))},
			want: "/csi-logs/*.log {\n\tmissingok\n\tcompress\n\tcopytruncate\n\tnotifempty\n\trotate 3\n\thourly\n}\n"},
		{name: "size alone", in: csiv1.LogRotationSpec{MaxLogSize: ptr.To(resource.MustParse("10G"))},
			want: "/csi-logs/*.log {\n\tmissingok\n\tcompress\n\tcopytruncate\n\tnotifempty\n\trotate 7\n\tsize 9765625k\n}\n"},
		{name: "size in bytes", in: csiv1.LogRotationSpec{MaxLogSize: ptr.To(resource.MustParse("1001"))},
			want: "/csi-logs/*.log {\n\tmissingok\n\tcompress\n\tcopytruncate\n\tnotifempty\n\trotate 7\n\tsize 1001\n}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := layout.Build(input(csiv1.RBDDriver, option{spec: func(s *csiv1.DriverSpec) { s.Log = &csiv1.LogSpec{Rotation: &tt.in} }}))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, o.RotateConfig.Data["csi"]); d != "" {
				t.Errorf("logrotate configuration (-want +got):\n%s", d)
			}
		})
	}
}

// TestAbsent: what an option made is named for deletion when the option is gone.
func TestAbsent(t *testing.T) {
	in := input(csiv1.RBDDriver, option{})
	o, err := layout.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, obj := range o.Absent(in) {
		got = append(got, strings.TrimPrefix(reflect.TypeOf(obj).String(), "*")+" "+obj.GetName())
	}
	want := []string{
		"v1.Service rook-ceph-rbd-csi-ceph-com-liveness",
		"v1.DaemonSet rook-ceph.rbd.csi.ceph.com-nodeplugin-csi-addons", "v1.NetworkPolicy rook-ceph.rbd.csi.ceph.com-nodeplugin-csi-addons",
		"v1.ConfigMap rook-ceph.rbd.csi.ceph.com-logrotate-config",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("absent (-want +got):\n%s", d)
	}
	ns, name, ok := layout.OwnerOf(o.CSIDriver.Annotations)
	if !ok || ns != "rook-ceph" || name != in.Name {
		t.Errorf("owner of the CSIDriver: %s/%s %v", ns, name, ok)
	}
	if want := `{"Namespace":"rook-ceph","Name":"rook-ceph.rbd.csi.ceph.com"}`; o.CSIDriver.Annotations[layout.OwnerRefAnnotation] != want {
		t.Errorf("annotation %s, want %s", o.CSIDriver.Annotations[layout.OwnerRefAnnotation], want)
	}
}
