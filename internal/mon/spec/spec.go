// Package spec builds the Kubernetes objects of mons: Deployment, Service, the
// canary that finds a node, volume claim, disruption budget, and the objects
// that tell everybody else where the mons are.
//
// It is pure, and it must not decide which mons there are: internal/mon/plan
// does.
package spec

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/podspec"
)

// App is the label app of mons; it begins the names of their objects.
const App = "rook-ceph-mon"

// Marks on a mon's Deployment: what cannot be read from anywhere else and must
// survive a restart of the operator.
const (
	LeavingAnnotation  = "castellan.ceph.io/mon-leaving"
	OutSinceAnnotation = "castellan.ceph.io/mon-out-since"
	RoomMadeAnnotation = "castellan.ceph.io/mon-room-made"

	// CanaryLabel marks canaries, as users know it.
	CanaryLabel = "mon_canary"
)

// Mon is one mon to build.
type Mon struct {
	ID   string
	Addr netip.AddrPort
	// Place it is pinned to, nil for none.
	Place *endpoints.Place
	// HostNetwork mons bind to the node's own address.
	HostNetwork bool
	// Zone label and value for spread mons, or "".
	ZoneLabel, Zone string
	// Claim keeps the data on a volume; nil keeps it on the node.
	Claim *cephv1.VolumeClaimTemplate
	// Probes of the user.
	Startup, Liveness *cephv1.ProbeSpec
	// Spread puts mons on different nodes: required unless several are allowed on
	// one.
	AllowMultiplePerNode bool
}

// Stay takes over from a mon's Deployment what a change of the CephCluster cannot
// change for it: where its data is, since a mon that starts on an empty volume has
// forgotten the cluster, and its network, since its address is in the monmap. Mons
// that come later are made as the spec says.
func (m *Mon) Stay(live *appsv1.Deployment) {
	if live == nil {
		return
	}
	m.HostNetwork = live.Spec.Template.Spec.HostNetwork
	for _, v := range live.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != podspec.VolumeData:
		case v.HostPath != nil:
			m.Claim = nil
		case v.PersistentVolumeClaim != nil && m.Claim == nil:
			m.Claim = &cephv1.VolumeClaimTemplate{}
		}
	}
}

// Name of the mon's Deployment, Service and claim.
func Name(id string) string { return App + "-" + id }

// CanaryName is the name of the pod that finds a node.
func CanaryName(id string) string { return Name(id) + "-canary" }

// Daemon describes a mon for podspec.
func Daemon(c podspec.Cluster, m Mon) podspec.Daemon {
	d := podspec.Daemon{
		Type: "mon", ID: m.ID, App: App, Name: Name(m.ID), Key: cephv1.KeyMon, Keyring: identity.MonsKeyring,
	}
	if m.Claim != nil {
		d.Data = &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: Name(m.ID)}}
		d.DataSubPath = "data"
	} else {
		d.Data = &corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: c.DataDir + "/mon-" + m.ID + "/data", Type: ptr.To(corev1.HostPathDirectoryOrCreate),
		}}
	}
	return d
}

// Deployment of a mon.
func Deployment(c podspec.Cluster, m Mon, u podspec.User) *appsv1.Deployment {
	d := Daemon(c, m)
	c.HostNetwork = m.HostNetwork
	pod := corev1.PodSpec{
		InitContainers: []corev1.Container{
			podspec.CopyBin(c),
			podspec.Prepare(c, d, "init-mon-fs", store(c, d, m)...),
		},
		Containers: []corev1.Container{container(c, d, m, u)},
		Volumes:    podspec.Volumes(c, d),
	}
	place(c, &pod, m, u)
	if m.Place != nil && m.bound() {
		pod.NodeSelector = map[string]string{corev1.LabelHostname: m.Place.Hostname}
	}
	if m.Claim != nil {
		podspec.LeaveUnreachable(&pod, c)
	}
	return podspec.Deployment(c, d, pod, u)
}

