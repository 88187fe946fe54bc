package contract

import (
	"fmt"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
)

func TestCephtest(t *testing.T) {
	c := cephtest.New(t)
	for i, m := range []string{"a", "b", "c"} {
		c.BootMon(m, cephtest.MonAddrs(fmt.Sprintf("10.0.0.%d", i+1), false), cephtest.OnHost("n0"))
	}
	c.BootMgr("x", cephtest.OnHost("n0"))
	for _, h := range []string{"n0", "n1", "n2", "n3"} {
		c.AddOSD(cephtest.OSDSpec{Host: h, Devices: "sdb"})
	}
	c.Tick(3)
	Run(t, c, Options{Step: func() { c.Tick(1) }, Steps: 200})
}
