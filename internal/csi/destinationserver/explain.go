package destinationserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/destination"
)

// Explain says, for people, what a handle is, where its volume is looked for, and
// what its destination is and why. Where pools does not know a name, each pool that
// the destination lists is a case of its own. volumes may be nil: what is in Ceph is not
// told then. Only a handle that cannot be read is an error.
func Explain(ctx context.Context, cfg destination.Config, id string, pools Pools, volumes Volumes) (string, error) {
	h, err := destination.Read(id)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "handle    %s\n", id)
	fmt.Fprintf(&b, "source    client profile %q, pool id %d, uuid %s, format version %d\n", h.ClusterID, h.Pool, h.UUID, h.Version)
	places, err := cfg.Places(h)
	if err != nil {
		fmt.Fprintf(&b, "result    none: %v\n", err)
		return b.String(), nil
	}
	for i, p := range places {
		why := "as it stands in the handle"
		if p.Mapped {
			why = "by " + clusterconfig.MappingKey + ", from a profile or pool that is not here any more"
		}
		fmt.Fprintf(&b, "place %d   client profile %q, pool id %d: %s\n", i+1, p.Profile, p.Pool, why)
		explainPlace(ctx, &b, cfg, destination.Source{ID: id, Handle: h, Place: p}, pools, volumes)
	}
	if len(places) > 1 {
		fmt.Fprintln(&b, "note      the first place in which the volume exists counts")
	}
	return b.String(), nil
}

func explainPlace(ctx context.Context, b *strings.Builder, cfg destination.Config, s destination.Source, pools Pools, volumes Volumes) {
	var unknown error
	if s.PoolName, unknown = pools.PoolName(ctx, s.Place.Profile, s.Place.Pool); unknown == nil {
		fmt.Fprintf(b, "pool      %d is %q\n", s.Place.Pool, s.PoolName)
	}
	for _, line := range explainCeph(ctx, volumes, s) {
		fmt.Fprintln(b, line)
	}
	d, err := cfg.Destination(s.Place.Profile)
	if err != nil {
		hint := ""
		if errors.Is(err, destination.ErrNotReplicated) {
			hint = "; create a ClientProfileReplication with localClientProfile " + s.Place.Profile
		}
		fmt.Fprintf(b, "result    none: %v%s\n", err, hint)
		return
	}
	fmt.Fprintf(b, "remote    client profile %q\n", d.RemoteClusterID)
	if d.RBD == nil || len(d.RBD.RemotePoolMapping) == 0 {
		result(b, cfg, s, fmt.Sprintf("no pool is mapped, so pool id %d is kept", s.Place.Pool))
		return
	}
	if unknown != nil {
		fmt.Fprintf(b, "pool      %v\n", unknown)
		for _, name := range sortedPools(d) {
			s.PoolName = name
			result(b, cfg, s, fmt.Sprintf("if pool %d is %q: mapped to remote pool id %s", s.Place.Pool, name, d.RBD.RemotePoolMapping[name].PoolID))
		}
		s.PoolName = ""
		result(b, cfg, s, fmt.Sprintf("if it is any other: the id %d is kept", s.Place.Pool))
		return
	}
	why := fmt.Sprintf("pool %q is not mapped, so its id %d is kept", s.PoolName, s.Place.Pool)
	if p, ok := d.RBD.RemotePoolMapping[s.PoolName]; ok {
		why = fmt.Sprintf("pool %q is mapped to remote pool id %s", s.PoolName, p.PoolID)
	}
	result(b, cfg, s, why)
}

func result(b *strings.Builder, cfg destination.Config, s destination.Source, why string) {
	to, err := cfg.Volume(s)
	if err != nil {
		fmt.Fprintf(b, "result    none: %v\n", err)
		return
	}
	fmt.Fprintf(b, "result    %s\n          %s\n", to, why)
}
