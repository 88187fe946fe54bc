package podspec

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got any) {
	t.Helper()
	out, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(out)); diff != "" {
		t.Errorf("%s (-want +got; run with -update if it is meant):\n%s", file, diff)
	}
}

func cluster() Cluster {
	return Cluster{
		Namespace: "rook-ceph", Name: "my-cluster", FSID: "e9e2a1c4-0000-4000-8000-000000000001", DataDir: "/var/lib/rook",
		CephImage: "quay.io/ceph/ceph:v20.2.4", NodeImage: "example.com/castellan:v1", PullPolicy: corev1.PullIfNotPresent,
		CephVersion: "20.2.4-0", OperatorVersion: "v1", OperatorNamespace: "rook-system", UnreachableSeconds: 5,
		Owner: metav1.OwnerReference{APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Name: "my-cluster", UID: "1"},
	}
}

func mgr() Daemon {
	return Daemon{
		Type: "mgr", ID: "a", App: "rook-ceph-mgr", Name: "rook-ceph-mgr-a", Key: cephv1.KeyMgr,
		Keyring: "rook-ceph-mgr-a-keyring", KeyringVersion: "42",
	}
}

// pod is what a daemon's own package puts together from the parts here.
func pod(c Cluster, d Daemon, u User) corev1.PodSpec {
	startup, liveness := Probes(d, 60)
	p := corev1.PodSpec{
		InitContainers: []corev1.Container{CopyBin(c), Prepare(c, d, "chown-container-data-dir")},
		Containers: []corev1.Container{{
			Name: d.Type, Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{"ceph-" + d.Type}, Args: append(Flags(c, d), "--foreground"),
			Env: Env(c), VolumeMounts: Mounts(d), Resources: u.Resources, StartupProbe: startup, LivenessProbe: liveness, SecurityContext: Daemonic(c),
		}},
		Volumes: Volumes(c, d),
	}
	Place(&p, u.Placement)
	LeaveUnreachable(&p, c)
	return p
}

func TestDeploymentGolden(t *testing.T) {
	full := cluster()
	full.HostNetwork, full.IPv6, full.CephUID = true, true, 167
	full.Connections = &Connections{Msgr2: true, Encryption: true}
	full.RevisionHistoryLimit = ptr.To[int32](3)
	full.LogCollector = &LogCollector{Periodicity: "daily", MaxSize: "500M", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
	}}
	privileged := cluster()
	privileged.Privileged = true
	privileged.LogCollector = &LogCollector{Periodicity: "hourly"}

	for _, tc := range []struct {
		name string
		c    Cluster
		d    Daemon
		u    User
	}{
		{name: "plain", c: cluster(), d: mgr()},
		{
			name: "full", c: full,
			d: Daemon{
				Type: "mds", ID: "myfs-a", App: "rook-ceph-mds", Name: "rook-ceph-mds-myfs-a", Keyring: "rook-ceph-mds-myfs-a-keyring", KeyringVersion: "7",
				Component: "cephfilesystems.ceph.rook.io", PartOf: "myfs", Labels: map[string]string{"rook_file_system": "myfs", "app": "no"},
			},
			u: User{
				Placement: cephv1.Placement{
					NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
						MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "role", Operator: corev1.NodeSelectorOpIn, Values: []string{"storage"}}},
					}}}},
					Tolerations:               []corev1.Toleration{{Key: "storage", Operator: corev1.TolerationOpExists}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.ScheduleAnyway}},
				},
				Resources:     corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")}},
				Labels:        cephv1.Labels{"team": "storage", "rook_cluster": "not-ours"},
				Annotations:   cephv1.Annotations{"note": "hello", KeyAnnotation: "not-ours"},
				PriorityClass: "system-cluster-critical",
			},
		},
		{
			name: "privileged", c: privileged,
			d: Daemon{
				Type: "mon", ID: "b", App: "rook-ceph-mon", Name: "rook-ceph-mon-b", Keyring: "rook-ceph-mons-keyring", DataSubPath: "data",
				Data: &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "rook-ceph-mon-b"}},
			},
		},
		{
			name: "stateless", c: cluster(),
			d: Daemon{
				Type: "rgw", ID: "my-store", App: "rook-ceph-rgw", Name: "rook-ceph-rgw-my-store-a", Keyring: "rook-ceph-rgw-my-store-a-keyring",
				Stateless: true, LogName: "ceph-client.rgw.my.store.a.log",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			golden(t, tc.name, Deployment(tc.c, tc.d, pod(tc.c, tc.d, tc.u), tc.u))
		})
	}
}

