// Package destination finds the handle under which a replicated volume, or a
// group of them, is known in the cluster that it is replicated to. It translates
// by the files of package clusterconfig in the way Ceph CSI drivers do:
//
//  1. a handle is looked for as it is; if its cluster or pool is not known here,
//     under each profile that cluster-mapping.json leads to;
//  2. the record of the profile where it was found says the remote profile, and
//     the remote pool by the name of the local one;
//  3. version and UUID of the handle stay.
//
// The package is pure. Whether a volume exists, and what its pool is called, only
// Ceph knows: callers find out and pass it in. It must not guess either.
package destination

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/handle"
)

// Errors by which callers tell what is wrong. Errors returned wrap one of them.
var (
	// ErrNotFound: no place where the volume could be is known to this cluster, or
	// it is in none of them.
	ErrNotFound = errors.New("not found")
	// ErrNotReplicated: the profile has no destination.
	ErrNotReplicated = errors.New("no replication destination is configured")
	// ErrConfig: the destination in config.json is unusable.
	ErrConfig = errors.New("unusable replication destination")
	// ErrHandle: the handle cannot be read, or that of the destination not written.
	ErrHandle = errors.New("unusable handle")
)

// Config is what the drivers know: both files, read.
type Config struct {
	Clusters clusterconfig.File
	Mappings []clusterconfig.Mapping
}

// Parse reads both files of the ConfigMap.
func Parse(config, mappings string) (Config, error) {
	clusters, err := clusterconfig.Parse(config)
	if err != nil {
		return Config{}, err
	}
	m, err := clusterconfig.ParseMappings(mappings)
	if err != nil {
		return Config{}, err
	}
	return Config{Clusters: clusters, Mappings: m}, nil
}

// Place is where a volume may be.
type Place struct {
	// Profile is a client profile that config.json knows.
	Profile string
	// Pool is the id of the pool in the cluster of the profile.
	Pool int64
	// Mapped says that cluster-mapping.json led here.
	Mapped bool
}

// Source is a handle, read, and where it was found.
type Source struct {
	// ID is the handle as it was given.
	ID     string
	Handle handle.Handle
	Place  Place
	// PoolName is the name of the pool with id Place.Pool. It may be empty if the
	// destination of the profile lists no pools.
	PoolName string
}

