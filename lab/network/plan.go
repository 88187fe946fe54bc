// Package network is the network of a lab: which address everything has, and
// the bridge, veth pairs and routes that carry it. All of it lives inside one
// network namespace per lab that has no way out, so two labs use the same
// addresses and no packet can leave the machine.
//
// It must not touch the host's own namespace: its functions act on the
// namespace of the calling thread, which is the lab's.
package network

import (
	"fmt"
	"net/netip"
)

// MaxNodes is how many nodes the address plan has room for: node i is .10+i in
// a /24, and pods of node i have the third octet i.
const MaxNodes = 200

// Addresses of a lab. They are the same in every lab.
const (
	// Bridge is the bridge in the lab's namespace that joins the nodes.
	Bridge = "lab0"
	// PodCIDR holds the pods of all nodes.
	PodCIDR = "10.244.0.0/16"
	// ServiceCIDR holds the cluster IPs of Services.
	ServiceCIDR = "10.96.0.0/16"
	// KubernetesIP is the cluster IP of the Service "kubernetes": the first of
	// ServiceCIDR.
	KubernetesIP = "10.96.0.1"
	// DNSIP is the cluster IP of the cluster's DNS.
	DNSIP = "10.96.0.10"
	// ControlIP is where the control plane listens, and the nodes' gateway.
	ControlIP = "172.30.0.1"
	// prefixBits is the size of the network that nodes share.
	prefixBits = 24
)

// Node is what the plan says about one node.
type Node struct {
	Name    string       // "node1", ...
	Index   int          // from 1
	Addr    netip.Prefix // its address on the bridge
	PodCIDR netip.Prefix // its pods
	Veth    string       // the end of its cable at the bridge
}

// Plan returns the nodes 1..n of a lab.
func Plan(n int) ([]Node, error) {
	if n < 1 || n > MaxNodes {
		return nil, fmt.Errorf("%d nodes: a lab has 1 to %d", n, MaxNodes)
	}
	out := make([]Node, 0, n)
	for i := 1; i <= n; i++ {
		last := byte(10 + i)
		out = append(out, Node{
			Name:    fmt.Sprintf("node%d", i),
			Index:   i,
			Addr:    netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, 0, last}), prefixBits),
			PodCIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24),
			Veth:    fmt.Sprintf("veth%d", i),
		})
	}
	return out, nil
}

// Route says through which gateway a network is reached.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// NodeRoutes are the routes of the node self: the default one to the control
// plane, and one to the pods of each other node.
func NodeRoutes(self Node, all []Node) []Route {
	out := []Route{{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: netip.MustParseAddr(ControlIP)}}
	for _, n := range all {
		if n.Index != self.Index {
			out = append(out, Route{To: n.PodCIDR, Via: n.Addr.Addr()})
		}
	}
	return out
}

// ControlRoutes are the routes of the lab's namespace, where the control plane
// runs: to the pods of every running node, and to Services through the first
// running one, whose kube-proxy translates for those outside the cluster.
func ControlRoutes(running []Node) []Route {
	var out []Route
	for _, n := range running {
		out = append(out, Route{To: n.PodCIDR, Via: n.Addr.Addr()})
	}
	if len(running) > 0 {
		out = append(out, Route{To: netip.MustParsePrefix(ServiceCIDR), Via: running[0].Addr.Addr()})
	}
	return out
}
