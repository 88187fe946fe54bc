package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	cephmon "github.com/castellan-storage/castellan/internal/ceph/mon"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/mgr/spec"
	"github.com/castellan-storage/castellan/test/operator"
)

// rook is the field manager of the operator that was here before.
const rook = client.FieldOwner("rook")

// legacy makes what Rook leaves behind: the objects that its users know, with running
// daemons, and no trace of Castellan.
type legacy struct {
	*bench
	owner metav1.OwnerReference
}

func (l *legacy) meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: l.ns, Labels: labels, OwnerReferences: []metav1.OwnerReference{l.owner}}
}

func (l *legacy) create(ctx context.Context, objs ...client.Object) error {
	for _, o := range objs {
		if err := l.c.Create(ctx, o, rook); err != nil {
			return fmt.Errorf("%T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func (l *legacy) secret(name, key, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: l.meta(name, nil), Type: "kubernetes.io/rook", Data: map[string][]byte{key: []byte(value)}}
}

// daemon is a Deployment as Rook makes it: old stable labels in the selector, init
// containers of its own.
func (l *legacy) daemon(kind, id, node string, more map[string]string, args []string, env ...corev1.EnvVar) *appsv1.Deployment {
	app := "rook-ceph-" + kind
	selector := map[string]string{"app": app, "rook_cluster": l.ns}
	maps.Copy(selector, more)
	labels := maps.Clone(selector)
	maps.Copy(labels, map[string]string{"ceph_daemon_type": kind, "ceph_daemon_id": id, "rook.io/operator-namespace": l.ns})
	pod := corev1.PodSpec{
		NodeSelector:   map[string]string{corev1.LabelHostname: node},
		InitContainers: []corev1.Container{{Name: "chown-container-data-dir", Image: oldImage, Command: []string{"chown"}}},
		Containers:     []corev1.Container{{Name: kind, Image: oldImage, Command: []string{"ceph-" + kind}, Args: args, Env: env}},
		Volumes: []corev1.Volume{{Name: "ceph-daemon-data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: "/var/lib/rook/" + kind + "-" + id + "/data",
		}}}},
	}
	return &appsv1.Deployment{
		ObjectMeta: l.meta(app+"-"+id, labels),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: selector}, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// steps lets the world move until it is as it should be.
func (l *legacy) steps(ctx context.Context, what string, ok func() bool) error {
	for range 60 {
		if ok() {
			return nil
		}
		if _, err := l.sim.Step(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: it does not come to that", what)
}

func (l *legacy) mons(ctx context.Context) error {
	var pairs, hosts []string
	nodes := map[string]any{}
	for i, id := range []string{"a", "b", "c"} {
		labels := map[string]string{"app": "rook-ceph-mon", "mon": id, "rook_cluster": l.ns}
		svc := &corev1.Service{ObjectMeta: l.meta("rook-ceph-mon-"+id, labels), Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Name: "tcp-msgr2", Port: 3300, Protocol: corev1.ProtocolTCP}},
		}}
		if err := l.create(ctx, svc); err != nil {
			return err
		}
		err := l.steps(ctx, "an address", func() bool {
			return l.c.Get(ctx, client.ObjectKeyFromObject(svc), svc) == nil && svc.Spec.ClusterIP != ""
		})
		if err != nil {
			return err
		}
		ip := svc.Spec.ClusterIP
		pairs, hosts = append(pairs, id+"="+ip+":3300"), append(hosts, "[v2:"+ip+":3300]")
		nodes[id] = map[string]string{"Name": l.node(i + 1), "Hostname": l.node(i + 1), "Address": "192.0.2." + strconv.Itoa(i+1)}
		if err := l.create(ctx, l.daemon("mon", id, l.node(i+1), map[string]string{"mon": id}, []string{"--public-addr=" + ip, "--ms-bind-msgr1=false"})); err != nil {
			return err
		}
	}
	mapping, err := json.Marshal(map[string]any{"node": nodes})
	if err != nil {
		return err
	}
	own := l.secret("rook-ceph-mon", "fsid", operator.FSID)
	own.Finalizers = []string{"ceph.rook.io/disaster-protection"}
	own.Data["mon-secret"], own.Data["ceph-username"], own.Data["ceph-secret"] = []byte(l.ceph.Key("mon.")), []byte("client.admin"), []byte(l.ceph.Key("client.admin"))
	list := &corev1.ConfigMap{ObjectMeta: l.meta("rook-ceph-mon-endpoints", nil), Data: map[string]string{
		"data": strings.Join(pairs, ","), "maxMonId": "2", "mapping": string(mapping), "outOfQuorum": "", "externalMons": "", "csi-cluster-config-json": "[]",
	}}
	list.Finalizers = []string{"ceph.rook.io/disaster-protection"}
	conf := l.secret("rook-ceph-config", "mon_host", strings.Join(hosts, ","))
	conf.Data["mon_initial_members"] = []byte("a,b,c")
	if err := l.create(ctx, own, list, conf,
		l.secret("rook-ceph-mons-keyring", "keyring", "[mon.]\n\tkey = "+l.ceph.Key("mon.")+"\n"),
		l.secret("rook-ceph-admin-keyring", "keyring", "[client.admin]\n\tkey = "+l.ceph.Key("client.admin")+"\n")); err != nil {
		return err
	}
	return l.steps(ctx, "three mons", func() bool {
		q, err := cephmon.New(l.ceph).QuorumStatus(ctx)
		return err == nil && q.In("a") && q.In("b") && q.In("c")
	})
}

func (l *legacy) mgrs(ctx context.Context) error {
	for i, id := range []string{"a", "b"} {
		u := spec.User(id)
		e, err := auth.New(l.ceph).GetOrCreate(ctx, u.Entity, u.Caps)
		if err != nil {
			return err
		}
		if err := l.create(ctx, l.secret(u.Secret, "keyring", "[mgr."+id+"]\n\tkey = "+e.Key.Reveal()+"\n\tcaps mon = \"allow profile mgr\"\n"),
			l.daemon("mgr", id, l.node(i+1), map[string]string{"mgr": id}, nil)); err != nil {
			return err
		}
	}
	return l.steps(ctx, "a mgr", func() bool {
		r, err := l.ceph.Mon(ctx, ceph.Cmd("mgr stat"))
		return err == nil && strings.Contains(string(r.Out), `"available":true`)
	})
}

func (l *legacy) osds(ctx context.Context) error {
	for i := range 3 {
		node := l.node(i + 1)
		id, uuid, err := l.sim.Prepare(ctx, node, "sdb", operator.FSID)
		if err != nil {
			return err
		}
		n := strconv.Itoa(id)
		d := l.daemon("osd", n, node, map[string]string{"ceph-osd-id": n}, []string{"--foreground", "--id", n, "--fsid", operator.FSID},
			corev1.EnvVar{Name: "ROOK_OSD_UUID", Value: uuid}, corev1.EnvVar{Name: "ROOK_OSD_ID", Value: n}, corev1.EnvVar{Name: "ROOK_CV_MODE", Value: "raw"}, corev1.EnvVar{Name: "ROOK_BLOCK_PATH", Value: "/dev/sdb"})
		if err := l.create(ctx, d); err != nil {
			return err
		}
	}
	// One node's report is still there, in the shape that Rook writes, and its Job.
	report := fmt.Sprintf(`{"status":"completed","osds":[{"id":0,"cluster":"ceph","uuid":"x","lv-path":"/dev/sdb","lv-mode":"raw","store":"bluestore","nodeName":%q}],"message":"","pvc-backed-osd":false}`, l.node(1))
	labels := map[string]string{"app": "rook-ceph-osd-prepare", "rook_cluster": l.ns}
	job := &batchv1.Job{ObjectMeta: l.meta("rook-ceph-osd-prepare-"+l.node(1), labels), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "provision", Image: oldImage}},
			NodeSelector: map[string]string{corev1.LabelHostname: l.node(1)}},
	}}}
	if err := l.create(ctx, &corev1.ConfigMap{
		ObjectMeta: l.meta("rook-ceph-osd-"+l.node(1)+"-status", map[string]string{"app": "rook-ceph-osd", "status": "provisioning", "node": l.node(1)}),
		Data:       map[string]string{"status": report},
	}, job); err != nil {
		return err
	}
	now := metav1.Now()
	job.Status = batchv1.JobStatus{Succeeded: 1, StartTime: &now, CompletionTime: &now, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
	if err := l.c.Status().Update(ctx, job); err != nil {
		return err
	}
	return l.steps(ctx, "three OSDs", func() bool { return len(l.ceph.RunningOSDs()) == 3 })
}

