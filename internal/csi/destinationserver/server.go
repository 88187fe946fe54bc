// Package destinationserver answers the question where a replicated volume is found
// in the cluster that it is replicated to, over gRPC
// (replication.Controller/GetReplicationDestinationInfo of csi-addons), and for
// people on the command line.
//
// It answers from the files that CSI drivers mount, read anew for each question,
// and from Ceph where it has access to it. It must not guess: where only Ceph could
// tell, and there is no access, the answer is an error that says so. It changes
// nothing anywhere.
package destinationserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-addons/spec/lib/go/identity"
	"github.com/csi-addons/spec/lib/go/replication"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/destination"
)

// ErrNoAccess says that only Ceph could tell, and that there is no access to it.
var ErrNoAccess = errors.New("no access to Ceph")

// Pools tells the names of pools.
type Pools interface {
	// PoolName gives the name of a pool of the cluster that a client profile leads
	// to. A pool that does not exist is destination.ErrNotFound; ErrNoAccess says that
	// it cannot be known.
	PoolName(ctx context.Context, profile string, pool int64) (string, error)
}

// Volumes tells what is in the pools.
type Volumes interface {
	// Check says whether the image (or, with group, the RBD group) of a source exists
	// and is mirrored: nil, destination.ErrNotFound or destination.ErrNotReplicated.
	Check(ctx context.Context, s destination.Source, group bool) error
	// Members gives the handles of all volumes of a group.
	Members(ctx context.Context, group destination.Source) ([]string, error)
}

// Server implements the replication controller and the identity service.
type Server struct {
	replication.UnimplementedControllerServer
	identity.UnimplementedIdentityServer

	// Dir holds config.json and, if there is one, cluster-mapping.json.
	Dir string
	// Name and Version are what GetIdentity tells: the name of the CSI driver, and the
	// version of this program.
	Name, Version string
	// Pools tells pool names; NoPools if there is no other source.
	Pools Pools
	// Volumes is nil without access to Ceph: existence and mirroring are not checked
	// then, and groups are answered without their members.
	Volumes Volumes
	// Ceph gives access to the clusters for one question, in place of Pools and Volumes,
	// from the configuration as it is then; nil without credentials. Of profiles without
	// credentials (ErrNoAccess) the answer is what the configuration alone proves.
	Ceph func(cfg destination.Config) (Pools, Volumes)
	// SameWithoutReplication answers for volumes of a profile without a destination
	// with their own handle, as CSI drivers do. Otherwise such a question is
	// UNAVAILABLE, so that it is asked again: an orchestrator keeps the first answer,
	// which is wrong if the ClientProfileReplication comes later.
	SameWithoutReplication bool
}

// NoPools knows no pool.
type NoPools struct{}

// PoolName implements Pools.
func (NoPools) PoolName(_ context.Context, profile string, pool int64) (string, error) {
	return "", fmt.Errorf("finding the name of pool %d of client profile %q: %w", pool, profile, ErrNoAccess)
}

// GetReplicationDestinationInfo implements replication.ControllerServer.
func (s *Server) GetReplicationDestinationInfo(ctx context.Context, req *replication.GetReplicationDestinationInfoRequest) (*replication.GetReplicationDestinationInfoResponse, error) {
	if req.GetReplicationSource() == nil {
		return nil, status.Error(codes.InvalidArgument, "replication source is required")
	}
	cfg, err := s.config()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	q := &Server{Pools: s.Pools, Volumes: s.Volumes, SameWithoutReplication: s.SameWithoutReplication}
	if s.Ceph != nil {
		q.Pools, q.Volumes = s.Ceph(cfg)
	}
	var to *replication.ReplicationDestination
	switch source := req.GetReplicationSource().GetType().(type) {
	case *replication.ReplicationSource_Volume:
		to, err = q.volume(ctx, cfg, source.Volume.GetVolumeId())
	case *replication.ReplicationSource_Volumegroup:
		to, err = q.group(ctx, cfg, source.Volumegroup.GetVolumeGroupId())
	default:
		return nil, status.Error(codes.InvalidArgument, "either volume or volumegroup source must be specified")
	}
	if err != nil {
		return nil, asStatus(err)
	}
	return &replication.GetReplicationDestinationInfoResponse{ReplicationDestination: to}, nil
}

