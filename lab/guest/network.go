package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The network of a guest that has one of its own: two addresses, the machine's
// side and the guest's.
const (
	ownGateway = "10.99.77.1"
	ownAddress = "10.99.77.2/30"
)

// tapName is the machine's side of the cable. It is unique in its network
// namespace: a guest's own has one guest, in a lab's the last byte of the
// address tells them apart.
func tapName(r *record) string {
	if r.Lab == "" {
		return "guest0"
	}
	addr := r.Address.Addr().As4()
	return fmt.Sprintf("guest%d", addr[3])
}

// inNetNS runs f on a thread in another network namespace. enter puts the
// calling thread there; the thread ends with f, as it cannot be trusted to
// come back.
func inNetNS(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		if err := enter(); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// newNetNS puts the calling thread into a fresh network namespace, which lives
// as long as something runs in it.
func newNetNS() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("looking for the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bringing up the loopback device: %w", err)
	}
	return nil
}

// netNSOf puts the calling thread into the network namespace of a process.
func netNSOf(pid int) func() error {
	return func() error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the network namespace of process %d: %w", pid, err)
		}
		return nil
	}
}

// makeTap makes the machine's side of the cable in the network namespace of the
// calling thread: on the bridge, or with the gateway's address when there is
// none. It must be up before the guest is: a guest whose first packet is
// refused takes its device for broken.
func makeTap(r *record, bridge string) error {
	name := tapName(r)
	if err := removeTap(name); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	link := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("adding the tap device %s: %w", name, err)
	}
	if bridge != "" {
		br, err := netlink.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("looking for the bridge %s: %w", bridge, err)
		}
		if err := netlink.LinkSetMaster(link, br); err != nil {
			return fmt.Errorf("putting %s on the bridge %s: %w", name, bridge, err)
		}
	} else {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(r.Gateway, r.Address.Bits()))}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", name, addr, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up %s: %w", name, err)
	}
	return nil
}

// removeTap removes the device from the network namespace of the calling
// thread; it is no error when there is none.
func removeTap(name string) error {
	link, err := netlink.LinkByName(name)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the tap device %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the tap device %s: %w", name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// dialIn opens a connection from inside the network namespace of a process.
// The connection stays in that namespace wherever it is used.
func dialIn(ctx context.Context, pid int, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := inNetNS(netNSOf(pid), func() error {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
