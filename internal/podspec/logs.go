package podspec

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

const logDir = "/var/log/ceph"

// LogPath is the daemon's log file in its pod. The directory is shared with all
// daemons of the cluster on the node, so it names one file and never a pattern:
// "osd.1*" would also be that of osd.10.
func (d Daemon) LogPath() string {
	return logDir + "/" + cmp.Or(d.LogName, "ceph-"+d.Type+"."+d.ID+".log")
}

// addLogCollector adds the sidecar that rotates the daemon's log file. It tells
// the daemon to reopen the file through its admin socket, so it needs no view of
// the daemon's processes.
func addLogCollector(pod *corev1.PodSpec, c Cluster, d Daemon) {
	args := []string{"rotate-logs", d.Type, d.ID, "--file", d.LogPath(), "--period", c.LogCollector.Periodicity}
	// In bytes: castellan-node does not know Kubernetes' quantities.
	if size, err := resource.ParseQuantity(c.LogCollector.MaxSize); err == nil && size.Value() > 0 {
		args = append(args, "--max-size", strconv.FormatInt(size.Value(), 10))
	}
	security := Daemonic(c)
	if security.Privileged == nil || !*security.Privileged {
		security.ReadOnlyRootFilesystem = ptr.To(true)
	}
	pod.Containers = append(pod.Containers, corev1.Container{
		Name: "log-collector", Image: c.CephImage, ImagePullPolicy: c.PullPolicy, Command: []string{Bin}, Args: args,
		Resources: c.LogCollector.Resources, SecurityContext: security,
		VolumeMounts: []corev1.VolumeMount{
			{Name: VolumeBin, MountPath: "/castellan", ReadOnly: true},
			{Name: VolumeLog, MountPath: logDir},
			{Name: VolumeSockets, MountPath: "/run/ceph"},
		},
	})
}