// config reads the files. The kubelet replaces them both at once by a link, so they
// belong together unless it does so between the two reads, which the next question
// puts right.
func (s *Server) config() (destination.Config, error) { return ReadDir(s.Dir) }

// ReadDir reads the drivers' configuration from a directory.
func ReadDir(dir string) (destination.Config, error) {
	config, err := os.ReadFile(filepath.Join(dir, clusterconfig.ConfigKey)) //nolint:gosec // the operator of this program names the directory
	if err != nil {
		return destination.Config{}, fmt.Errorf("reading the drivers' configuration: %w", err)
	}
	mapping, err := os.ReadFile(filepath.Join(dir, clusterconfig.MappingKey)) //nolint:gosec // as above
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return destination.Config{}, fmt.Errorf("reading the drivers' configuration: %w", err)
	}
	return destination.Parse(string(config), string(mapping))
}

func (s *Server) volume(ctx context.Context, cfg destination.Config, id string) (*replication.ReplicationDestination, error) {
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "empty volume ID")
	}
	to, _, err := s.translate(ctx, cfg, id, false)
	if err != nil {
		return nil, err
	}
	return &replication.ReplicationDestination{Type: &replication.ReplicationDestination_Volume{
		Volume: &replication.ReplicationDestination_VolumeDestination{VolumeId: to},
	}}, nil
}

func (s *Server) group(ctx context.Context, cfg destination.Config, id string) (*replication.ReplicationDestination, error) {
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "empty volume group ID")
	}
	to, source, err := s.translate(ctx, cfg, id, true)
	if err != nil {
		return nil, err
	}
	out := &replication.ReplicationDestination_VolumeGroupDestination{VolumeGroupId: to}
	if source != nil {
		members, err := s.Volumes.Members(ctx, *source)
		if err != nil {
			return nil, fmt.Errorf("listing the members of volume group %s: %w", id, err)
		}
		out.VolumeIds = make(map[string]string, len(members))
		for _, m := range members {
			// One that cannot be translated fails the whole: a part would look complete.
			if out.VolumeIds[m], _, err = s.translate(ctx, cfg, m, false); err != nil {
				return nil, fmt.Errorf("member %s of volume group %s: %w", m, id, err)
			}
		}
	}
	return &replication.ReplicationDestination{Type: &replication.ReplicationDestination_Volumegroup{Volumegroup: out}}, nil
}

// translate finds where a handle leads to, and what its destination is. The source is
// nil if Ceph was not asked.
func (s *Server) translate(ctx context.Context, cfg destination.Config, id string, group bool) (string, *destination.Source, error) {
	h, err := destination.Read(id)
	if err != nil {
		return "", nil, err
	}
	places, err := cfg.Places(h)
	if err != nil {
		return "", nil, err
	}
	if s.Volumes == nil {
		to, err := s.proven(ctx, cfg, id, places)
		return to, nil, err
	}
	for _, place := range places {
		source, err := s.located(ctx, id, place, group)
		switch {
		case errors.Is(err, destination.ErrNotFound):
			continue
		case errors.Is(err, ErrNoAccess):
			// There may be none to this one cluster.
			to, err := s.proven(ctx, cfg, id, places)
			return to, nil, err
		case err != nil:
			return "", nil, err
		}
		to, err := s.destination(cfg, source)
		return to, &source, err
	}
	return "", nil, fmt.Errorf("looking for %s in %d places: %w", id, len(places), destination.ErrNotFound)
}

