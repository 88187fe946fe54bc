package guest

import (
	"fmt"
	"net/netip"

	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/network"
)

// Guests in a lab's network take the last byte of their address from here
// downwards; nodes count upwards from 11 to 210.
const (
	lastGuestByte  = 250
	firstGuestByte = 220
)

// JoinLab says how to put a guest onto the network of the running lab with
// this name: on the bridge beside its nodes.
func JoinLab(name string) (*Join, error) {
	l, err := state.Running(name)
	if err != nil {
		return nil, err
	}
	return &Join{
		Lab: name, Pid: l.Pid, Bridge: network.Bridge,
		Gateway: netip.PrefixFrom(netip.MustParseAddr(network.ControlIP), 24),
	}, nil
}

// freeAddress chooses a guest's address in the network of join, given the
// records of all guests.
func freeAddress(join *Join, others []*record) (netip.Prefix, error) {
	used := map[netip.Addr]bool{}
	for _, o := range others {
		if o.Lab == join.Lab {
			used[o.Address.Addr()] = true
		}
	}
	for last := lastGuestByte; last >= firstGuestByte; last-- {
		b := join.Gateway.Addr().As4()
		b[3] = byte(last)
		if a := netip.AddrFrom4(b); !used[a] {
			return netip.PrefixFrom(a, join.Gateway.Bits()), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("the lab %s has no free address for another guest", join.Lab)
}

// leaveLab removes the tap device of the guest in dir from its lab's network.
// A network of its own, or a lab that is down, has gone with its processes.
func leaveLab(dir string) error {
	rec, err := load(dir)
	if err != nil || rec.Lab == "" {
		// Without a readable record there never was a device: it is made
		// after the record.
		return nil
	}
	alive, err := rec.LabProcess.alive()
	if err != nil || !alive {
		return err
	}
	return inNetNS(netNSOf(rec.LabProcess.Pid), func() error { return removeTap(tapName(rec)) })
}