// bound reports whether a mon can run on its node only: its data or its address is
// that node's.
func (m Mon) bound() bool { return m.Claim == nil || m.HostNetwork }

// store is the command that makes a mon's store where there is none.
func store(c podspec.Cluster, d podspec.Daemon, m Mon) []string {
	command := []string{podspec.Bin, "make-mon", "--id=" + d.ID, "--fsid=" + c.FSID, "--", "ceph-mon"}
	return append(append(command, flags(c, d, m)...), "--mkfs")
}

func flags(c podspec.Cluster, d podspec.Daemon, m Mon) []string {
	return append(podspec.Flags(c, d), "--public-addr="+m.Addr.Addr().String())
}

func container(c podspec.Cluster, d podspec.Daemon, m Mon, u podspec.User) corev1.Container {
	// The election timeout is Ceph's own. With a shorter one the majority of a new cluster
	// does not wait for a mon that starts a second later, and goes on with a map in which
	// that mon has no address; mons were seen to fail an assertion when it came.
	args := append(flags(c, d, m), "--foreground", "--setuser-match-path="+d.DataDir()+"/store.db")
	v2only := m.Addr.Port() == endpoints.PortV2
	if !m.HostNetwork {
		bind := "$(ROOK_POD_IP)"
		if v2only {
			if m.Addr.Addr().Is6() {
				bind = "[" + bind + "]"
			}
			bind += ":" + strconv.Itoa(endpoints.PortV2)
		}
		args = append(args, "--public-bind-addr="+bind)
	}
	if v2only {
		args = append(args, "--ms-bind-msgr1=false")
	}
	if m.Zone != "" {
		args = append(args, "--set-crush-location", zoneType(m.ZoneLabel)+"="+m.Zone)
	}
	startup, liveness := podspec.Probes(d, 60)
	return corev1.Container{
		Name: "mon", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{"ceph-mon"}, Args: args,
		Env:           append(podspec.Env(c), podspec.FieldEnv("ROOK_POD_IP", "status.podIP")),
		Ports:         ports(m),
		VolumeMounts:  podspec.Mounts(d),
		WorkingDir:    "/var/log/ceph",
		Resources:     u.Resources,
		StartupProbe:  podspec.Override(startup, m.Startup),
		LivenessProbe: podspec.Override(liveness, m.Liveness),
		// Ready at once after the startup probe: clients reach a mon through its
		// Service, and the Service also publishes mons that are not ready.
		SecurityContext: podspec.Daemonic(c),
	}
}

// zoneType is the CRUSH type behind a topology label: its last part.
func zoneType(label string) string {
	for i := len(label) - 1; i >= 0; i-- {
		if label[i] == '/' {
			return label[i+1:]
		}
	}
	return label
}

func ports(m Mon) []corev1.ContainerPort {
	p := []corev1.ContainerPort{{Name: "tcp-msgr2", ContainerPort: endpoints.PortV2, Protocol: corev1.ProtocolTCP}}
	if m.Addr.Port() != endpoints.PortV2 {
		p = append(p, corev1.ContainerPort{Name: "tcp-msgr1", ContainerPort: endpoints.PortV1, Protocol: corev1.ProtocolTCP})
	}
	return p
}

// place says where a mon may run, for the canary as for the mon.
func place(c podspec.Cluster, pod *corev1.PodSpec, m Mon, u podspec.User) {
	podspec.Place(pod, u.Placement)
	podspec.Apart(pod, map[string]string{"app": App, "rook_cluster": c.Namespace}, corev1.LabelHostname, !m.AllowMultiplePerNode || m.HostNetwork)
	if m.Zone != "" {
		requireNode(pod, m.ZoneLabel, m.Zone)
	}
}

