package destinationserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/destination"
)

// GivenPools are names of pools that somebody has told, by client profile and id.
type GivenPools map[string]map[int64]string

// ParsePools reads names given as PROFILE:ID=NAME.
func ParsePools(list []string) (GivenPools, error) {
	pools := GivenPools{}
	for _, text := range list {
		left, name, ok := strings.Cut(text, "=")
		i := strings.LastIndexByte(left, ':')
		if !ok || i <= 0 || name == "" {
			return nil, fmt.Errorf("reading pool %q: write PROFILE:ID=NAME", text)
		}
		id, err := strconv.ParseInt(left[i+1:], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading pool %q: %w", text, err)
		}
		if pools[left[:i]] == nil {
			pools[left[:i]] = map[int64]string{}
		}
		pools[left[:i]][id] = name
	}
	return pools, nil
}

// PoolName implements Pools. Pools of a profile of which none was told are not known;
// of a profile with some, the others do not exist.
func (g GivenPools) PoolName(ctx context.Context, profile string, pool int64) (string, error) {
	known, ok := g[profile]
	if !ok {
		return NoPools{}.PoolName(ctx, profile, pool)
	}
	name, ok := known[pool]
	if !ok {
		return "", fmt.Errorf("pool %d of client profile %q: %w", pool, profile, destination.ErrNotFound)
	}
	return name, nil
}

func sortedPools(d clusterconfig.ReplicationDestination) []string {
	return slices.Sorted(maps.Keys(d.RBD.RemotePoolMapping))
}
