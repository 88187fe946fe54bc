package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The drivers of the test.
const (
	rbd    = "rook-ceph.rbd.csi.ceph.com"
	cephfs = "rook-ceph.cephfs.csi.ceph.com"
	other  = "storage-b.rbd.csi.ceph.com"
)

// TestCSI goes through the life of drivers. Its parts build on each other.
func TestCSI(t *testing.T) {
	w := start(t)
	w.install(t)
	for _, p := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"drivers register with the kubelets", testDrivers},
		{"the configuration arrives in the pods", testConfig},
		{"two namespaces", testNamespaces},
		{"from mapping to replication", testMigration},
		{"an image set changes", testImages},
		{"a driver goes", testDelete},
	} {
		if !t.Run(p.name, func(t *testing.T) { p.run(t, w) }) {
			break // the next would fail for this one's reason
		}
	}
}

// imageSet names the stand-in for every image.
func imageSet(namespace, name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: %s}
data: {plugin: %q, registrar: %q, provisioner: %q, attacher: %q, resizer: %q, snapshotter: %q, addons: %q, snapshot-metadata: %q}
---
`, name, namespace, roleImage("plugin"), roleImage("registrar"), roleImage("sidecar"), roleImage("sidecar"), roleImage("sidecar"), roleImage("sidecar"), roleImage("sidecar"), roleImage("sidecar"))
}

func testDrivers(t *testing.T, w *world) {
	w.Apply(t, file(t, "csi", "rbac", "rbd.yaml"))
	w.Apply(t, file(t, "csi", "rbac", "cephfs.yaml"))
	begun := time.Now()
	w.Apply(t, imageSet(first, "standin")+`
apiVersion: csi.ceph.io/v1
kind: OperatorConfig
metadata: {name: ceph-csi-operator-config, namespace: rook-ceph}
spec: {driverSpecDefaults: {imageSet: {name: standin}, log: {verbosity: 3}}}
---
apiVersion: csi.ceph.io/v1
kind: Driver
metadata: {name: rook-ceph.rbd.csi.ceph.com, namespace: rook-ceph}
spec: {deployCsiAddons: true, generateOMapInfo: true}
---
apiVersion: csi.ceph.io/v1
kind: Driver
metadata: {name: rook-ceph.cephfs.csi.ceph.com, namespace: rook-ceph}
spec: {liveness: {metricsPort: 9091}, snapshotPolicy: none}
`)
	until(t, 2*time.Minute, "both drivers are registered on every node", func(ctx context.Context) error { return w.registered(ctx, rbd, cephfs) })
	measured(t, "drivers/applied-to-registered", time.Since(begun))
	w.untilPhase(t, "drivers", first, rbd, "Ready")
	w.untilPhase(t, "drivers", first, cephfs, "Ready")
	measured(t, "drivers/applied-to-ready", time.Since(begun))
	s, err := w.status(t.Context(), "drivers", first, rbd)
	if err != nil {
		t.Fatal(err)
	}
	if s.ControllerPlugin.Available != nodes || s.NodePlugin.Available != nodes || s.NodePluginAddons.Available != nodes {
		t.Errorf("the status counts %+v", s)
	}
	// Owned objects, as a user sees them.
	for what, names := range map[string]string{
		"deployments":     rbd + "-ctrlplugin " + cephfs + "-ctrlplugin",
		"daemonsets":      rbd + "-nodeplugin " + rbd + "-nodeplugin-csi-addons " + cephfs + "-nodeplugin",
		"networkpolicies": rbd + "-ctrlplugin " + rbd + "-nodeplugin-csi-addons " + cephfs + "-ctrlplugin",
		"services":        "rook-ceph-cephfs-csi-ceph-com-liveness",
		"configmaps":      "ceph-csi-config",
		"csidrivers":      rbd + " " + cephfs,
	} {
		w.MustKubectl(t, append([]string{"-n", first, "get", what}, strings.Fields(names)...)...)
	}
	// No container has had to start twice, and the metrics Service has pods behind it.
	for _, app := range []string{rbd + "-ctrlplugin", rbd + "-nodeplugin", rbd + "-nodeplugin-csi-addons", cephfs + "-ctrlplugin", cephfs + "-nodeplugin"} {
		for _, p := range w.pods(t, first, app) {
			for _, c := range p.Status.ContainerStatuses {
				if c.RestartCount > 0 {
					t.Errorf("%s of %s has restarted %d times", c.Name, p.Name, c.RestartCount)
				}
			}
		}
	}
	until(t, 30*time.Second, "the metrics Service has an address for each pod", func(ctx context.Context) error {
		list, err := w.Kube().DiscoveryV1().EndpointSlices(first).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=rook-ceph-cephfs-csi-ceph-com-liveness"})
		if err != nil {
			return err
		}
		n := 0
		for _, s := range list.Items {
			n += len(s.Endpoints)
		}
		if n != 2*nodes {
			return fmt.Errorf("it has %d, not %d", n, 2*nodes)
		}
		return nil
	})
}

// profiles are a connection and a profile of one name.
func profiles(namespace, name, monitor string) string {
	return fmt.Sprintf(`apiVersion: csi.ceph.io/v1
