package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// serving serves until the test ends.
func serving(t *testing.T, register func(*grpc.Server)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	s := grpc.NewServer()
	register(s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, s, "unix://"+socket) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// Sidecars find the driver by a path as well as by an address, and what the stand-in
// cannot do it says it cannot.
func TestDriver(t *testing.T) {
	d := &driver{name: "x.rbd.csi.ceph.com", node: "n1"}
	socket := serving(t, func(s *grpc.Server) { csi.RegisterIdentityServer(s, d); csi.RegisterNodeServer(s, d) })
	for _, address := range []string{socket, "unix://" + socket} {
		if name, err := driverName(t.Context(), address); err != nil || name != d.name {
			t.Errorf("%s: %q, %v", address, name, err)
		}
	}
	c, err := dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if info, err := csi.NewNodeClient(c).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}); err != nil || info.GetNodeId() != "n1" {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := csi.NewNodeClient(c).NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("publishing a volume: %v", err)
	}
}

// A registration that the kubelet refuses is told.
func TestRegistration(t *testing.T) {
	r := &registration{name: "x.rbd.csi.ceph.com", endpoint: "/var/lib/kubelet/plugins/x/csi.sock", refused: make(chan string, 1)}
	socket := serving(t, func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, r) })
	c, err := dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	kubelet := registerapi.NewRegistrationClient(c)
	info, err := kubelet.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.GetType() != "CSIPlugin" || info.GetName() != r.name || info.GetEndpoint() != r.endpoint {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "no"}); err != nil {
		t.Fatal(err)
	}
	select {
	case why := <-r.refused:
		if why != "no" {
			t.Errorf("refused: %q", why)
		}
	case <-time.After(time.Second):
		t.Error("nobody is told")
	}
}

func TestRefused(t *testing.T) {
	for _, args := range [][]string{
		{}, {"nothing"}, {"plugin", "word"}, {"plugin", "--type=rbd"}, {"plugin", "--nodeserver=true", "--nodeid=a"},
		{"registrar", "--csi-address=/x"}, {"sidecar"}, {"cat"}, {"destination", "x"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := run(ctx, args); err == nil {
			t.Errorf("%q is taken", args)
		}
		cancel()
	}
}
