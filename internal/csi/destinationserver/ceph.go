package destinationserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/images"
	"github.com/castellan-storage/castellan/internal/ceph/journal"
	"github.com/castellan-storage/castellan/internal/ceph/pool"
	"github.com/castellan-storage/castellan/internal/csi/destination"
	"github.com/castellan-storage/castellan/internal/csi/handle"
)

// Cluster is the Ceph cluster of a client profile.
type Cluster interface {
	ceph.Commander
	ceph.Objects
}

// Dial connects to a cluster, or gives the connection that there is: profile names it.
// user is a whole entity name.
type Dial func(profile string, monitors []string, user string, key ceph.Secret) Cluster

// Credentials are directories with the files userID and userKey, as a mounted Secret of
// the CSI drivers has them, by client profile. "" is for all other profiles. They are
// read at each question, so a rotated key is used at once.
type Credentials map[string]string

// ParseCredentials reads directories given as DIR or PROFILE=DIR.
func ParseCredentials(list []string) (Credentials, error) {
	c := Credentials{}
	for _, text := range list {
		profile, dir, named := strings.Cut(text, "=")
		if !named {
			profile, dir = "", text
		}
		if dir == "" || named && profile == "" {
			return nil, fmt.Errorf("reading credentials %q: write DIR or PROFILE=DIR", text)
		}
		if _, twice := c[profile]; twice {
			return nil, fmt.Errorf("reading credentials %q: given twice", text)
		}
		c[profile] = dir
	}
	return c, nil
}

// read gives the user and key for a profile, and ErrNoAccess if none are given.
func (c Credentials) read(profile string) (user string, key ceph.Secret, err error) {
	dir, ok := c[profile]
	if !ok {
		dir, ok = c[""]
	}
	if !ok {
		return "", ceph.Secret{}, fmt.Errorf("no credentials for client profile %q: %w", profile, ErrNoAccess)
	}
	var got [2]string
	for i, name := range []string{"userID", "userKey"} {
		raw, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // who starts this program names the directory
		if err != nil {
			return "", ceph.Secret{}, fmt.Errorf("reading the credentials for client profile %q: %w: %w", profile, ErrNoAccess, err)
		}
		got[i] = strings.TrimSpace(string(raw))
		if got[i] == "" {
			return "", ceph.Secret{}, fmt.Errorf("reading the credentials for client profile %q: file %s is empty: %w", profile, name, ErrNoAccess)
		}
	}
	return "client." + strings.TrimPrefix(got[0], "client."), ceph.NewSecret(got[1]), nil
}

// question is what is read of Ceph for one question. It implements Pools and Volumes,
// and remembers what it has read until the answer.
type question struct {
	cfg         destination.Config
	credentials Credentials
	dial        Dial

	pools    map[string]map[int64]string // by profile
	mirrored map[string]map[string]bool  // by profile and pool
	names    map[string]map[string]string
}

// Ask gives access to the clusters for one question.
func Ask(cfg destination.Config, credentials Credentials, dial Dial) interface {
	Pools
	Volumes
} {
	return &question{
		cfg: cfg, credentials: credentials, dial: dial,
		pools: map[string]map[int64]string{}, mirrored: map[string]map[string]bool{}, names: map[string]map[string]string{},
	}
}

// cluster connects to the cluster of a profile. namespace is the RADOS namespace of
// the profile's images.
func (q *question) cluster(profile string) (c Cluster, namespace string, err error) {
	record, found, err := q.cfg.Clusters.Get(profile)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%w: %w", destination.ErrConfig, err)
	case !found:
		return nil, "", fmt.Errorf("client profile %q: %w", profile, destination.ErrNotFound)
	case len(record.Monitors) == 0:
		return nil, "", fmt.Errorf("client profile %q has no monitors: %w", profile, ErrNoAccess)
	}
	user, key, err := q.credentials.read(profile)
	if err != nil {
		return nil, "", err
	}
	return q.dial(profile, record.Monitors, user, key), record.RBD.RadosNamespace, nil
}

// PoolName implements Pools.
func (q *question) PoolName(ctx context.Context, profile string, id int64) (string, error) {
	known, ok := q.pools[profile]
	if !ok {
		c, _, err := q.cluster(profile)
		if err != nil {
			return "", err
		}
		list, err := pool.New(c).List(ctx)
		if err != nil {
			return "", fmt.Errorf("listing the pools of client profile %q: %w", profile, err)
		}
		known = map[int64]string{}
		for _, p := range list {
			known[int64(p.ID)] = p.Name
		}
		q.pools[profile] = known
	}
	name, ok := known[id]
	if !ok {
		return "", fmt.Errorf("pool %d of client profile %q: %w", id, profile, destination.ErrNotFound)
	}
	return name, nil
}

// Check implements Volumes. Of a group it says that it exists; whether it is mirrored
// is what its members say.
func (q *question) Check(ctx context.Context, s destination.Source, group bool) error {
	c, namespace, err := q.cluster(s.Place.Profile)
	if err != nil {
		return err
	}
	if group {
		_, _, err := q.group(ctx, c, namespace, s)
		return err
	}
	volume, err := journal.New(c).Volume(ctx, journal.Place{Pool: s.PoolName, Namespace: namespace}, s.Handle.UUID)
	if err != nil {
		return absent(err)
	}
	at := images.Place{Pool: s.PoolName, Namespace: namespace}
	id, err := images.New(c).ID(ctx, at, volume.Image)
	if err != nil {
		return absent(err)
	}
	key := s.Place.Profile + "/" + s.PoolName
	states, ok := q.mirrored[key]
	if !ok {
		if states, err = images.New(c).Mirrored(ctx, at); err != nil {
			return err
		}
		q.mirrored[key] = states
	}
	if !states[id] {
		return notMirrored(s.PoolName + "/" + volume.Image)
	}
	return nil
}

