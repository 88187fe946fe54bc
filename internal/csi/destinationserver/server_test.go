package destinationserver_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-addons/spec/lib/go/identity"
	"github.com/csi-addons/spec/lib/go/replication"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/castellan-storage/castellan/internal/csi/destination"
	"github.com/castellan-storage/castellan/internal/csi/destinationserver"
)

const (
	u         = "b0285c97-a0ce-11eb-8c66-0242ac110002"
	c1        = `[{"clusterID":"primary-cluster","replicationDestination":{"remoteClusterID":"secondary-cluster","rbd":{"remotePoolMapping":{"rbd":{"poolID":"5"}}}}},{"clusterID":"plain","replicationDestination":{"remoteClusterID":"r"}},{"clusterID":"alone"},{"clusterID":"bad","replicationDestination":{"remoteClusterID":""}}]`
	primary   = "0001-000f-primary-cluster-0000000000000001-" + u
	secondary = "0001-0011-secondary-cluster-0000000000000005-" + u
	plain     = "0001-0005-plain-0000000000000001-" + u
	other     = "0001-000f-primary-cluster-0000000000000003-" + u
)

// fakeCeph is the inside of the clusters.
type fakeCeph struct {
	missing, unmirrored map[string]bool
	members             []string
}

func (fakeCeph) PoolName(_ context.Context, profile string, pool int64) (string, error) {
	name, ok := map[string]string{"primary-cluster/1": "rbd", "primary-cluster/3": "other", "plain/1": "x", "alone/1": "x", "bad/1": "x"}[fmt.Sprintf("%s/%d", profile, pool)]
	if !ok {
		return "", destination.ErrNotFound
	}
	return name, nil
}

func (f fakeCeph) Check(_ context.Context, s destination.Source, _ bool) error {
	switch {
	case f.missing[s.ID]:
		return destination.ErrNotFound
	case f.unmirrored[s.ID]:
		return destination.ErrNotReplicated
	}
	return nil
}

func (f fakeCeph) Members(context.Context, destination.Source) ([]string, error) {
	return f.members, nil
}