// located says whether a handle's volume is at a place.
func (s *Server) located(ctx context.Context, id string, place destination.Place, group bool) (destination.Source, error) {
	h, err := destination.Read(id)
	if err != nil {
		return destination.Source{}, err
	}
	source := destination.Source{ID: id, Handle: h, Place: place}
	if source.PoolName, err = s.Pools.PoolName(ctx, place.Profile, place.Pool); err != nil {
		return source, err
	}
	return source, s.Volumes.Check(ctx, source, group)
}

// proven answers without Ceph: if every place that the volume may be in leads to the
// same destination, that is the answer.
func (s *Server) proven(ctx context.Context, cfg destination.Config, id string, places []destination.Place) (string, error) {
	h, err := destination.Read(id)
	if err != nil {
		return "", err
	}
	answer := ""
	for _, place := range places {
		source := destination.Source{ID: id, Handle: h, Place: place}
		needs, err := cfg.NeedsPoolName(place.Profile)
		if err != nil && !errors.Is(err, destination.ErrNotReplicated) {
			return "", err
		}
		if needs {
			source.PoolName, err = s.Pools.PoolName(ctx, place.Profile, place.Pool)
			if errors.Is(err, destination.ErrNotFound) {
				continue
			}
			if err != nil {
				return "", err
			}
		}
		to, err := s.destination(cfg, source)
		if err != nil {
			return "", err
		}
		if answer != "" && to != answer {
			return "", fmt.Errorf("%s may be %s or %s, by where its volume is: %w", id, answer, to, ErrNoAccess)
		}
		answer = to
	}
	if answer == "" {
		return "", fmt.Errorf("looking for %s in %d places: %w", id, len(places), destination.ErrNotFound)
	}
	return answer, nil
}

func (s *Server) destination(cfg destination.Config, source destination.Source) (string, error) {
	to, err := cfg.Volume(source)
	if errors.Is(err, destination.ErrNotReplicated) && s.SameWithoutReplication {
		return source.ID, nil
	}
	if errors.Is(err, destination.ErrNotReplicated) {
		// The volume may well be replicated; what is missing is the destination.
		return "", status.Errorf(codes.Unavailable, "%v: create a ClientProfileReplication for it", err)
	}
	return to, err
}

// asStatus gives the code that the specification has for an error.
func asStatus(err error) error {
	if st, ok := status.FromError(err); ok {
		return status.Error(st.Code(), err.Error())
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, destination.ErrHandle):
		code = codes.InvalidArgument
	case errors.Is(err, destination.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, destination.ErrNotReplicated), errors.Is(err, destination.ErrConfig):
		code = codes.FailedPrecondition
	case errors.Is(err, ErrNoAccess), ceph.Unreachable(err):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// GetIdentity implements identity.IdentityServer.
func (s *Server) GetIdentity(context.Context, *identity.GetIdentityRequest) (*identity.GetIdentityResponse, error) {
	return &identity.GetIdentityResponse{Name: s.Name, VendorVersion: s.Version}, nil
}

// GetCapabilities implements identity.IdentityServer: nothing but the one question is
// answered.
func (*Server) GetCapabilities(context.Context, *identity.GetCapabilitiesRequest) (*identity.GetCapabilitiesResponse, error) {
	return &identity.GetCapabilitiesResponse{Capabilities: []*identity.Capability{
		{Type: &identity.Capability_Service_{Service: &identity.Capability_Service{Type: identity.Capability_Service_CONTROLLER_SERVICE}}},
		{Type: &identity.Capability_VolumeReplication_{VolumeReplication: &identity.Capability_VolumeReplication{
			Type: identity.Capability_VolumeReplication_GET_REPLICATION_DESTINATION_INFO}}},
	}}, nil
}

// Probe implements identity.IdentityServer: ready means that the files can be read.
func (s *Server) Probe(context.Context, *identity.ProbeRequest) (*identity.ProbeResponse, error) {
	_, err := s.config()
	return &identity.ProbeResponse{Ready: wrapperspb.Bool(err == nil)}, nil
}
