package device

import (
	"slices"
	"strings"
)

// Numbered reports whether a kernel name is one of these kinds and a number: "sr0" is of the
// kind "sr", "srv" is not.
func Numbered(name string, kinds ...string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool {
		rest, ok := strings.CutPrefix(name, kind)
		return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
	})
}

// Hangs reports whether a device is not to be opened, whoever asks: that of the network
// (rbd, nbd, drbd) can block for ever in the kernel, and zram is memory.
func Hangs(name string) bool { return Numbered(name, "rbd", "nbd", "drbd", "zram") }

// Unplugged reports whether a device is one that /sys/block lists but nobody plugs in.
func Unplugged(name string) bool {
	return Hangs(name) || Numbered(name, "ram", "sr", "fd", "dm-", "md")
}