kind: CephConnection
metadata: {name: %[2]s, namespace: %[1]s}
spec: {monitors: [%[3]q]}
---
apiVersion: csi.ceph.io/v1
kind: ClientProfile
metadata: {name: %[2]s, namespace: %[1]s}
spec: {cephConnectionRef: {name: %[2]s}}
`, namespace, name, monitor)
}

// seen is a pod that reads the configuration.
type seen struct{ pod, container string }

func testConfig(t *testing.T, w *world) {
	w.Apply(t, profiles(first, "cluster-d", "10.0.0.1:3300"))
	w.untilPhase(t, "clientprofiles", first, "cluster-d", "Ready")
	w.untilStored(t, first, "config.json", "config.json has the profile", func(s string) bool { return strings.Contains(s, `"clusterID":"cluster-d"`) })
	var all []seen
	for app, container := range map[string]string{rbd + "-nodeplugin": "csi-rbdplugin", rbd + "-ctrlplugin": "csi-rbdplugin", cephfs + "-nodeplugin": "csi-cephfsplugin", cephfs + "-ctrlplugin": "csi-cephfsplugin"} {
		for _, p := range w.pods(t, first, app) {
			all = append(all, seen{p.Name, container})
		}
	}
	// By itself, as long as it takes: a ClientProfile changes while nothing else does.
	begun := time.Now()
	w.patch(t, "clientprofiles", "cluster-d", `{"spec":{"cephFs":{"subVolumeGroup":"lab"}}}`)
	text := w.untilStored(t, first, "config.json", "config.json has the change", func(s string) bool { return strings.Contains(s, `"subvolumeGroup":"lab"`) })
	measured(t, "config/profile-to-configmap", time.Since(begun))
	left := all
	var arrived []time.Duration
	until(t, 3*time.Minute, "every pod sees the change", func(ctx context.Context) error {
		var still []seen
		for _, s := range left {
			got, err := w.read(ctx, first, s.pod, s.container, configFile)
			if err != nil {
				return err
			}
			if got != text {
				still = append(still, s)
				continue
			}
			arrived = append(arrived, time.Since(begun))
		}
		if left = still; len(left) > 0 {
			return fmt.Errorf("%d of %d pods do not see it", len(left), len(all))
		}
		return nil
	})
	measured(t, "config/profile-to-first-pod", arrived[0])
	measured(t, "config/profile-to-last-pod", arrived[len(arrived)-1])
}

func testNamespaces(t *testing.T, w *world) {
	// The same rights for accounts of other names, which the Driver then has to name.
	w.Apply(t, replace(t, file(t, "csi", "rbac", "rbd.yaml"), "namespace: rook-ceph", "namespace: "+second, "ceph-csi-operator-rbd", "b-rbd"))
	w.Apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: `+second+`, labels: {pod-security.kubernetes.io/enforce: privileged}}}`)
	before, err := w.stored(t.Context(), first, "config.json")
	if err != nil {
		t.Fatal(err)
	}
	w.Apply(t, `apiVersion: csi.ceph.io/v1
kind: Driver
metadata: {name: storage-b.rbd.csi.ceph.com, namespace: storage-b}
spec:
  snapshotPolicy: none
  controllerPlugin: {serviceAccountName: b-rbd-ctrlplugin-sa, replicas: 1}
  nodePlugin: {serviceAccountName: b-rbd-nodeplugin-sa}
---
`+profiles(second, "cluster-d", "10.9.9.9:3300")+`---
apiVersion: csi.ceph.io/v1
kind: ClientProfileReplication
metadata: {name: astray, namespace: storage-b}
spec: {localClientProfile: only-in-the-first, remoteClientProfile: x}
`)
	until(t, 2*time.Minute, "three drivers are registered on every node", func(ctx context.Context) error { return w.registered(ctx, rbd, cephfs, other) })
	w.untilPhase(t, "drivers", second, other, "Ready")
	w.untilPhase(t, "clientprofiles", second, "cluster-d", "Ready")
	if m, want := w.untilPhase(t, "clientprofilereplications", second, "astray", "Rejected"), "rejected: ClientProfile 'only-in-the-first' not found"; m != want {
		t.Errorf("the message is %q, not %q", m, want)
	}
	for _, p := range w.pods(t, second, other+"-nodeplugin") {
		w.poke(t, second, p.Name)
		until(t, time.Minute, p.Name+" sees its own namespace's profile alone", func(ctx context.Context) error {
			got, err := w.read(ctx, second, p.Name, "csi-rbdplugin", configFile)
			if err == nil && (!strings.Contains(got, "10.9.9.9:3300") || strings.Contains(got, "10.0.0.1:3300")) {
				err = fmt.Errorf("it sees %s", got)
			}
			return err
		})
	}
	after, err := w.stored(t.Context(), first, "config.json")
	if err != nil || after != before {
		t.Errorf("%v; the first namespace's config.json was\n%s\nand is\n%s", err, before, after)
	}
}