// The same values give the same object: a difference would restart daemons.
func TestDeploymentIsStable(t *testing.T) {
	c, d := cluster(), mgr()
	u := User{Labels: cephv1.Labels{"a": "1", "b": "2", "c": "3"}, Annotations: cephv1.Annotations{"d": "4", "e": "5"}}
	first := Deployment(c, d, pod(c, d, u), u)
	for range 20 {
		if diff := cmp.Diff(first, Deployment(c, d, pod(c, d, u), u)); diff != "" {
			t.Fatalf("two builds differ:\n%s", diff)
		}
	}
}

// A selector cannot be changed, so nothing that a user or an upgrade may change
// has a place in it.
func TestSelectorHoldsOnlyWhatNeverChanges(t *testing.T) {
	c, d := cluster(), mgr()
	want := map[string]string{"app": "rook-ceph-mgr", "rook_cluster": "rook-ceph", "mgr": "a", "ceph_daemon_id": "a"}
	changed := c
	changed.CephVersion, changed.OperatorVersion, changed.OperatorNamespace, changed.Name = "21.2.0-0", "v2", "elsewhere", "other"
	d.Labels = map[string]string{"more": "labels"}
	u := User{Labels: cephv1.Labels{"app": "mine", "ceph_daemon_id": "z", "new": "label"}}
	dep := Deployment(changed, d, pod(changed, d, u), u)
	if diff := cmp.Diff(want, dep.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	for k, v := range want {
		if got := dep.Spec.Template.Labels[k]; got != v {
			t.Errorf("pods have %s=%q, the selector wants %q", k, got, v)
		}
	}
	for _, k := range []string{"rook-version", "ceph-version"} {
		if _, ok := dep.Spec.Template.Labels[k]; ok {
			t.Errorf("label %s on pods would restart them at every upgrade of the operator", k)
		}
		if _, ok := dep.Labels[k]; !ok {
			t.Errorf("the Deployment lacks label %s", k)
		}
	}
}

// What the builders here make runs no shell and no Python, drops every
// capability it does not name, and gets no token.
func TestLeastPrivilege(t *testing.T) {
	c := cluster()
	c.LogCollector = &LogCollector{Periodicity: "daily"}
	for _, uid := range []int64{0, 167} {
		c.CephUID = uid
		dep := Deployment(c, mgr(), pod(c, mgr(), User{}), User{})
		spec := dep.Spec.Template.Spec
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			t.Error("the pod gets an API token")
		}
		allowed := map[corev1.Capability]bool{"CHOWN": true, "DAC_OVERRIDE": true, "FOWNER": true, "SETGID": true, "SETUID": true}
		for _, k := range append(spec.InitContainers, spec.Containers...) {
			runs := [][]string{k.Command, k.Args}
			for _, p := range []*corev1.Probe{k.StartupProbe, k.LivenessProbe, k.ReadinessProbe} {
				if p != nil && p.Exec != nil {
					runs = append(runs, p.Exec.Command)
				}
			}
			for _, words := range runs {
				for i, w := range words {
					shell := w == "sh" || w == "bash" || w == "ceph" || w == "-c" || strings.ContainsAny(w, ";|&`\n")
					if program := filepath.Base(w); shell || i == 0 && (program == "sh" || program == "bash" || program == "ceph" || program == "env") {
						t.Errorf("%s: word %q of %q", k.Name, w, words)
					}
				}
			}
			s := k.SecurityContext
			if s == nil || s.Capabilities == nil || !cmp.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
				s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.SeccompProfile == nil {
				t.Errorf("%s: security context %+v", k.Name, s)
				continue
			}
			for _, capability := range s.Capabilities.Add {
				if !allowed[capability] {
					t.Errorf("%s: capability %s", k.Name, capability)
				}
			}
			if ofCeph := k.Name == "mgr" || k.Name == "log-collector"; uid != 0 && ofCeph && (s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser != uid || len(s.Capabilities.Add) > 0) {
				t.Errorf("%s: should run as user %d without capabilities, got %+v", k.Name, uid, s)
			}
		}
	}
}

