package device

import "testing"

func TestNames(t *testing.T) {
	for name, want := range map[string]struct{ hangs, unplugged bool }{
		"sda": {}, "nvme0n1": {}, "vda1": {}, "loop0": {}, "mmcblk0": {}, "": {}, "rbd": {}, "md": {}, "srv0": {}, "sdrbd1": {},
		"rbd0": {true, true}, "nbd12": {true, true}, "drbd1p1": {true, true}, "zram0": {true, true},
		"ram3": {false, true}, "sr0": {false, true}, "fd0": {false, true}, "dm-3": {false, true}, "md127": {false, true},
	} {
		if got := Hangs(name); got != want.hangs {
			t.Errorf("Hangs(%q) = %v", name, got)
		}
		if got := Unplugged(name); got != want.unplugged {
			t.Errorf("Unplugged(%q) = %v", name, got)
		}
	}
}