// Handles as they stand in PersistentVolumes: of a cluster that is gone, whose pool 1
// is pool 3 of cluster-d, and of a volume made in cluster-d.
const (
	uuid      = "b0285c97-a0ce-11eb-8c66-0242ac110002"
	oldHandle = "0001-0009-cluster-a-0000000000000001-" + uuid
	newHandle = "0001-0009-cluster-d-0000000000000003-" + uuid
	remote    = "0001-0009-cluster-b-0000000000000005-" + uuid
)

// server is the operator's image as what answers for destinations, with the stand-in
// beside it, which asks.
const server = `apiVersion: v1
kind: Pod
metadata: {name: destination, namespace: rook-ceph}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: castellan
      image: localhost/castellan:dev
      command: [castellan, replication-destination, --listen=unix:///csi/csi-addons.sock, "--pool=cluster-d:3=rbd", --driver-name=rook-ceph.rbd.csi.ceph.com]
      volumeMounts: [{name: socket, mountPath: /csi}, {name: config, mountPath: /etc/ceph-csi-config}]
    - name: asks
      image: localhost/csi-standin-plugin:dev
      args: [--type=liveness]
      volumeMounts: [{name: socket, mountPath: /csi}, {name: config, mountPath: /etc/ceph-csi-config}]
  volumes:
    - {name: socket, emptyDir: {}}
    - {name: config, configMap: {name: ceph-csi-config}}
`

const mapping = `apiVersion: csi.ceph.io/v1
kind: ClientProfileMapping
metadata: {name: old, namespace: rook-ceph}
spec: {mappings: [{localClientProfile: cluster-a, remoteClientProfile: cluster-d, blockPoolIdMapping: [["1", "3"]]}]}
`

