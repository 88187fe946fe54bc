package guest

// What the tests that boot guests look at from outside the package.

// InNewNetNS runs f in a fresh network namespace.
func InNewNetNS(f func() error) error { return inNetNS(newNetNS, f) }

// InNetNSOf runs f in the network namespace of a process.
func InNetNSOf(pid int, f func() error) error { return inNetNS(netNSOf(pid), f) }

// TapName is the machine's side of the guest's cable.
func TapName(g *Guest) string { return tapName(g.rec) }