func TestBindFlags(t *testing.T) {
	for _, tc := range []struct {
		v6, dual bool
		want     []string
	}{
		{},
		{v6: true, want: []string{"--ms-bind-ipv4=false", "--ms-bind-ipv6=true"}},
		{dual: true, want: []string{"--ms-bind-ipv4=true", "--ms-bind-ipv6=true"}},
		{v6: true, dual: true, want: []string{"--ms-bind-ipv4=true", "--ms-bind-ipv6=true"}},
	} {
		c := Cluster{IPv6: tc.v6, DualStack: tc.dual}
		if diff := cmp.Diff(tc.want, BindFlags(c)); diff != "" {
			t.Errorf("IPv6 %v, dual stack %v (-want +got):\n%s", tc.v6, tc.dual, diff)
		}
	}
}

func TestOverride(t *testing.T) {
	own := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{Bin, "probe", "mgr", "a"}}},
		PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3,
	}
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}
	for _, tc := range []struct {
		title string
		own   *corev1.Probe
		spec  *cephv1.ProbeSpec
		want  *corev1.Probe
	}{
		{"nothing said", own, nil, own},
		{"an empty word", own, &cephv1.ProbeSpec{}, own},
		{"disabled", own, &cephv1.ProbeSpec{Disabled: true}, nil},
		{"disabled goes before numbers", own, &cephv1.ProbeSpec{Disabled: true, Probe: &corev1.Probe{PeriodSeconds: 1}}, nil},
		{
			"numbers of the user", own, &cephv1.ProbeSpec{Probe: &corev1.Probe{PeriodSeconds: 30, InitialDelaySeconds: 9}},
			&corev1.Probe{ProbeHandler: own.ProbeHandler, PeriodSeconds: 30, TimeoutSeconds: 5, FailureThreshold: 3, InitialDelaySeconds: 9},
		},
		{
			"check of the user", own, &cephv1.ProbeSpec{Probe: &corev1.Probe{ProbeHandler: tcp}},
			&corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3},
		},
		{"none of ours, a check of the user", nil, &cephv1.ProbeSpec{Probe: &corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 7}}, &corev1.Probe{ProbeHandler: tcp, PeriodSeconds: 7}},
		{"none of ours, only numbers", nil, &cephv1.ProbeSpec{Probe: &corev1.Probe{PeriodSeconds: 7}}, nil},
	} {
		t.Run(tc.title, func(t *testing.T) {
			before := tc.spec.DeepCopy()
			if diff := cmp.Diff(tc.want, Override(tc.own, tc.spec)); diff != "" {
				t.Errorf("Override (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.spec); diff != "" {
				t.Errorf("the spec was changed:\n%s", diff)
			}
		})
	}
}

func TestProbesAllowTheStartupAskedFor(t *testing.T) {
	for _, seconds := range []int32{1, 60, 7200} {
		startup, liveness := Probes(mgr(), seconds)
		// The kubelet looks at once otherwise, which no daemon can pass.
		if startup.InitialDelaySeconds < 1 {
			t.Error("a probe that runs before there is anything to find")
		}
		if got := startup.PeriodSeconds * startup.FailureThreshold; got < min(seconds, 2) || (seconds > 2 && got != seconds) {
			t.Errorf("%d s asked for, %d s allowed", seconds, got)
		}
		if startup.TimeoutSeconds < 1 || liveness.TimeoutSeconds < 1 {
			t.Error("a probe without a timeout")
		}
	}
}

func TestLeaveUnreachable(t *testing.T) {
	const key = "node.kubernetes.io/unreachable"
	ours := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)}
	longer := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](600)}
	other := corev1.Toleration{Key: "storage", Operator: corev1.TolerationOpExists}
	onlySchedule := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	for _, tc := range []struct {
		title    string
		in, want []corev1.Toleration
	}{
		{"none", nil, []corev1.Toleration{ours}},
		{"another taint", []corev1.Toleration{other}, []corev1.Toleration{other, ours}},
		{"the user's own time", []corev1.Toleration{longer}, []corev1.Toleration{longer}},
		{"another effect", []corev1.Toleration{onlySchedule}, []corev1.Toleration{onlySchedule, ours}},
		{"everything for ever", []corev1.Toleration{everything}, []corev1.Toleration{everything}},
	} {
		t.Run(tc.title, func(t *testing.T) {
			p := corev1.PodSpec{Tolerations: tc.in}
			LeaveUnreachable(&p, cluster())
			if diff := cmp.Diff(tc.want, p.Tolerations); diff != "" {
				t.Errorf("tolerations (-want +got):\n%s", diff)
			}
		})
	}
}

