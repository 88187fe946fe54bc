package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// version is what the stand-in says of itself.
const version = "stand-in"

// driver answers the calls by which Kubernetes gets to know a driver. All others are
// UNIMPLEMENTED.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	csi.UnimplementedControllerServer
	name, node string
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: version}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}},
	}}}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{}, nil
}

// plugin is the driver: which of its services run, its arguments say. As cephcsi it is
// also started as what reports liveness and as a generator, which serve no socket.
func plugin(ctx context.Context, o options) error {
	if o["nodeserver"] != "true" && o["controllerserver"] != "true" {
		return idle(ctx, o)
	}
	name, err := o.need("drivername")
	if err != nil {
		return err
	}
	node, err := o.need("nodeid")
	if err != nil {
		return err
	}
	endpoint, err := o.need("endpoint")
	if err != nil {
		return err
	}
	// A driver without its configuration does not start either.
	if _, err := os.Stat(configDir); err != nil {
		return fmt.Errorf("looking for the configuration of clusters: %w", err)
	}
	d := &driver{name: name, node: node}
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, d)
	if o["nodeserver"] == "true" {
		csi.RegisterNodeServer(s, d)
	}
	if o["controllerserver"] == "true" {
		csi.RegisterControllerServer(s, d)
	}
	return serve(ctx, s, endpoint)
}

// configDir is where the operator mounts ceph-csi-config.
const configDir = "/etc/ceph-csi-config"

// idle is a container that has nothing to do here but to be there.
func idle(ctx context.Context, o options) error {
	if o["type"] != "liveness" && o["type"] != "controller" {
		return fmt.Errorf("--type=%s is neither a server, nor liveness, nor controller", o["type"])
	}
	<-ctx.Done()
	return nil
}

// serve serves on a unix socket until ctx ends.
func serve(ctx context.Context, s *grpc.Server, endpoint string) error {
	path := strings.TrimPrefix(endpoint, "unix://")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, s.GracefulStop)()
	fmt.Println("serving on", path)
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving on %s: %w", path, err)
	}
	return nil
}
