package main

import (
	"regexp"
	"strings"
	"testing"
)

// accepts is LVM's rule (lvm.conf(5), devices/filter): each name of a device is decided by the
// first pattern that matches it; a device with a name that is accepted is taken, else one with
// a name that is rejected is not, and one that nothing matches is.
func accepts(t *testing.T, conf, setting string, names ...string) bool {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\s*` + setting + ` = \[(.*)\]$`).FindStringSubmatch(conf)
	if line == nil {
		t.Fatalf("there is no %s in %q", setting, conf)
	}
	patterns := regexp.MustCompile(`"([ar])\|([^|]*)\|"`).FindAllStringSubmatch(line[1], -1)
	if len(patterns) != strings.Count(line[1], ",")+1 {
		t.Fatalf("%s: a pattern of %q is not read", setting, line[1])
	}
	rejected := false
	for _, name := range names {
		for _, p := range patterns {
			if !regexp.MustCompile(p[2]).MatchString(name) {
				continue
			}
			if p[1] == "a" {
				return true
			}
			rejected = true
			break
		}
	}
	return !rejected
}

// A device of Ceph itself, or of the network, is not opened by any of its names: LVM would
// hang with it, or find a guest's volumes on it.
func TestWhatLVMMayOpen(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  bool
	}{
		{[]string{"/dev/sda", "/dev/disk/by-id/ata-X", "/dev/disk/by-path/pci-1"}, true},
		{[]string{"/dev/nvme0n1"}, true},
		{[]string{"/dev/mapper/vg-lv", "/dev/dm-3", "/dev/vg/lv"}, true},
		{[]string{"/dev/rbd0", "/dev/rbd/pool/image"}, false},
		{[]string{"/dev/disk/by-id/lvm-pv-uuid-x", "/dev/rbd0"}, false},
		{[]string{"/dev/rbd0p1", "/dev/disk/by-uuid/u", "/dev/disk/by-partuuid/v"}, false},
		{[]string{"/dev/disk/by-path/virtual-nbd", "/dev/nbd3"}, false},
		{[]string{"/dev/drbd1", "/dev/disk/by-path/x"}, false},
		{[]string{"/dev/zram0", "/dev/disk/by-label/swap"}, false},
	} {
		for _, setting := range []string{"filter", "global_filter"} {
			if got := accepts(t, lvmConf, setting, c.names...); got != c.want {
				t.Errorf("%s: %v: %v", setting, c.names, got)
			}
		}
	}
}
