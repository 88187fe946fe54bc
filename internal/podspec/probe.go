package podspec

import (
	corev1 "k8s.io/api/core/v1"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
)

// Probes are the built-in checks: the daemon answers on its admin socket. The
// question costs nothing, but to run a program in a container costs a node a tenth of
// a second of a core and more, just while its daemons start. So a daemon is asked when
// it can have an answer first, and then as often as somebody waits for it: of an OSD and
// a mgr, which take some seconds, Ceph says whether they are up. startup is how many
// seconds it may take at most.
func Probes(d Daemon, startup int32) (startupProbe, liveness *corev1.Probe) {
	check := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{Bin, "probe", d.Type, d.ID}}}
	first, every := int32(1), int32(2)
	if d.Type == "osd" || d.Type == "mgr" {
		first, every = 4, 4
	}
	startupProbe = &corev1.Probe{ProbeHandler: check, InitialDelaySeconds: first, PeriodSeconds: every, TimeoutSeconds: 5, FailureThreshold: max(startup/every, 1)}
	liveness = &corev1.Probe{ProbeHandler: check, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3}
	return startupProbe, liveness
}

// Override applies the user's changes to a probe. A handler of the user replaces
// the check, or is the check where there is none of ours; numbers that the user
// gives replace ours.
func Override(probe *corev1.Probe, spec *cephv1.ProbeSpec) *corev1.Probe {
	if spec == nil {
		return probe
	}
	if spec.Disabled {
		return nil
	}
	if spec.Probe == nil {
		return probe
	}
	p := spec.Probe.DeepCopy()
	if probe == nil {
		if p.ProbeHandler == (corev1.ProbeHandler{}) {
			return nil // numbers for a check that there is not
		}
		return p
	}
	if p.ProbeHandler == (corev1.ProbeHandler{}) {
		p.ProbeHandler = probe.ProbeHandler
	}
	for _, f := range []struct{ to, from *int32 }{
		{&p.InitialDelaySeconds, &probe.InitialDelaySeconds}, {&p.TimeoutSeconds, &probe.TimeoutSeconds},
		{&p.PeriodSeconds, &probe.PeriodSeconds}, {&p.FailureThreshold, &probe.FailureThreshold}, {&p.SuccessThreshold, &probe.SuccessThreshold},
	} {
		if *f.to == 0 {
			*f.to = *f.from
		}
	}
	return p
}
