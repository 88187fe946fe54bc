package layout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// rotateKey is the key of the ConfigMap and the name of the file that logrotate
// reads.
const rotateKey = "csi"

// rotateEvery is the time between two runs of logrotate.
const rotateEvery = "15m"

func (d driver) checkRotation() error {
	if !d.rotates() {
		return nil
	}
	r := d.Spec.Log.Rotation
	switch {
	case r.MaxFiles < 0:
		return fieldError("spec.log.rotation.maxFiles", "%d is negative", r.MaxFiles)
	case r.MaxLogSize != nil && r.MaxLogSize.Sign() < 0:
		return fieldError("spec.log.rotation.maxLogSize", "%s is negative", r.MaxLogSize)
	case r.Periodicity == "" && (r.MaxLogSize == nil || r.MaxLogSize.IsZero()):
		return fieldError("spec.log.rotation", "set maxLogSize, periodicity or both, else logs would never be rotated")
	}
	return nil
}

// rotateConfig is the configuration of logrotate.
func (d driver) rotateConfig() *corev1.ConfigMap {
	r := d.Spec.Log.Rotation
	lines := []string{"missingok", "compress", "copytruncate", "notifempty", fmt.Sprintf("rotate %d", r.MaxFiles)}
	if r.Periodicity != "" {
		lines = append(lines, string(r.Periodicity))
	}
	if r.MaxLogSize != nil && !r.MaxLogSize.IsZero() {
		// "maxsize" adds a limit to a period. Without a period logrotate would go by
		// its own default, a size of 1 MiB, so the limit has to be "size".
		word := "maxsize "
		if r.Periodicity == "" {
			word = "size "
		}
		lines = append(lines, word+rotateSize(*r.MaxLogSize))
	}
	text := "/csi-logs/*.log {\n\t" + strings.Join(lines, "\n\t") + "\n}\n"
	return &corev1.ConfigMap{ObjectMeta: d.meta(d.rotateName()), Data: map[string]string{rotateKey: text}}
}

// rotateSize writes a size as logrotate reads it: it knows k, M and G, all of them
// powers of 1024, and bytes.
func rotateSize(q resource.Quantity) string {
	bytes := q.Value()
	for _, unit := range []struct {
		size int64
		name string
	}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "k"}} {
		if bytes%unit.size == 0 {
			return fmt.Sprintf("%d%s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprint(bytes)
}

// logFile gives the arguments by which a driver writes a log file as well.
func (d driver) logFile(container string) []string {
	if !d.rotates() {
		return nil
	}
	return []string{"--logtostderr=false", "--alsologtostderr=true", "--log_file=csi-logs/" + container + ".log"}
}

// rotator is the container that rotates log files. logrotate is in the driver's
// image; castellan-node, copied in by copyBin, runs it every now and then.
func (d driver) rotator(pull corev1.PullPolicy, extra map[string][]string, r *corev1.ResourceRequirements, s *corev1.SecurityContext) []corev1.Container {
	if !d.rotates() || d.OperatorImage == "" {
		return nil
	}
	const name = "log-rotator"
	return []corev1.Container{{
		Name: name, Image: d.Images[ImagePlugin], ImagePullPolicy: pull,
		Command:   []string{binDir + "/castellan-node"},
		Args:      args(name, extra, "rotate-csi-logs", "--every="+rotateEvery, "/logrotate-config/"+rotateKey),
		Resources: resources(r), SecurityContext: s,
		VolumeMounts: []corev1.VolumeMount{
			mount("logs-dir", "/csi-logs"),
			mount("log-rotate-dir", "/logrotate-config"),
			readOnly("castellan-bin", binDir),
		},
	}}
}

// binDir is where copyBin puts castellan-node.
const binDir = "/castellan"

// copyBin is the init container that puts castellan-node into the pod.
func (d driver) copyBin(pull corev1.PullPolicy) []corev1.Container {
	if !d.rotates() || d.OperatorImage == "" {
		return nil
	}
	return []corev1.Container{{
		Name: "copy-castellan-node", Image: d.OperatorImage, ImagePullPolicy: pull,
		Command:         []string{"castellan-node", "copy", binDir},
		SecurityContext: confined(),
		VolumeMounts:    []corev1.VolumeMount{mount("castellan-bin", binDir)},
	}}
}

// rotateVolumes are the volumes of a pod whose logs go to files.
func (d driver) rotateVolumes(object string) []corev1.Volume {
	if !d.rotates() {
		return nil
	}
	vols := []corev1.Volume{
		hostPath("logs-dir", d.Spec.Log.Rotation.LogHostPath+"/"+object, corev1.HostPathDirectoryOrCreate),
		configMap("log-rotate-dir", d.rotateName()),
	}
	if d.OperatorImage != "" {
		vols = append(vols, corev1.Volume{Name: "castellan-bin", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	return vols
}