const replication = `apiVersion: csi.ceph.io/v1
kind: ClientProfileReplication
metadata: {name: d-to-b, namespace: rook-ceph}
spec: {localClientProfile: cluster-d, remoteClientProfile: cluster-b, rbd: {poolMapping: [{name: rbd, remoteID: "5"}]}}
`

// answer is what the gRPC server says.
type answer struct{ Code, Volume, Message string }

// ask asks for a volume's destination over gRPC, in the pod.
func (w *world) ask(t *testing.T, handle string) answer {
	t.Helper()
	r, err := w.PodExec(t.Context(), first, "destination", "asks", standin, "destination", "/csi/csi-addons.sock", handle)
	if err != nil || r.Code != 0 {
		t.Fatalf("asking for %s: %v %s", handle, err, r.Stderr)
	}
	var a answer
	if err := json.Unmarshal([]byte(r.Stdout), &a); err != nil {
		t.Fatalf("%v: %s", err, r.Stdout)
	}
	return a
}

// explain runs "castellan destination" in the pod.
func (w *world) explain(t *testing.T, handle string) string {
	t.Helper()
	r, err := w.PodExec(t.Context(), first, "destination", "castellan", "castellan", "destination", "--pool=cluster-d:3=rbd", handle)
	if err != nil {
		t.Fatal(err)
	}
	return r.Stdout + r.Stderr
}

// untilMounted waits until the pod sees what the ConfigMap holds.
func (w *world) untilMounted(t *testing.T) {
	t.Helper()
	w.poke(t, first, "destination")
	until(t, time.Minute, "the pod sees what the ConfigMap holds", func(ctx context.Context) error {
		for _, key := range []string{"config.json", "cluster-mapping.json"} {
			want, err := w.stored(ctx, first, key)
			if err != nil {
				return err
			}
			got, err := w.read(ctx, first, "destination", "asks", "/etc/ceph-csi-config/"+key)
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("%s: it sees %s, and %s is stored", key, got, want)
			}
		}
		return nil
	})
}

func testMigration(t *testing.T, w *world) {
	w.Apply(t, mapping)
	w.untilStored(t, first, "cluster-mapping.json", "the mapping is stored", func(s string) bool { return strings.Contains(s, "cluster-a") })
	w.Apply(t, server)
	w.MustKubectl(t, "-n", first, "wait", "--for=condition=Ready", "--timeout=60s", "pod/destination")
	w.untilMounted(t)
	check := func(when, handle, code, volume string) {
		t.Helper()
		if a := w.ask(t, handle); a.Code != code || a.Volume != volume {
			t.Errorf("%s: %s gets %+v, not %s %s", when, handle, a, code, volume)
		}
	}
	says := func(when, handle string, want ...string) {
		t.Helper()
		text := w.explain(t, handle)
		for _, s := range want {
			if !strings.Contains(text, s) {
				t.Errorf("%s: castellan destination %s is without %q:\n%s", when, handle, s, text)
			}
		}
	}
	// Before: the mapping finds old volumes; nobody knows a destination, and an
	// orchestrator has to ask again.
	check("mapping alone", oldHandle, "Unavailable", "")
	check("mapping alone", newHandle, "Unavailable", "")
	says("mapping alone", oldHandle, `client profile "cluster-d", pool id 3`, "create a ClientProfileReplication with localClientProfile cluster-d")

	// The replication is added beside it; both stand in the one ConfigMap.
	begun := time.Now()
	w.Apply(t, replication)
	w.untilStored(t, first, "config.json", "the destination is stored", func(s string) bool { return strings.Contains(s, `"remoteClusterID":"cluster-b"`) })
	measured(t, "migration/replication-to-configmap", time.Since(begun))
	w.untilPhase(t, "clientprofilereplications", first, "d-to-b", "Ready")
	if s, err := w.stored(t.Context(), first, "cluster-mapping.json"); err != nil || !strings.Contains(s, "cluster-a") {
		t.Fatalf("%v; the mapping is gone: %s", err, s)
	}
	w.untilMounted(t)
	check("both", oldHandle, "OK", remote)
	check("both", newHandle, "OK", remote)
	says("both", oldHandle, "cluster-mapping.json", remote)

	// The end: no PersistentVolume has an old handle any more.
	w.MustKubectl(t, "-n", first, "delete", "clientprofilemappings.csi.ceph.io", "old")
	w.untilStored(t, first, "cluster-mapping.json", "the mapping is taken away", func(s string) bool { return !strings.Contains(s, "cluster-a") })
	w.untilMounted(t)
	check("replication alone", newHandle, "OK", remote)
	check("replication alone, for a handle that was left behind", oldHandle, "NotFound", "")

	// While the replication is there, the profile stays.
	w.MustKubectl(t, "-n", first, "delete", "clientprofiles.csi.ceph.io", "cluster-d", "--wait=false")
	until(t, 30*time.Second, "the profile says why it stays", func(ctx context.Context) error {
		s, err := w.status(ctx, "clientprofiles", first, "cluster-d")
		if err == nil && !strings.Contains(s.Message, "cannot delete: ClientProfileReplication CRs still reference this profile: [d-to-b]") {
			err = errors.New(s.Message)
		}
		return err
	})
	check("profile being deleted", newHandle, "OK", remote)
	w.MustKubectl(t, "-n", first, "delete", "clientprofilereplications.csi.ceph.io", "d-to-b")
	until(t, 30*time.Second, "the profile goes", func(ctx context.Context) error {
		_, err := w.status(ctx, "clientprofiles", first, "cluster-d")
		return gone(err)
	})
	w.untilStored(t, first, "config.json", "its record goes", func(s string) bool { return !strings.Contains(s, "cluster-d") })
}

