package replace

import (
	"context"
	"strconv"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
)

// bootSize is the size that the OSD gave when it booted, 0 when that is not all of it: a
// database on a device of its own counts too. It is there with the OSD, where its usage
// comes with its first report, 5 s later (mgr_stats_period).
func (s *facts) bootSize(ctx context.Context, osds cephosd.Client) int64 {
	list, err := osds.Metadata(ctx)
	if err != nil {
		return 0 // the usage will tell
	}
	for _, m := range list {
		if size, err := strconv.ParseInt(m.BdevSize, 10, 64); err == nil && m.ID == s.ID && m.DedicatedDB == "0" {
			return size
		}
	}
	return 0
}