// Places gives the places in which the volume of a handle has to be looked for,
// in the order in which they have to be tried: as it is, then by each mapping and
// each of its pool pairs, in both directions. Profiles without a record in
// config.json are left out. An empty answer is ErrNotFound.
func (c Config) Places(h handle.Handle) ([]Place, error) {
	var places []Place
	add := func(p Place) {
		if !c.knows(p.Profile) || slices.ContainsFunc(places, func(q Place) bool { return q.Profile == p.Profile && q.Pool == p.Pool }) {
			return
		}
		places = append(places, p)
	}
	add(Place{Profile: h.ClusterID, Pool: h.Pool})
	pool := strconv.FormatInt(h.Pool, 10)
	for _, m := range c.Mappings {
		profile, ok := across(m.ClusterIDMapping, h.ClusterID)
		if !ok {
			continue
		}
		for _, pair := range m.RBDPoolIDMapping {
			other, ok := across(pair, pool)
			if !ok {
				continue
			}
			if id, err := strconv.ParseInt(other, 10, 64); err == nil {
				add(Place{Profile: profile, Pool: id, Mapped: true})
			}
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("looking for the cluster of a volume of client profile %q, pool %d: no record in %s and no pool pair in %s lead to a known cluster: %w",
			h.ClusterID, h.Pool, clusterconfig.ConfigKey, clusterconfig.MappingKey, ErrNotFound)
	}
	return places, nil
}

// across gives the other side of a pair, whichever side one is.
func across(pair map[string]string, one string) (string, bool) {
	if other, ok := pair[one]; ok {
		return other, true
	}
	for _, key := range slices.Sorted(maps.Keys(pair)) {
		if pair[key] == one {
			return key, true
		}
	}
	return "", false
}

func (c Config) knows(profile string) bool {
	_, ok, err := c.Clusters.Get(profile)
	return ok && err == nil
}

// Destination gives the destination of a profile, and ErrNotReplicated if it has
// none.
func (c Config) Destination(profile string) (clusterconfig.ReplicationDestination, error) {
	record, ok, err := c.Clusters.Get(profile)
	switch {
	case err != nil:
		return clusterconfig.ReplicationDestination{}, fmt.Errorf("%w: %w", ErrConfig, err)
	case !ok:
		return clusterconfig.ReplicationDestination{}, fmt.Errorf("client profile %q has no record in %s: %w", profile, clusterconfig.ConfigKey, ErrNotFound)
	case record.ReplicationDestination == nil:
		return clusterconfig.ReplicationDestination{}, fmt.Errorf("client profile %q: %w", profile, ErrNotReplicated)
	}
	return *record.ReplicationDestination, nil
}

// NeedsPoolName tells whether the destination of a profile depends on the name of
// the pool, so that only Ceph can complete it.
func (c Config) NeedsPoolName(profile string) (bool, error) {
	d, err := c.Destination(profile)
	if err != nil {
		return false, err
	}
	return d.RBD != nil && len(d.RBD.RemotePoolMapping) > 0, nil
}

// Volume gives the handle of a volume in the cluster that it is replicated to.
// The handle of a volume whose profile has no destination is ErrNotReplicated;
// drivers answer such a request with the handle that they were given.
func (c Config) Volume(s Source) (string, error) {
	d, err := c.Destination(s.Place.Profile)
	if err != nil {
		return "", err
	}
	return translate(d, s)
}

// Group gives the handles of a volume group and of all its members in the cluster
// that the group is replicated to. Members are translated each by its own pool,
// under the destination of its own profile. One that cannot be translated fails
// the whole: a partial answer would look complete.
func (c Config) Group(group Source, members []Source) (string, map[string]string, error) {
	to, err := c.Volume(group)
	if err != nil {
		return "", nil, err
	}
	ids := make(map[string]string, len(members))
	for _, m := range members {
		id, err := c.Volume(m)
		if err != nil {
			return "", nil, fmt.Errorf("member %s of volume group %s: %w", m.ID, group.ID, err)
		}
		ids[m.ID] = id
	}
	return to, ids, nil
}

// translate composes the handle at the destination.
func translate(d clusterconfig.ReplicationDestination, s Source) (string, error) {
	if d.RemoteClusterID == "" {
		return "", fmt.Errorf("client profile %q: remoteClusterID is empty: %w", s.Place.Profile, ErrConfig)
	}
	to := handle.Handle{Version: s.Handle.Version, ClusterID: d.RemoteClusterID, Pool: s.Place.Pool, UUID: s.Handle.UUID}
	if d.RBD != nil {
		if pool, ok := d.RBD.RemotePoolMapping[s.PoolName]; ok {
			id, err := strconv.ParseInt(pool.PoolID, 10, 64)
			if err != nil {
				return "", fmt.Errorf("client profile %q, pool %q: %w: %w", s.Place.Profile, s.PoolName, err, ErrConfig)
			}
			to.Pool = id
		}
	}
	id, err := to.Compose()
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, ErrHandle)
	}
	return id, nil
}

// Read parses a handle; an error of it is an ErrHandle.
func Read(id string) (handle.Handle, error) {
	h, err := handle.Parse(id)
	if err != nil {
		return handle.Handle{}, fmt.Errorf("%w: %w", err, ErrHandle)
	}
	return h, nil
}

// Profiles gives the profiles that have a destination, sorted.
func (c Config) Profiles() []string {
	found := map[string]bool{}
	for _, id := range c.Clusters.IDs() {
		if _, err := c.Destination(id); err == nil {
			found[id] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
