package mgr

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephmgr "github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
)

// PasswordSecret holds the password of the dashboard's user admin.
const PasswordSecret = "rook-ceph-dashboard-password"

// user of the dashboard that has the Secret's password.
const user = "admin"

const dashboard = "dashboard"

// Options of the dashboard that the spec implies.
const (
	optSSL       = "mgr/dashboard/ssl"
	optPort      = "mgr/dashboard/server_port"
	optSSLPort   = "mgr/dashboard/ssl_server_port"
	optPrefix    = "mgr/dashboard/url_prefix"
	optAPIHost   = "mgr/dashboard/PROMETHEUS_API_HOST"
	optAPIVerify = "mgr/dashboard/PROMETHEUS_API_SSL_VERIFY"
	// optCertificate is a user's own: a file in the mgr's image.
	optCertificate = "mgr/dashboard/crt_file"
)

// readAtStart reports whether the dashboard reads an option only when it starts.
func readAtStart(option string) bool {
	return slices.Contains([]string{optSSL, optPort, optSSLPort, optPrefix}, option)
}

// Dashboard is what is known of the dashboard that runs.
type Dashboard struct {
	// User: it has its user admin. Current: with the Secret's password.
	User, Current bool
	// Certificate: it has one, or needs none.
	Certificate bool
	// Password is the Secret's. Empty says that there is a Secret without one.
	Password ceph.Secret
	Empty    bool
	// NewPassword is used if there is no Secret yet.
	NewPassword ceph.Secret
}

// AdminUser makes the dashboard's user, or gives it the password of the Secret.
type AdminUser struct{ Exists bool }

// String implements kit.Action.
func (a AdminUser) String() string {
	if a.Exists {
		return "giving the dashboard's user the password of Secret " + PasswordSecret
	}
	return "giving the dashboard its user " + user
}

// Certificate has the dashboard sign a certificate for itself.
type Certificate struct{}

// String implements kit.Action.
func (Certificate) String() string { return "giving the dashboard a certificate" }

// dashboardSettings are the options that the spec implies. When it is off, none is left.
func dashboardSettings(d cephv1.DashboardSpec) []Setting {
	ports := map[bool]string{d.SSL: strconv.Itoa(d.EffectivePort())}
	verify := "" // without a Prometheus that it asks, the dashboard keeps its own default
	if d.PrometheusEndpoint != "" {
		verify = strconv.FormatBool(d.PrometheusEndpointSSLVerify)
	}
	opts := []Setting{
		{optSSL, strconv.FormatBool(d.SSL)}, {optPort, ports[false]}, {optSSLPort, ports[true]}, {optPrefix, d.URLPrefix},
		{optAPIHost, d.PrometheusEndpoint}, {optAPIVerify, verify},
	}
	if !d.Enabled {
		for i := range opts {
			opts[i].Value = ""
		}
	}
	return opts
}

// serve gives the dashboard that runs its certificate and its user. It returns what only
// the user can put right.
func serve(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) (problem string) {
	if !cl.Spec.Dashboard.Enabled {
		return ""
	}
	d := seen.Dashboard
	switch {
	case d.Empty:
		problem = "Secret " + PasswordSecret + " has no password; delete it, and a new one is made"
	case d.Password.IsZero():
		p.Create = append(p.Create, keyring.Opaque(seen.Cluster, PasswordSecret, map[string][]byte{"password": []byte(d.NewPassword.Reveal())}))
	}
	if !seen.Modules.On(dashboard) || !seen.Stat.Available {
		return problem
	}
	if cl.Spec.Dashboard.SSL && !d.Certificate {
		p.Do = append(p.Do, Certificate{})
	}
	if !d.Password.IsZero() && !d.Current {
		p.Do = append(p.Do, AdminUser{Exists: d.User})
	}
	return problem
}

// look asks for what the dashboard has. Only the active mgr knows its user; while it
// restarts, the question waits.
func (c *Controller) look(ctx context.Context, cl *cephv1.CephCluster, m cephmgr.Client, seen *Seen) error {
	if !cl.Spec.Dashboard.Enabled || !seen.Stat.Available || !seen.Modules.On(dashboard) {
		return nil
	}
	d := &seen.Dashboard
	switch u, err := m.DashboardUser(ctx, user); {
	case err == nil && u.Name != "":
		d.User, d.Current = true, c.passwords.same(cl.Namespace, u.Hash, d.Password)
	case err != nil && !ceph.NotFound(err):
		d.Current = true // nothing is known
	}
	if !cl.Spec.Dashboard.SSL {
		return nil
	}
	d.Certificate = value(seen.Config, optCertificate) != ""
	if !d.Certificate {
		var err error
		if d.Certificate, err = m.HasDashboardCertificate(ctx); err != nil {
			return fmt.Errorf("asking for the dashboard's certificate: %w", err)
		}
	}
	return nil
}

// password reads the Secret, and makes a new password in case there is none.
func (c *Controller) password(ctx context.Context, cl *cephv1.CephCluster, seen *Seen) error {
	if !cl.Spec.Dashboard.Enabled {
		return nil
	}
	d := &seen.Dashboard
	var found bool
	var err error
	if d.Password, found, err = c.stored(ctx, cl.Namespace); err != nil {
		return err
	}
	if found {
		d.Empty = d.Password.IsZero()
		return nil
	}
	random := c.Random
	if random == nil {
		random = rand.Reader
	}
	b := make([]byte, 15)
	if _, err := io.ReadFull(random, b); err != nil {
		return fmt.Errorf("making the dashboard's password: %w", err)
	}
	d.NewPassword = ceph.NewSecret(strings.ToLower(base32.StdEncoding.EncodeToString(b)) + "-A1")
	return nil
}

// stored is the password in the Secret, as Ceph takes it: without the end of a line.
func (c *Controller) stored(ctx context.Context, namespace string) (password ceph.Secret, found bool, err error) {
	var s corev1.Secret
	found, err = kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: namespace, Name: PasswordSecret}, &s)
	if err != nil {
		return ceph.Secret{}, false, fmt.Errorf("reading the dashboard's password: %w", err)
	}
	if text := strings.TrimRight(string(s.Data["password"]), "\r\n"); strings.TrimSpace(text) != "" {
		password = ceph.NewSecret(text)
	}
	return password, found, nil
}

// setPassword carries out AdminUser.
func (c *Controller) setPassword(ctx context.Context, namespace string, m cephmgr.Client, a AdminUser) error {
	password, _, err := c.stored(ctx, namespace)
	if err != nil {
		return err
	}
	if !a.Exists {
		if err := m.CreateDashboardUser(ctx, user, "administrator", password); !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
	return m.SetDashboardPassword(ctx, user, password)
}

// passwords remembers of each namespace for which hash and password the answer is
// known: to compute it takes a quarter of a second.
type passwords struct {
	mu    sync.Mutex
	known map[string]answer
}

type answer struct {
	about [sha256.Size]byte
	same  bool
}

// same reports whether hash is one of password. A hash of a kind that is not known, or
// none, says nothing against it.
func (p *passwords) same(namespace string, hash, password ceph.Secret) bool {
	if hash.IsZero() || password.IsZero() {
		return true
	}
	about := sha256.Sum256([]byte(hash.Reveal() + "\x00" + password.Reveal()))
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.known[namespace]; ok && a.about == about {
		return a.same
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash.Reveal()), []byte(password.Reveal()))
	if p.known == nil {
		p.known = map[string]answer{}
	}
	a := answer{about: about, same: !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword)}
	p.known[namespace] = a
	return a.same
}
