// Package guest runs storage guests: a User Mode Linux kernel as a process of
// this machine, with the device-mapper, dm-crypt, krbd and CephFS that the
// machine's own kernel may lack, disks that are plugged and pulled while it
// runs, and an agent through which commands run in it.
//
// A guest is one process, the first of a pid namespace of its own, in a
// network namespace of its own (or a lab's) that has no way out. When that
// process ends, however it ends, the kernel ends all of the guest with it:
// processes, network, tap device, memory. What is left then are files in the
// guest's directory, which Down removes.
//
// It must not know what is run in a guest (package guest/ceph does), nor how
// kernel and root file system are made (package build does). It runs nothing
// through a shell, in the guest or outside.
//
// What is needed of the root file system: udev with udevadm, kmod, iproute2,
// dmsetup, the kernel's modules under /lib/modules; cryptsetup for
// Options.FastLUKS. It may be any directory, is mounted read-only, and any
// number of guests can share it.
package guest