// requireNode adds a label to every node selector term, so that it holds whatever
// else the user asks for.
func requireNode(pod *corev1.PodSpec, label, value string) {
	req := corev1.NodeSelectorRequirement{Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	na := pod.Affinity.NodeAffinity
	if na.RequiredDuringSchedulingIgnoredDuringExecution == nil || len(na.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
		na.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := na.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		terms[i].MatchExpressions = append(terms[i].MatchExpressions, req)
	}
}

// NeverThere names a ConfigMap that nobody makes. A canary mounts it, and so the kubelet
// waits with its sandbox: all that is wanted of a canary is the scheduler's answer, and
// one that runs costs its node as much as a mon that starts.
const NeverThere = "rook-ceph-mon-canary-is-placed-but-never-started"

// Canary is a pod with a mon's placement and requests that is never started. Where
// the scheduler puts it, the mon will be pinned. It ends by itself, so that a
// forgotten one takes no room for ever.
func Canary(c podspec.Cluster, m Mon, u podspec.User) *corev1.Pod {
	labels := podspec.Labels(c, Daemon(c, m))
	labels[CanaryLabel] = "true"
	c.HostNetwork = m.HostNetwork
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: "rook-ceph-default", HostNetwork: m.HostNetwork,
		AutomountServiceAccountToken:  ptr.To(false),
		ActiveDeadlineSeconds:         ptr.To(int64((30 * time.Minute).Seconds())),
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		PriorityClassName:             u.PriorityClass,
		Containers: []corev1.Container{{
			Name: "mon", Image: c.NodeImage, ImagePullPolicy: c.PullPolicy, Command: []string{"castellan-node", "pause"},
			Resources: u.Resources, SecurityContext: podspec.Confined(c), Ports: canaryPorts(m),
			// The kubelet only waits for volumes that a container mounts.
			VolumeMounts: []corev1.VolumeMount{{Name: "never-there", MountPath: "/never-there"}},
		}},
		Volumes: []corev1.Volume{{Name: "never-there", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: NeverThere},
		}}}},
	}
	if m.Claim != nil && m.bound() {
		// The mon follows its canary, so the volume has to be one that this node reaches.
		// No container mounts it: the kubelet leaves it alone.
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: podspec.VolumeData, VolumeSource: *Daemon(c, m).Data})
	}
	place(c, &pod, m, u)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: CanaryName(m.ID), Namespace: c.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec:       pod,
	}
}

// canaryPorts on the host network make the scheduler keep clear of nodes whose
// mon ports are taken.
func canaryPorts(m Mon) []corev1.ContainerPort {
	if !m.HostNetwork {
		return nil
	}
	p := ports(m)
	for i := range p {
		p[i].HostPort = p[i].ContainerPort
	}
	return p
}

// Service gives a mon an address that stays. It publishes the mon also while it
// is not ready: mons find each other through it before they have a quorum.
func Service(c podspec.Cluster, id string, v2only bool, families []corev1.IPFamily, policy *corev1.IPFamilyPolicy) *corev1.Service {
	d := Daemon(c, Mon{ID: id})
	port := func(name string, n int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: n, TargetPort: intstr.FromInt32(n), Protocol: corev1.ProtocolTCP}
	}
	ports := []corev1.ServicePort{port("tcp-msgr2", endpoints.PortV2)}
	if !v2only {
		ports = []corev1.ServicePort{port("tcp-msgr1", endpoints.PortV1), port("tcp-msgr2", endpoints.PortV2)}
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: c.Namespace, Labels: podspec.Labels(c, d), OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: corev1.ServiceSpec{
			Selector:                 map[string]string{"app": App, "mon": id, "rook_cluster": c.Namespace},
			Ports:                    ports,
			PublishNotReadyAddresses: true,
			IPFamilies:               families,
			IPFamilyPolicy:           policy,
		},
	}
}

// DefaultClaimSize of a mon's volume.
const DefaultClaimSize = "10Gi"

