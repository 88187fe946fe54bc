package renew

import (
	"slices"
	"strings"
	"testing"

	"github.com/castellan-storage/castellan/internal/node/request"
)

// A disk that is pulled at any time of a run gives its name to the one that comes next, if
// nobody has it open. LVM knows disks by name only: not a byte may go to that other disk, and
// no disk stays held.
func TestADiskIsPulledAtAnyTime(t *testing.T) {
	fails := func(at string, start func() (*world, request.Replace)) func() (*world, request.Replace) {
		return func() (*world, request.Replace) {
			w, r := start()
			w.failAt = at
			return w, r
		}
	}
	shared := func() (*world, request.Replace) { return newWorld("lvm", true, true), ask("lvm", true, true) }
	alone := func() (*world, request.Replace) {
		w := newWorld("lvm", true, false)
		delete(w.lvs, "fast/db6")
		r := ask("lvm", true, false)
		r.Siblings = nil
		return w, r
	}
	for name, start := range map[string]func() (*world, request.Replace){
		"shared database": shared, "its mkfs fails": fails("mkfs", shared), "refused": fails("before", shared),
		"own database": alone, "its mkfs fails, and the group goes": fails("mkfs", alone),
		"metadata device": func() (*world, request.Replace) { return lost(true) },
		"raw":             func() (*world, request.Replace) { return newWorld("raw", false, false), ask("raw", false, false) },
		"raw, mkfs fails": fails("mkfs", func() (*world, request.Replace) { return newWorld("raw", false, false), ask("raw", false, false) }),
	} {
		t.Run(name, func(t *testing.T) {
			w, r := start()
			_, _ = Run(t.Context(), w, w, r, now)
			calls, vgs := w.calls, 0
			for _, ran := range w.ran {
				if strings.HasPrefix(ran, "vgcreate") {
					vgs++
				}
			}
			if strings.Contains(name, "the group goes") && vgs != 2 {
				t.Fatalf("%d groups were made:\n%s", vgs, strings.Join(w.ran, "\n"))
			}
			for path := range w.disks {
				for at := 1; at <= calls; at++ {
					w, r := start()
					w.swapAt, w.swapPath = at, path
					_, _ = Run(t.Context(), w, w, r, now)
					if slices.Contains(w.writes, "SOMEBODY'S") {
						t.Errorf("%s was pulled before call %d, and the next one was written to:\n%s", path, at, strings.Join(w.ran, "\n"))
					}
					for held, n := range w.holds {
						if n != 0 {
							t.Errorf("%s is held %d times at the end", held, n)
						}
					}
				}
			}
		})
	}
}

// udev has missed that a failed attempt's volume group is gone: the next attempt must not be
// refused for it, since nobody would ever tell udev.
func TestUdevMissesThatADiskIsBlank(t *testing.T) {
	for name, l := range layouts() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(mode(l[0]), l[1], l[2])
			w.deaf, w.failAt = true, "mkfs"
			if out, err := Run(t.Context(), w, w, ask(mode(l[0]), l[1], l[2]), now); err == nil {
				t.Fatalf("%+v", out.Replaced)
			}
			w.slot, w.uuid, w.failAt = "destroyed", "", ""
			if out, err := Run(t.Context(), w, w, ask(mode(l[0]), l[1], l[2]), now); err != nil || out.Result != request.Done || len(out.Warnings) > 0 {
				t.Errorf("%+v, %v", out.Replaced, err)
			}
		})
	}
}
