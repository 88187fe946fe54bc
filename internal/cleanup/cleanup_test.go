package cleanup

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
	"github.com/castellan-storage/castellan/internal/podspec"
)

var update = flag.Bool("update", false, "write the golden files")

const fsid = "f2b79749-5c80-4051-8f99-2b3d36e8fb05"

func node(name, host string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: host}}}
}

func deployment(app, host string, labels map[string]string, uuid string) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}}
	for k, v := range labels {
		d.Labels[k] = v
	}
	if host != "" {
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "x", Env: []corev1.EnvVar{{Name: "ROOK_OSD_UUID", Value: uuid}}}}
	return d
}

func report(t *testing.T, name, node, state string, osds ...prepare.Result) corev1.ConfigMap {
	t.Helper()
	var list []map[string]any
	for _, o := range osds {
		list = append(list, map[string]any{"id": o.ID, "nodeName": node})
	}
	status, err := json.Marshal(map[string]any{"status": state, "osds": list})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(osds)
	if err != nil {
		t.Fatal(err)
	}
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node": node}}, Data: map[string]string{"status": string(status), "osds": string(b)}}
}

func mons(t *testing.T, places map[string]*endpoints.Place) endpoints.List {
	t.Helper()
	l := endpoints.Empty()
	i := byte(1)
	for id, p := range places {
		var err error
		if l, err = l.With(endpoints.Mon{ID: id, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 3300), Place: p}); err != nil {
			t.Fatal(err)
		}
		i++
	}
	return l
}