// Claim is a mon's volume claim.
func Claim(c podspec.Cluster, m Mon) *corev1.PersistentVolumeClaim {
	pvc := m.Claim.ToPVC()
	pvc.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	labels := podspec.Labels(c, Daemon(c, m))
	for k, v := range pvc.Labels {
		if _, ours := labels[k]; !ours {
			labels[k] = v
		}
	}
	pvc.ObjectMeta = metav1.ObjectMeta{
		Name: Name(m.ID), Namespace: c.Namespace, Labels: labels, Annotations: pvc.Annotations, OwnerReferences: []metav1.OwnerReference{c.Owner},
	}
	if len(pvc.Spec.AccessModes) == 0 {
		pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if _, ok := pvc.Spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(DefaultClaimSize)}
	}
	return pvc
}

// Budget lets Kubernetes drain one mon at a time (two of five), less those that
// are down already, so that a drain cannot take the quorum. It is nil for
// clusters that cannot lose one.
func Budget(c podspec.Cluster, count, down int) *policyv1.PodDisruptionBudget {
	if count <= 2 {
		return nil
	}
	allowed := 1
	if count >= 5 {
		allowed = 2
	}
	allowed = max(allowed-down, 0)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: App + "-pdb", Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt(allowed)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": App, "rook_cluster": c.Namespace}},
		},
	}
}

// EndpointObjects store the list: the ConfigMap that everybody reads, and the
// Secret that daemons take their mon_host from. csi is kept in the ConfigMap.
func EndpointObjects(c podspec.Cluster, l endpoints.List, csi string) (*corev1.ConfigMap, *corev1.Secret, error) {
	data, err := l.Data(csi)
	if err != nil {
		return nil, nil, fmt.Errorf("storing the list of mons: %w", err)
	}
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: endpoints.ConfigMap, Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}, Finalizers: []string{identity.Finalizer}},
		Data:       data,
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: endpoints.Secret, Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner}},
		Type:       identity.SecretType,
		Data:       map[string][]byte{"mon_host": []byte(l.MonHost()), "mon_initial_members": []byte(l.Members())},
	}
	return cm, secret, nil
}

// Slices are the EndpointSlices of rook-ceph-active-mons, one for each address
// family in use.
func Slices(c podspec.Cluster, l endpoints.List) []*discoveryv1.EndpointSlice {
	byFamily := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
	v2only := true
	for _, id := range l.IDs() {
		m := l.Mons[id]
		family := discoveryv1.AddressTypeIPv4
		if m.Addr.Addr().Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		v2only = v2only && m.Addr.Port() == endpoints.PortV2
		byFamily[family] = append(byFamily[family], discoveryv1.Endpoint{
			Addresses: []string{m.Addr.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(!m.OutOfQuorum)},
		})
	}
	ports := []discoveryv1.EndpointPort{{Name: ptr.To("tcp-msgr2"), Port: ptr.To[int32](endpoints.PortV2), Protocol: ptr.To(corev1.ProtocolTCP)}}
	if !v2only {
		ports = append(ports, discoveryv1.EndpointPort{Name: ptr.To("tcp-msgr1"), Port: ptr.To[int32](endpoints.PortV1), Protocol: ptr.To(corev1.ProtocolTCP)})
	}
	var slices []*discoveryv1.EndpointSlice
	for _, f := range []struct {
		family discoveryv1.AddressType
		suffix string
	}{{discoveryv1.AddressTypeIPv4, "-ipv4"}, {discoveryv1.AddressTypeIPv6, "-ipv6"}} {
		if len(byFamily[f.family]) == 0 {
			continue
		}
		slices = append(slices, &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta: metav1.ObjectMeta{
				Name: endpoints.Service + f.suffix, Namespace: c.Namespace, OwnerReferences: []metav1.OwnerReference{c.Owner},
				Labels: map[string]string{discoveryv1.LabelServiceName: endpoints.Service},
			},
			AddressType: f.family, Endpoints: byFamily[f.family], Ports: ports,
		})
	}
	return slices
}
