package cephtest

// DaemonOption says something about a daemon that is started.
type DaemonOption func(*daemonSpec)

type daemonSpec struct{ version, host string }

// Version is the version a daemon runs, e.g. "20.2.4".
func Version(v string) DaemonOption { return func(d *daemonSpec) { d.version = v } }

// OnHost is the host name a daemon reports.
func OnHost(h string) DaemonOption { return func(d *daemonSpec) { d.host = h } }

func (c *Cluster) daemon(opts []DaemonOption) daemonSpec {
	d := daemonSpec{version: c.version}
	for _, o := range opts {
		o(&d)
	}
	return d
}
