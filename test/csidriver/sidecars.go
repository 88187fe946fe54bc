package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/csi-addons/spec/lib/go/replication"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrationDir is where the kubelet looks for sockets, as mounted in the pod.
const registrationDir = "/registration"

// dial opens a connection to a unix socket, a path or unix://path; calls wait for it to
// be served.
func dial(socket string) (*grpc.ClientConn, error) {
	socket = "unix://" + strings.TrimPrefix(socket, "unix://")
	return grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
}

// driverName asks the driver for its name, and whether it is ready.
func driverName(ctx context.Context, socket string) (string, error) {
	c, err := dial(socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }() // nothing was left to be sent
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	id := csi.NewIdentityClient(c)
	info, err := id.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("asking the driver for its name: %w", err)
	}
	p, err := id.Probe(ctx, &csi.ProbeRequest{})
	if err != nil {
		return "", fmt.Errorf("asking the driver whether it is ready: %w", err)
	}
	if p.GetReady() != nil && !p.GetReady().GetValue() {
		return "", fmt.Errorf("the driver %s is not ready", info.GetName())
	}
	return info.GetName(), nil
}

// sidecar is what provisioner, attacher, resizer, snapshotter and csi-addons have in
// common: they wait for the driver and then run.
func sidecar(ctx context.Context, o options) error {
	socket := o["csi-address"]
	if socket == "" {
		if _, err := o.need("csi-addons-address"); err != nil {
			return err
		}
		// The driver's socket for csi-addons is not served by the stand-in.
		<-ctx.Done()
		return nil
	}
	name, err := driverName(ctx, socket)
	if err != nil {
		return err
	}
	fmt.Println("driver", name)
	<-ctx.Done()
	return nil
}

// registration is the kubelet's side of the handshake.
type registration struct {
	registerapi.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan string
}

func (r *registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registration) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		select {
		case r.refused <- s.GetError():
		default:
		}
		return &registerapi.RegistrationStatusResponse{}, nil
	}
	fmt.Println("registered", r.name)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// registrar registers the driver with the kubelet, by the plugin registration API.
func registrar(ctx context.Context, o options) error {
	socket, err := o.need("csi-address")
	if err != nil {
		return err
	}
	endpoint, err := o.need("kubelet-registration-path")
	if err != nil {
		return err
	}
	name, err := driverName(ctx, socket)
	if err != nil {
		return err
	}
	r := &registration{name: name, endpoint: endpoint, refused: make(chan string, 1)}
	s := grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, r)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, s, "unix://"+filepath.Join(registrationDir, name+"-reg.sock")) }()
	select {
	case why := <-r.refused:
		cancel(nil)
		return errors.Join(fmt.Errorf("the kubelet refused %s: %s", name, why), <-served)
	case err := <-served:
		return err
	}
}

// askDestination prints the answer to GetReplicationDestinationInfo, or its error, as
// one line of JSON.
func askDestination(ctx context.Context, out io.Writer, socket, handle string) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing was left to be sent
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := replication.NewControllerClient(c).GetReplicationDestinationInfo(ctx, &replication.GetReplicationDestinationInfoRequest{
		ReplicationSource: &replication.ReplicationSource{Type: &replication.ReplicationSource_Volume{Volume: &replication.ReplicationSource_VolumeSource{VolumeId: handle}}},
	})
	answer := map[string]string{"code": status.Code(err).String()}
	if err != nil {
		answer["message"] = status.Convert(err).Message()
	} else {
		answer["volume"] = r.GetReplicationDestination().GetVolume().GetVolumeId()
	}
	return json.NewEncoder(out).Encode(answer)
}