// notMirrored is an image for which mirroring is not on. It is a
// destination.ErrNotReplicated.
type notMirrored string

// Error names the image.
func (i notMirrored) Error() string { return "image " + string(i) + " is not mirrored" }

// Is makes it a destination.ErrNotReplicated.
func (notMirrored) Is(target error) bool { return target == destination.ErrNotReplicated }

// group finds a group: its entry in the journal, and RBD's id of it.
func (q *question) group(ctx context.Context, c Cluster, namespace string, s destination.Source) (journal.Group, string, error) {
	entry, err := journal.New(c).Group(ctx, journal.Place{Pool: s.PoolName, Namespace: namespace}, s.Handle.UUID)
	if err != nil {
		return journal.Group{}, "", absent(err)
	}
	groups, err := images.New(c).Groups(ctx, images.Place{Pool: s.PoolName, Namespace: namespace})
	if err != nil {
		return journal.Group{}, "", absent(err)
	}
	for id, name := range groups {
		if name == entry.Name {
			return entry, id, nil
		}
	}
	return journal.Group{}, "", fmt.Errorf("group %s/%s: %w", s.PoolName, entry.Name, destination.ErrNotFound)
}

// Members implements Volumes. Who is a member is what the RBD group says. A member's
// handle is the one that the driver has written down for the group; where there is
// none, it is composed as the driver composes it.
func (q *question) Members(ctx context.Context, s destination.Source) ([]string, error) {
	c, namespace, err := q.cluster(s.Place.Profile)
	if err != nil {
		return nil, err
	}
	entry, id, err := q.group(ctx, c, namespace, s)
	if err != nil {
		return nil, err
	}
	members, err := images.New(c).Members(ctx, images.Place{Pool: s.PoolName, Namespace: namespace}, id)
	if err != nil {
		return nil, absent(err)
	}
	written := map[string]string{} // handles by UUID
	for _, text := range entry.Volumes {
		if h, err := destination.Read(text); err == nil {
			written[h.UUID] = text
		}
	}
	handles := make([]string, 0, len(members))
	for _, m := range members {
		name, err := q.imageName(ctx, c, s.Place.Profile, namespace, m)
		if err != nil {
			return nil, err
		}
		text, err := handleOf(s, m, name, written)
		if err != nil {
			return nil, err
		}
		handles = append(handles, text)
	}
	slices.Sort(handles)
	return handles, nil
}

// imageName finds the name of a group's member.
func (q *question) imageName(ctx context.Context, c Cluster, profile, namespace string, m images.Member) (string, error) {
	name, err := q.PoolName(ctx, profile, m.Pool)
	if err != nil {
		return "", err
	}
	key := profile + "/" + name
	if _, ok := q.names[key]; !ok {
		names, err := images.New(c).Names(ctx, images.Place{Pool: name, Namespace: namespace})
		if err != nil {
			return "", absent(err)
		}
		q.names[key] = names
	}
	image, ok := q.names[key][m.ID]
	if !ok {
		return "", fmt.Errorf("the image with id %s of pool %s, a member of the group: %w", m.ID, name, destination.ErrNotFound)
	}
	return image, nil
}

// handleOf gives the handle of a group's member by the name of its image, which ends
// in the unique part of the handle whatever its prefix is.
func handleOf(group destination.Source, m images.Member, image string, written map[string]string) (string, error) {
	if len(image) <= handle.UUIDLen {
		return "", fmt.Errorf("image %q is in the group and is no volume of a driver: %w", image, destination.ErrNotFound)
	}
	uuid := image[len(image)-handle.UUIDLen:]
	if text, ok := written[uuid]; ok {
		return text, nil
	}
	text, err := handle.Handle{Version: handle.Version, ClusterID: group.Place.Profile, Pool: m.Pool, UUID: uuid}.Compose()
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, destination.ErrHandle)
	}
	return text, nil
}

// absent says "not found" in the words of package destination, if Ceph has said so.
func absent(err error) error {
	if ceph.NotFound(err) || errors.Is(err, journal.ErrUnfinished) {
		return fmt.Errorf("%w: %w", err, destination.ErrNotFound)
	}
	return err
}

// explainCeph is the part of an explanation that comes from Ceph.
func explainCeph(ctx context.Context, volumes Volumes, s destination.Source) []string {
	if volumes == nil || s.PoolName == "" {
		return nil
	}
	volume, group := volumes.Check(ctx, s, false), error(nil)
	if volume == nil {
		return []string{"volume    exists in pool " + s.PoolName + ", and is mirrored"}
	}
	if errors.Is(volume, destination.ErrNotFound) {
		if group = volumes.Check(ctx, s, true); group == nil {
			return explainGroup(ctx, volumes, s)
		}
	}
	return []string{"volume    " + volume.Error()}
}

func explainGroup(ctx context.Context, volumes Volumes, s destination.Source) []string {
	members, err := volumes.Members(ctx, s)
	if err != nil {
		return []string{"group     exists in pool " + s.PoolName + "; its members: " + err.Error()}
	}
	lines := []string{fmt.Sprintf("group     exists in pool %s, with %d members", s.PoolName, len(members))}
	for _, m := range members {
		lines = append(lines, "member    "+m)
	}
	return lines
}