func dir(t *testing.T, config, mapping string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range map[string]string{"config.json": config, "cluster-mapping.json": mapping} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func volumeSource(id string) *replication.ReplicationSource {
	return &replication.ReplicationSource{Type: &replication.ReplicationSource_Volume{Volume: &replication.ReplicationSource_VolumeSource{VolumeId: id}}}
}

func groupSource(id string) *replication.ReplicationSource {
	return &replication.ReplicationSource{Type: &replication.ReplicationSource_Volumegroup{Volumegroup: &replication.ReplicationSource_VolumeGroupSource{VolumeGroupId: id}}}
}

func TestGetReplicationDestinationInfo(t *testing.T) {
	given := destinationserver.GivenPools{"primary-cluster": {1: "rbd"}}
	ceph := fakeCeph{missing: map[string]bool{}, unmirrored: map[string]bool{}}
	group := strings.Replace(primary, u, "c1396da8-b1df-22fc-9d77-1353bd221113", 1)
	groupTo := strings.Replace(secondary, u, "c1396da8-b1df-22fc-9d77-1353bd221113", 1)
	mapping := `[{"clusterIdMapping":{"gone":"primary-cluster"},"RBDPoolIDMapping":[{"9":"1"}]},{"clusterIdMapping":{"plain":"primary-cluster"},"RBDPoolIDMapping":[{"1":"1"}]}]`
	for _, tt := range []struct {
		name    string
		source  *replication.ReplicationSource
		config  string
		mapping string
		pools   destinationserver.Pools
		volumes destinationserver.Volumes
		same    bool
		want    string
		ids     map[string]string
		code    codes.Code
		text    string
	}{
		{name: "no source", code: codes.InvalidArgument, text: "replication source is required"},
		{name: "no kind of source", source: &replication.ReplicationSource{}, code: codes.InvalidArgument, text: "either volume or volumegroup source must be specified"},
		{name: "empty volume", source: volumeSource(""), code: codes.InvalidArgument, text: "empty volume ID"},
		{name: "empty group", source: groupSource(""), code: codes.InvalidArgument, text: "empty volume group ID"},
		{name: "no handle", source: volumeSource("static"), code: codes.InvalidArgument},
		{name: "broken file", source: volumeSource(primary), config: "{", code: codes.Unavailable, text: "no valid list"},
		{name: "unknown cluster", source: volumeSource("0001-0001-x-0000000000000001-" + u), code: codes.NotFound},
		{name: "empty remote", source: volumeSource("0001-0003-bad-0000000000000001-" + u), code: codes.FailedPrecondition, text: "remoteClusterID is empty"},
		{name: "no destination", source: volumeSource("0001-0005-alone-0000000000000001-" + u), code: codes.Unavailable, text: "create a ClientProfileReplication"},
		{name: "no destination, as drivers do", source: volumeSource("0001-0005-alone-0000000000000001-" + u), same: true, want: "0001-0005-alone-0000000000000001-" + u},
		{name: "config alone proves it", source: volumeSource(plain), want: strings.Replace(plain, "0005-plain", "0001-r", 1)},
		{name: "only Ceph could tell the pool", source: volumeSource(primary), code: codes.Unavailable, text: "no access to Ceph"},
		{name: "given pool", source: volumeSource(primary), pools: given, want: secondary},
		{name: "stale id", source: volumeSource("0001-0004-gone-0000000000000009-" + u), pools: given, mapping: mapping, want: secondary},
		{name: "two places, two answers", source: volumeSource(plain), pools: given, mapping: mapping, code: codes.Unavailable, text: "may be"},
		{name: "two places, and Ceph tells", source: volumeSource(plain), pools: ceph, volumes: ceph, mapping: mapping, want: strings.Replace(plain, "0005-plain", "0001-r", 1)},
		{name: "group without Ceph", source: groupSource(group), pools: given, want: groupTo},
		{name: "with Ceph", source: volumeSource(primary), pools: ceph, volumes: ceph, want: secondary},
		{name: "missing", source: volumeSource(primary), pools: ceph, volumes: fakeCeph{missing: map[string]bool{primary: true}}, code: codes.NotFound},
		{name: "not mirrored", source: volumeSource(primary), pools: ceph, volumes: fakeCeph{unmirrored: map[string]bool{primary: true}}, code: codes.FailedPrecondition},
		{name: "group", source: groupSource(group), pools: ceph, volumes: fakeCeph{members: []string{primary, other}}, want: groupTo,
			ids: map[string]string{primary: secondary, other: "0001-0011-secondary-cluster-0000000000000003-" + u}},
		{name: "group with a lost member", source: groupSource(group), pools: ceph, volumes: fakeCeph{members: []string{primary, other}, missing: map[string]bool{other: true}}, code: codes.NotFound, text: "member " + other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.config == "" {
				tt.config = c1
			}
			if tt.pools == nil {
				tt.pools = destinationserver.NoPools{}
			}
			s := &destinationserver.Server{Dir: dir(t, tt.config, tt.mapping), Pools: tt.pools, Volumes: tt.volumes, SameWithoutReplication: tt.same}
			res, err := s.GetReplicationDestinationInfo(t.Context(), &replication.GetReplicationDestinationInfoRequest{ReplicationSource: tt.source})
			if status.Code(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %s ...%s...", err, tt.code, tt.text)
			}
			d := res.GetReplicationDestination()
			if got := d.GetVolume().GetVolumeId() + d.GetVolumegroup().GetVolumeGroupId(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if diff := cmp.Diff(tt.ids, d.GetVolumegroup().GetVolumeIds()); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	d := t.TempDir()
	cert, key = filepath.Join(d, "tls.crt"), filepath.Join(d, "tls.key")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, raw := range map[string][]byte{cert: certPEM, key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: rawKey})} {
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// TestServe asks a running server through a socket, and through TCP with TLS.
func TestServe(t *testing.T) {
	cert, key, pool := certificate(t)
	socket := filepath.Join(t.TempDir(), "s.sock")
	address := freePort(t)
	for name, tt := range map[string]struct {
		listen destinationserver.Listen
		target string
		creds  credentials.TransportCredentials
	}{
		"unix": {listen: destinationserver.Listen{Address: "unix://" + socket}, target: "unix://" + socket, creds: insecure.NewCredentials()},
		"tls": {listen: destinationserver.Listen{Address: "tcp://" + address, Cert: cert, Key: key}, target: address,
			creds: credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})},
	} {
		t.Run(name, func(t *testing.T) {
			s := &destinationserver.Server{Dir: dir(t, c1, ""), Name: "rbd.csi.ceph.com", Version: "1", Pools: destinationserver.NoPools{}}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- destinationserver.Run(ctx, s, tt.listen) }()
			conn, err := grpc.NewClient(tt.target, grpc.WithTransportCredentials(tt.creds))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			id, err := identity.NewIdentityClient(conn).GetIdentity(ctx, &identity.GetIdentityRequest{}, grpc.WaitForReady(true))
			if err != nil || id.GetName() != "rbd.csi.ceph.com" || id.GetVendorVersion() != "1" {
				t.Fatalf("identity %v %v", id, err)
			}
			caps, err := identity.NewIdentityClient(conn).GetCapabilities(ctx, &identity.GetCapabilitiesRequest{})
			if err != nil || len(caps.GetCapabilities()) != 2 || caps.GetCapabilities()[1].GetVolumeReplication().GetType() != identity.Capability_VolumeReplication_GET_REPLICATION_DESTINATION_INFO {
				t.Errorf("capabilities %v %v", caps, err)
			}
			probe, err := identity.NewIdentityClient(conn).Probe(ctx, &identity.ProbeRequest{})
			if err != nil || !probe.GetReady().GetValue() {
				t.Errorf("probe %v %v", probe, err)
			}
			c := replication.NewControllerClient(conn)
			res, err := c.GetReplicationDestinationInfo(ctx, &replication.GetReplicationDestinationInfoRequest{ReplicationSource: volumeSource(plain)})
			if err != nil || res.GetReplicationDestination().GetVolume().GetVolumeId() != strings.Replace(plain, "0005-plain", "0001-r", 1) {
				t.Errorf("destination %v %v", res, err)
			}
			if _, err := c.PromoteVolume(ctx, &replication.PromoteVolumeRequest{}); status.Code(err) != codes.Unimplemented {
				t.Errorf("another question: %v", err)
			}
			// The file is read anew for each question.
			if err := os.WriteFile(filepath.Join(s.Dir, "config.json"), []byte("[]"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := c.GetReplicationDestinationInfo(ctx, &replication.GetReplicationDestinationInfoRequest{ReplicationSource: volumeSource(plain)}); status.Code(err) != codes.NotFound {
				t.Errorf("after the change: %v", err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	for _, l := range []destinationserver.Listen{{Address: "tcp://127.0.0.1:0"}, {Address: "127.0.0.1:0"}, {Address: "tcp://127.0.0.1:0", Cert: "/none", Key: "/none"}} {
		if err := destinationserver.Run(t.Context(), &destinationserver.Server{}, l); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
}

func TestExplainCommand(t *testing.T) {
	d := dir(t, c1, `[{"clusterIdMapping":{"gone":"primary-cluster"},"RBDPoolIDMapping":[{"9":"1"}]}]`)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{name: "pool known", args: []string{primary, "--pool", "primary-cluster:1=rbd"}, want: `handle    ` + primary + `
source    client profile "primary-cluster", pool id 1, uuid ` + u + `, format version 1
place 1   client profile "primary-cluster", pool id 1: as it stands in the handle
pool      1 is "rbd"
remote    client profile "secondary-cluster"
result    ` + secondary + `
          pool "rbd" is mapped to remote pool id 5
`},
		{name: "pool not known", args: []string{"0001-0004-gone-0000000000000009-" + u}, want: `handle    0001-0004-gone-0000000000000009-` + u + `
source    client profile "gone", pool id 9, uuid ` + u + `, format version 1
place 1   client profile "primary-cluster", pool id 1: by cluster-mapping.json, from a profile or pool that is not here any more
remote    client profile "secondary-cluster"
pool      finding the name of pool 1 of client profile "primary-cluster": no access to Ceph
result    ` + secondary + `
          if pool 1 is "rbd": mapped to remote pool id 5
result    0001-0011-secondary-cluster-0000000000000001-` + u + `
          if it is any other: the id 1 is kept
`},
		{name: "no destination", args: []string{"0001-0005-alone-0000000000000001-" + u}, want: `handle    0001-0005-alone-0000000000000001-` + u + `
source    client profile "alone", pool id 1, uuid ` + u + `, format version 1
place 1   client profile "alone", pool id 1: as it stands in the handle
result    none: client profile "alone": no replication destination is configured; create a ClientProfileReplication with localClientProfile alone
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := destinationserver.ExplainCommand(nil)
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetArgs(append(tt.args, "--config-dir", d))
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
	for _, pool := range []string{"x", "x=y", ":1=y", "p:one=y", "p:1="} {
		if _, err := destinationserver.ParsePools([]string{pool}); err == nil {
			t.Errorf("pool %q was accepted", pool)
		}
	}
}
