package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetupBridge brings up the loopback device and the bridge of a fresh lab
// namespace, with the control plane's address on it.
func SetupBridge() error {
	if err := up("lo"); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("adding the bridge %s: %w", Bridge, err)
	}
	if err := addAddr(Bridge, netip.PrefixFrom(netip.MustParseAddr(ControlIP), prefixBits)); err != nil {
		return err
	}
	return up(Bridge)
}

// Plug gives the node with this init process (a pid as the caller sees it) an
// eth0 whose other end is on the bridge.
func Plug(n Node, pid int) error {
	if err := Unplug(n); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.Veth
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding the cable of %s: %w", n.Name, err)
	}
	if err := up(n.Veth); err != nil {
		return err
	}
	return Heal(n)
}

// Unplug removes the cable of a node; it is no error when there is none.
func Unplug(n Node) error {
	link, err := netlink.LinkByName(n.Veth)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the cable of %s: %w", n.Name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the cable of %s: %w", n.Name, err)
	}
	return nil
}

// Partition takes the node off the bridge. The node keeps its carrier and its
// addresses, and what it sends arrives nowhere: the way a switch fails.
func Partition(n Node) error {
	link, err := netlink.LinkByName(n.Veth)
	if err != nil {
		return fmt.Errorf("looking for the cable of %s: %w", n.Name, err)
	}
	if err := netlink.LinkSetNoMaster(link); err != nil {
		return fmt.Errorf("taking %s off the bridge: %w", n.Name, err)
	}
	return nil
}

// Heal puts the node on the bridge; it undoes Partition.
func Heal(n Node) error {
	link, err := netlink.LinkByName(n.Veth)
	if err != nil {
		return fmt.Errorf("looking for the cable of %s: %w", n.Name, err)
	}
	br, err := netlink.LinkByName(Bridge)
	if err != nil {
		return fmt.Errorf("looking for the bridge: %w", err)
	}
	if err := netlink.LinkSetMaster(link, br); err != nil {
		return fmt.Errorf("putting %s on the bridge: %w", n.Name, err)
	}
	return nil
}

// SetControlRoutes makes the routes of the lab's namespace those of
// ControlRoutes for the running nodes, and removes those of the others.
func SetControlRoutes(running, all []Node) error {
	for _, n := range all {
		if err := delRoute(n.PodCIDR); err != nil {
			return err
		}
	}
	if err := delRoute(netip.MustParsePrefix(ServiceCIDR)); err != nil {
		return err
	}
	return addRoutes(ControlRoutes(running))
}

// SetupNode configures the network of a node from inside its namespace: eth0
// must be there.
func SetupNode(addr netip.Prefix, routes []Route) error {
	if err := up("lo"); err != nil {
		return err
	}
	if err := addAddr("eth0", addr); err != nil {
		return err
	}
	if err := up("eth0"); err != nil {
		return err
	}
	if err := addRoutes(routes); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("turning on forwarding: %w", err)
	}
	return nil
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up %s: %w", name, err)
	}
	return nil
}

func addAddr(name string, addr netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr)}); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", name, addr, err)
	}
	return nil
}

func addRoutes(routes []Route) error {
	for _, r := range routes {
		if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(r.To), Gw: r.Via.AsSlice()}); err != nil {
			return fmt.Errorf("adding the route to %s via %s: %w", r.To, r.Via, err)
		}
	}
	return nil
}

func delRoute(to netip.Prefix) error {
	err := netlink.RouteDel(&netlink.Route{Dst: ipNet(to)})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("removing the route to %s: %w", to, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func notFound(err error) bool {
	var nf netlink.LinkNotFoundError
	return errors.As(err, &nf)
}
