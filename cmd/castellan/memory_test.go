package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smaps = `00400000-01600000 r-xp 00000000 fe:00 17 /usr/local/bin/castellan
Size:              18432 kB
Rss:               16500 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01600000-02800000 r--p 01200000 fe:00 17 /usr/local/bin/castellan
Anonymous:             0 kB
02800000-02900000 rw-p 02400000 fe:00 17 /usr/local/bin/castellan
Anonymous:           168 kB
c000000000-c002000000 rw-p 00000000 00:00 0 
Anonymous:         30000 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 18 /usr/lib/lib one.so (deleted)
Anonymous:             4 kB
7f0000002000-7f0000003000 r-xp 00000000 fe:00 18 /usr/lib/loaded later.so
Anonymous:             0 kB
7f0000004000-7f0000005000 r--s 00000000 fe:00 19 /shared
Anonymous:             0 kB
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
`

func TestDroppable(t *testing.T) {
	all := parseSmaps([]byte(smaps))
	if len(all) != 8 || all[4].file != "/usr/lib/lib one.so (deleted)" || all[3].file != "" || all[3].dirty != 30000 {
		t.Fatalf("read %+v", all)
	}
	fixed := append(all[:5:5], all[6:]...) // one was loaded later
	want := []mapping{
		{start: 0x400000, end: 0x1600000, mode: "r-xp", file: "/usr/local/bin/castellan"},
		{start: 0x1600000, end: 0x2800000, mode: "r--p", file: "/usr/local/bin/castellan"},
	}
	if diff := cmp.Diff(want, droppable(fixed, all), cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	moved := []mapping{{start: 0x400000, end: 0x1500000, mode: "r-xp", file: "/usr/local/bin/castellan"}}
	if got := droppable(fixed, moved); got != nil {
		t.Errorf("another mapping in the place of a fixed one: %+v", got)
	}
}

// The process lives on, and its program takes less memory.
func TestDropClean(t *testing.T) {
	resident := func() (kb int) {
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skipf("no memory of this process can be read: %v", err)
		}
		for _, line := range bytes.Split(b, []byte("\n")) {
			if v, ok := bytes.CutPrefix(line, []byte("RssFile:")); ok {
				for _, c := range v {
					if c >= '0' && c <= '9' {
						kb = kb*10 + int(c-'0')
					}
				}
			}
		}
		return kb
	}
	fixed := fixedMappings()
	if len(fixed) < 3 {
		t.Fatalf("only %d mappings", len(fixed))
	}
	before := resident()
	dropClean(fixed)
	if after := resident(); before == 0 || after > before*3/4 {
		t.Errorf("%d kB of files were resident, and %d afterwards", before, after)
	}
	if got := parseSmaps([]byte(smaps)); len(got) != 8 {
		t.Errorf("the program does not work any more: %+v", got)
	}
}