func TestFindTakesEverySourceThatThereIs(t *testing.T) {
	got, err := Find(Facts{
		FSID:  fsid,
		Nodes: []corev1.Node{node("n1.example.com", "n1"), node("n2", "n2"), node("n3", "n3"), node("n7", "n7")},
		Mons: mons(t, map[string]*endpoints.Place{
			"a": {Name: "n1.example.com", Hostname: "n1"}, "b": {Name: "gone", Hostname: "gone"}, "c": nil, // on a volume
		}),
		Deployments: []appsv1.Deployment{
			deployment("rook-ceph-osd", "n2", map[string]string{"ceph-osd-id": "4"}, "u4"),
			deployment("rook-ceph-osd", "", map[string]string{"ceph-osd-id": "5"}, "u5"), // on a volume
			deployment("rook-ceph-mon", "n3", map[string]string{"mon": "d"}, ""),
			deployment("rook-ceph-crashcollector", "n9", nil, ""),
		},
		Reports: []corev1.ConfigMap{
			report(t, "r1", "n1.example.com", "completed", prepare.Result{ID: 1, UUID: "u1", FSID: fsid}, prepare.Result{ID: 9, UUID: "u9", FSID: "another"}),
			report(t, "r2", "n2", "completed", prepare.Result{ID: 4, UUID: "u4", FSID: fsid}),
			report(t, "r5", "n5", "completed"),
			report(t, "r7", "n7", "orchestrating"), // it may have made OSDs that it has not told of
			report(t, "r8", "n8", "completed", prepare.Result{ID: 8, UUID: "u8", FSID: fsid}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Hosts{
		"n1":   {Name: "n1", Node: "n1.example.com", Mons: []string{"a"}, OSDs: []task.OSD{{ID: 1, UUID: "u1"}}},
		"gone": {Name: "gone", Node: "gone", Mons: []string{"b"}},
		"n2":   {Name: "n2", Node: "n2", OSDs: []task.OSD{{ID: 4, UUID: "u4"}}},
		"n3":   {Name: "n3", Node: "n3", Mons: []string{"d"}},
		"n7":   {Name: "n7", Node: "n7"},
		"n8":   {Name: "n8", Node: "n8", OSDs: []task.OSD{{ID: 8, UUID: "u8"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAReportThatCannotBeReadIsAnError(t *testing.T) {
	for name, data := range map[string]map[string]string{
		"status": {"status": "{", "osds": "[]"}, "no status": {}, "osds": {"status": "{}", "osds": "["},
	} {
		if got, err := Find(Facts{FSID: fsid, Reports: []corev1.ConfigMap{{Data: data}}}); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestListsAreStoredAndAdded(t *testing.T) {
	a := Hosts{"n1": {Name: "n1", Node: "x1", Mons: []string{"a"}, OSDs: []task.OSD{{ID: 1, UUID: "u1"}}}}
	b := Hosts{"n1": {Name: "n1", Mons: []string{"b", "a"}, OSDs: []task.OSD{{ID: 1, UUID: "u2"}, {ID: 1, UUID: "u1"}}}, "n2": {Name: "n2"}}
	want := Hosts{"n1": {Name: "n1", Node: "x1", Mons: []string{"a", "b"}, OSDs: []task.OSD{{ID: 1, UUID: "u1"}, {ID: 1, UUID: "u2"}}}, "n2": {Name: "n2"}}
	if diff := cmp.Diff(want, a.With(b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	data, err := want.Data(fsid)
	if err != nil {
		t.Fatal(err)
	}
	back, f, err := Parse(data)
	if err != nil || f != fsid {
		t.Fatalf("%s, %v", f, err)
	}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, _, err := Parse(map[string]string{}); err == nil {
		t.Error("an empty ConfigMap is taken for an empty list")
	}
	for annotation, left := range map[string]string{"": "n1,n2", "n2": "n1", " x1 , n2": "", "n": "n1,n2", ",": "n1,n2"} {
		if got := strings.Join(want.Without(annotation).Names(), ","); got != left {
			t.Errorf("%q leaves %s, want %s", annotation, got, left)
		}
	}
}

func build(t *testing.T, change ...func(*cephv1.ClusterSpec)) *batchv1.Job {
	t.Helper()
	c := podspec.Cluster{
		Namespace: "rook-ceph", Name: "my-cluster", FSID: fsid, DataDir: "/var/lib/rook", CephImage: "quay.io/ceph/ceph:v20.2.4", NodeImage: "castellan:test",
		Owner: metav1.OwnerReference{APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Name: "my-cluster", UID: "u"},
	}
	spec := &cephv1.ClusterSpec{Placement: cephv1.PlacementSpec{
		cephv1.KeyCleanup: {Tolerations: []corev1.Toleration{{Key: "cleanup", Operator: corev1.TolerationOpExists}}},
		cephv1.KeyOSD:     {Tolerations: []corev1.Toleration{{Key: "storage", Operator: corev1.TolerationOpExists}}},
	}}
	for _, f := range change {
		f(spec)
	}
	h := Host{Name: "n1", Mons: []string{"a"}, OSDs: []task.OSD{{ID: 1, UUID: "5d358cd6-fd92-46c1-b670-f3fcd440f5b6"}}}
	j, err := Job(c, h, Request(c, h, spec.CleanupPolicy.SanitizeDisks), spec)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestJob(t *testing.T) {
	got, err := yaml.Marshal(build(t))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "job.yaml")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, word := range []string{"secret", "keyring", "/bin/sh"} {
		if strings.Contains(strings.ToLower(string(got)), word) {
			t.Errorf("the Job has to do with %q", word)
		}
	}
	if name := JobName(strings.Repeat("x", 200)); len(name) > 52 {
		t.Errorf("%s", name)
	}
}

func TestLook(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := build(t)
	job := func(change ...func(*batchv1.Job)) *batchv1.Job {
		j := want.DeepCopy()
		j.UID = "j"
		for _, f := range change {
			f(j)
		}
		return j
	}
	cond := func(c batchv1.JobConditionType, ago time.Duration) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
		}
	}
	pod := func(owner types.UID, s corev1.ContainerStatus) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{batchv1.JobNameLabel: want.Name}, OwnerReferences: []metav1.OwnerReference{{UID: owner}}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
		return p
	}
	failed := corev1.ContainerStatus{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "osd.1: failed"}}}
	ok := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "osd.1: cleaned"}}, LastTerminationState: failed.LastTerminationState}
	silent := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}}
	pulling := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}
	changed := build(t, func(s *cephv1.ClusterSpec) { s.CleanupPolicy.SanitizeDisks.Method = cephv1.SanitizeMethodComplete })
	for name, c := range map[string]struct {
		job  *batchv1.Job
		pods []corev1.Pod
		want State
		says string
	}{
		"none":                      {nil, nil, Missing, ""},
		"pod of an earlier one":     {nil, []corev1.Pod{pod("old", failed)}, Running, "earlier Job"},
		"runs":                      {job(), nil, Running, ""},
		"cannot start":              {job(), []corev1.Pod{pod("j", pulling)}, Running, "no such image"},
		"has failed once":           {job(), []corev1.Pod{pod("j", failed)}, Failing, "osd.1: failed"},
		"was killed":                {job(), []corev1.Pod{pod("j", silent)}, Failing, "exit code 137"},
		"another Job's pod":         {job(), []corev1.Pod{pod("k", failed)}, Running, ""},
		"done after a failure":      {job(cond(batchv1.JobComplete, 0)), []corev1.Pod{pod("j", ok)}, Done, "osd.1: cleaned"},
		"given up just now":         {job(cond(batchv1.JobFailed, time.Minute)), nil, Failing, "03:13:05"},
		"given up":                  {job(cond(batchv1.JobFailed, RetryAfter)), nil, Stale, "given up"},
		"another request":           {job(func(j *batchv1.Job) { j.Annotations = changed.Annotations }), nil, Stale, "changed request"},
		"done for another":          {job(cond(batchv1.JobComplete, 0), func(j *batchv1.Job) { j.Annotations = changed.Annotations }), nil, Stale, "changed"},
		"somebody's, without notes": {job(cond(batchv1.JobComplete, 0), func(j *batchv1.Job) { j.Annotations = nil }), nil, Stale, "changed"},
		"going away":                {job(cond(batchv1.JobComplete, 0), func(j *batchv1.Job) { t := metav1.NewTime(now); j.DeletionTimestamp = &t }), nil, Running, "going away"},
	} {
		t.Run(name, func(t *testing.T) {
			state, why := Look(want, c.job, c.pods, now)
			if state != c.want || !strings.Contains(why, c.says) {
				t.Errorf("%s: %q, want %s: %q", state, why, c.want, c.says)
			}
		})
	}
}
