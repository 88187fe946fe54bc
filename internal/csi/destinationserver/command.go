package destinationserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/csi-addons/spec/lib/go/identity"
	"github.com/csi-addons/spec/lib/go/replication"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/castellan-storage/castellan/internal/csi/destination"
)

// defaultDir is where the pods of CSI drivers mount their configuration.
const defaultDir = "/etc/ceph-csi-config"

// Listen says where a Server is reached.
type Listen struct {
	// Address is unix:///path or tcp://host:port. TCP needs a certificate.
	Address string
	// Cert and Key are files in PEM. ClientCA, if set, is a file with the certificates
	// of those who may ask.
	Cert, Key, ClientCA string
}

// cephHelp describes the flag that gives access to Ceph.
const cephHelp = "directory with the files userID and userKey of a Ceph user (a mounted Secret rook-csi-rbd-provisioner), as DIR or PROFILE=DIR; may be repeated; without it nothing is asked of Ceph"

// access puts together where names of pools come from, and Ceph if there are
// credentials.
func access(pools, keyDirs []string, dial Dial) (GivenPools, func(destination.Config) (Pools, Volumes), error) {
	given, err := ParsePools(pools)
	if err != nil {
		return nil, nil, err
	}
	keys, err := ParseCredentials(keyDirs)
	if err != nil {
		return nil, nil, err
	}
	if len(keys) == 0 {
		return given, nil, nil
	}
	return given, func(cfg destination.Config) (Pools, Volumes) {
		q := Ask(cfg, keys, dial)
		return fallback{q, given}, q
	}, nil
}

// fallback asks a second one where the first has no access.
type fallback struct{ first, second Pools }

// PoolName implements Pools.
func (f fallback) PoolName(ctx context.Context, profile string, pool int64) (string, error) {
	name, err := f.first.PoolName(ctx, profile, pool)
	if errors.Is(err, ErrNoAccess) {
		return f.second.PoolName(ctx, profile, pool)
	}
	return name, err
}

// Command is "replication-destination", the server. version is the program's.
func Command(version string, dial Dial) *cobra.Command {
	s := &Server{Version: version}
	var l Listen
	var pools, keyDirs []string
	cmd := &cobra.Command{
		Use:   "replication-destination",
		Short: "Answer where replicated volumes are found in the other cluster (csi-addons GetReplicationDestinationInfo)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given, ceph, err := access(pools, keyDirs, dial)
			if err != nil {
				return err
			}
			s.Pools, s.Ceph = given, ceph
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return Run(ctx, s, l)
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.Address, "listen", "unix:///csi/csi-addons.sock", "unix:///path, or tcp://host:port with a certificate")
	f.StringVar(&l.Cert, "tls-cert", "", "certificate, PEM")
	f.StringVar(&l.Key, "tls-key", "", "key of the certificate, PEM")
	f.StringVar(&l.ClientCA, "tls-client-ca", "", "certificates of those who may ask, PEM; empty: anybody who can connect")
	f.StringVar(&s.Dir, "config-dir", defaultDir, "directory with config.json and cluster-mapping.json")
	f.StringVar(&s.Name, "driver-name", "rbd.csi.ceph.com", "name of the CSI driver whose volumes are asked for")
	f.StringArrayVar(&pools, "pool", nil, "name of a pool, as PROFILE:ID=NAME; may be repeated")
	f.StringArrayVar(&keyDirs, "ceph-credentials", nil, cephHelp)
	f.BoolVar(&s.SameWithoutReplication, "same-handle-without-replication", false, "answer with the source's handle where no ClientProfileReplication is in effect, as CSI drivers do")
	return cmd
}

// ExplainCommand is "destination HANDLE", for people.
func ExplainCommand(dial Dial) *cobra.Command {
	var dir string
	var pools, keyDirs []string
	cmd := &cobra.Command{
		Use: "destination HANDLE", Short: "Show where a replicated volume is found in the other cluster, and why", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, ceph, err := access(pools, keyDirs, dial)
			if err != nil {
				return err
			}
			cfg, err := ReadDir(dir)
			if err != nil {
				return err
			}
			names, volumes := Pools(given), Volumes(nil)
			if ceph != nil {
				names, volumes = ceph(cfg)
			}
			text, err := Explain(cmd.Context(), cfg, args[0], names, volumes)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "config-dir", defaultDir, "directory with config.json and cluster-mapping.json")
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "name of a pool, as PROFILE:ID=NAME; may be repeated")
	cmd.Flags().StringArrayVar(&keyDirs, "ceph-credentials", nil, cephHelp)
	return cmd
}

// Run serves until ctx ends, and then lets questions that are being answered finish.
func Run(ctx context.Context, s *Server, l Listen) error {
	listener, options, err := l.open(ctx)
	if err != nil {
		return err
	}
	g := grpc.NewServer(options...)
	replication.RegisterControllerServer(g, s)
	identity.RegisterIdentityServer(g, s)
	stop := context.AfterFunc(ctx, g.GracefulStop)
	defer stop()
	if err := g.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving on %s: %w", l.Address, err)
	}
	return nil
}

func (l Listen) open(ctx context.Context) (net.Listener, []grpc.ServerOption, error) {
	var lc net.ListenConfig
	if path, ok := strings.CutPrefix(l.Address, "unix://"); ok {
		// A socket that a former process left behind would be in the way.
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			if err := os.Remove(path); err != nil {
				return nil, nil, fmt.Errorf("removing the old socket: %w", err)
			}
		}
		listener, err := lc.Listen(ctx, "unix", path)
		if err != nil {
			return nil, nil, fmt.Errorf("listening on %s: %w", l.Address, err)
		}
		return listener, nil, nil
	}
	address, ok := strings.CutPrefix(l.Address, "tcp://")
	if !ok {
		return nil, nil, fmt.Errorf("listening on %q: write unix:///path or tcp://host:port", l.Address)
	}
	cfg, err := l.tls()
	if err != nil {
		return nil, nil, err
	}
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listening on %s: %w", l.Address, err)
	}
	return listener, []grpc.ServerOption{grpc.Creds(credentials.NewTLS(cfg))}, nil
}

// tls reads the certificate anew for each connection, so that it can be renewed.
func (l Listen) tls() (*tls.Config, error) {
	if l.Cert == "" || l.Key == "" {
		return nil, fmt.Errorf("listening on %s: a certificate and its key are needed for TCP", l.Address)
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate: %w", err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() }}
	if l.ClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(l.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of clients: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading the certificates of clients: %s holds none", l.ClientCA)
	}
	return cfg, nil
}