// Placement is taken over without sharing: a change to the pod must not reach the
// cached object it came from.
func TestPlaceDoesNotShare(t *testing.T) {
	spec := cephv1.Placement{PodAntiAffinity: &corev1.PodAntiAffinity{}, Tolerations: make([]corev1.Toleration, 1, 8)}
	var p corev1.PodSpec
	Place(&p, spec)
	Apart(&p, map[string]string{"app": "rook-ceph-mon"}, corev1.LabelHostname, true)
	Apart(&p, map[string]string{"app": "rook-ceph-mon"}, corev1.LabelTopologyZone, false)
	LeaveUnreachable(&p, cluster())
	if diff := cmp.Diff(cephv1.Placement{PodAntiAffinity: &corev1.PodAntiAffinity{}, Tolerations: make([]corev1.Toleration, 1)}, spec); diff != "" {
		t.Errorf("the spec was changed:\n%s", diff)
	}
	anti := p.Affinity.PodAntiAffinity
	if len(anti.RequiredDuringSchedulingIgnoredDuringExecution) != 1 || len(anti.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("anti-affinity = %+v, want one required and one preferred term", anti)
	}
}

func TestUsers(t *testing.T) {
	tolerate := func(key string) []corev1.Toleration { return []corev1.Toleration{{Key: key}} }
	memory := func(s string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(s)}}
	}
	spec := &cephv1.ClusterSpec{
		Placement:          cephv1.PlacementSpec{cephv1.KeyAll: {Tolerations: tolerate("all")}, cephv1.KeyMgr: {Tolerations: tolerate("mgr")}},
		Resources:          cephv1.ResourceSpec{"mgr": memory("1Gi")},
		Labels:             cephv1.LabelsSpec{cephv1.KeyAll: {"a": "all", "b": "all"}, cephv1.KeyMgr: {"b": "mgr"}},
		Annotations:        cephv1.AnnotationsSpec{cephv1.KeyAll: {"c": "all"}},
		PriorityClassNames: cephv1.PriorityClassNamesSpec{cephv1.KeyAll: "low", cephv1.KeyMgr: "high"},
	}
	if diff := cmp.Diff(User{
		Placement: cephv1.Placement{Tolerations: append(tolerate("all"), tolerate("mgr")...)}, Resources: memory("1Gi"),
		Labels: cephv1.Labels{"a": "all", "b": "mgr"}, Annotations: cephv1.Annotations{"c": "all"}, PriorityClass: "high",
	}, UserOf(spec, cephv1.KeyMgr, "mgr")); diff != "" {
		t.Errorf("UserOf (-want +got):\n%s", diff)
	}

	own := User{Placement: cephv1.Placement{Tolerations: tolerate("mds")}, Resources: memory("4Gi"), Labels: cephv1.Labels{"b": "mds"}}
	if diff := cmp.Diff(User{
		Placement: cephv1.Placement{Tolerations: append(tolerate("all"), tolerate("mds")...)}, Resources: memory("4Gi"),
		Labels: cephv1.Labels{"a": "all", "b": "mds"}, Annotations: cephv1.Annotations{"c": "all"}, PriorityClass: "low",
	}, UserOver(spec, own)); diff != "" {
		t.Errorf("UserOver (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(cephv1.Labels{"b": "mds"}, own.Labels); diff != "" {
		t.Errorf("UserOver changed its input:\n%s", diff)
	}
	own.PriorityClass = "own"
	if got := UserOver(spec, own).PriorityClass; got != "own" {
		t.Errorf("priority class = %q, want the object's own", got)
	}
}

func TestHostLabel(t *testing.T) {
	if got := HostLabel("node1.example.com"); got != "node1-example-com" {
		t.Errorf("HostLabel = %q", got)
	}
}