// An image set that changes rolls the driver out by itself.
func testImages(t *testing.T, w *world) {
	w.MustKubectl(t, "-n", first, "patch", "configmap", "standin", "--type=merge", "-p", `{"data":{"plugin":"localhost/nowhere:1"}}`)
	until(t, 30*time.Second, "the Driver says that pods are missing", func(ctx context.Context) error {
		s, err := w.status(ctx, "drivers", first, cephfs)
		if err == nil && s.Phase != "Progressing" {
			err = fmt.Errorf("phase %s: %s", s.Phase, s.Message)
		}
		return err
	})
	w.MustKubectl(t, "-n", first, "patch", "configmap", "standin", "--type=merge", "-p", `{"data":{"plugin":"`+roleImage("plugin")+`"}}`)
	w.untilPhase(t, "drivers", first, cephfs, "Ready")
}

func testDelete(t *testing.T, w *world) {
	begun := time.Now()
	w.MustKubectl(t, "-n", first, "delete", "drivers.csi.ceph.io", cephfs, "--wait=false")
	until(t, 90*time.Second, "the kubelets have forgotten the driver", func(ctx context.Context) error { return w.registered(ctx, rbd, other) })
	measured(t, "drivers/deleted-to-unregistered", time.Since(begun))
	until(t, time.Minute, "CSIDriver, workloads and Service are gone", func(ctx context.Context) error {
		_, err := w.Kube().StorageV1().CSIDrivers().Get(ctx, cephfs, metav1.GetOptions{})
		errs := []error{gone(err)}
		_, err = w.Kube().AppsV1().DaemonSets(first).Get(ctx, cephfs+"-nodeplugin", metav1.GetOptions{})
		errs = append(errs, gone(err))
		_, err = w.Kube().AppsV1().Deployments(first).Get(ctx, cephfs+"-ctrlplugin", metav1.GetOptions{})
		errs = append(errs, gone(err))
		_, err = w.Kube().CoreV1().Services(first).Get(ctx, "rook-ceph-cephfs-csi-ceph-com-liveness", metav1.GetOptions{})
		return errors.Join(append(errs, gone(err))...)
	})
	w.untilPhase(t, "drivers", first, rbd, "Ready")
}