// rookCluster is the whole of it, with a CephCluster that says it is Ready.
func rookCluster(ctx context.Context, b *bench) error {
	cl := b.cluster(3)
	cl.Finalizers = []string{"cephcluster.ceph.rook.io"}
	if err := b.c.Create(ctx, cl, rook); err != nil {
		return err
	}
	l := &legacy{bench: b, owner: pods.Owner(cl)}
	for _, part := range []func(context.Context) error{l.mons, l.mgrs, l.osds} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	b.ceph.Settle()
	cl.Status = cephv1.ClusterStatus{
		Phase: cephv1.ConditionReady, State: cephv1.ClusterStateCreated, CephVersion: &cephv1.ClusterVersion{Image: oldImage, Version: "20.2.4-0"},
		CephStatus: &cephv1.CephStatus{Health: "HEALTH_OK", FSID: operator.FSID},
	}
	if err := b.c.Status().Update(ctx, cl); err != nil {
		return err
	}
	var err error
	b.noted, err = b.daemonPods(ctx)
	b.ceph.Reset()
	return err
}

// adopted says that no daemon was restarted, and that the OSDs are known by their disks.
func adopted(ctx context.Context, b *bench) error {
	now, err := b.daemonPods(ctx)
	if err != nil {
		return err
	}
	if len(now) != 8 || !maps.Equal(now, b.noted) {
		return fmt.Errorf("pods were restarted by the takeover: %v, then %v", b.noted, now)
	}
	for id := range 3 {
		var d appsv1.Deployment
		if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph-osd-" + strconv.Itoa(id)}, &d); err != nil {
			return err
		}
		if !strings.Contains(d.Annotations["castellan.ceph.io/osd-record"], "slot-") {
			return fmt.Errorf("osd.%d has no record of its disk: %v", id, d.Annotations)
		}
	}
	return nil
}

// ours says that every daemon runs the new image with our pods.
func ours(ctx context.Context, b *bench) error {
	var list appsv1.DeploymentList
	if err := b.c.List(ctx, &list, client.InNamespace(b.ns)); err != nil {
		return err
	}
	for _, d := range list.Items {
		s := d.Spec.Template.Spec
		if s.Containers[0].Image != newImage || d.Annotations[pods.AdoptedAnnotation] != "" {
			return fmt.Errorf("%s runs %s, adopted %q", d.Name, s.Containers[0].Image, d.Annotations[pods.AdoptedAnnotation])
		}
		for _, c := range s.InitContainers {
			if len(c.Command) > 0 && c.Command[0] == "chown" {
				return fmt.Errorf("%s still has an init container of the former operator", d.Name)
			}
		}
	}
	return nil
}

// A cluster of Rook is taken over: identity and list are kept, no daemon restarts, the
// nodes are asked anew for their OSDs, and a later upgrade makes the pods ours.
func takeover(t *testing.T, o options) {
	bs := benches{}
	run(t, bs, o, bs.act("take over", rookCluster), look(bs, 3, 3, adopted), bs.act("new Ceph", func(ctx context.Context, b *bench) error {
		return b.edit(ctx, func(cl *cephv1.CephCluster) { cl.Spec.CephVersion.Image = newImage })
	}), look(bs, 3, 3, ours))
}

func TestTakeover(t *testing.T) { takeover(t, options{nodes: 3, disks: 1}) }

func TestTakeoverOnARealAPIServer(t *testing.T) { takeover(t, options{nodes: 3, disks: 1, real: true}) }
