package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsOptions says how metrics are served.
type metricsOptions struct {
	address, certDir string
	secure           bool
}

// server gives the options of the manager's metrics server: TLS and a token of
// somebody who may read /metrics, unless the user has said otherwise.
func (o metricsOptions) server(scheme *runtime.Scheme) metricsserver.Options {
	opts := metricsserver.Options{BindAddress: o.address, SecureServing: o.secure, CertDir: o.certDir}
	if !o.secure {
		return opts
	}
	opts.FilterProvider = func(cfg *rest.Config, hc *http.Client) (metricsserver.Filter, error) {
		c, err := client.New(cfg, client.Options{HTTPClient: hc, Scheme: scheme})
		if err != nil {
			return nil, fmt.Errorf("making a client that checks who reads metrics: %w", err)
		}
		g := &gate{reviewer: c, known: map[[sha256.Size]byte]verdict{}, now: time.Now}
		return g.filter, nil
	}
	opts.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS13
		c.NextProtos = []string{"http/1.1"}
		if o.certDir == "" {
			c.GetCertificate = new(selfSigned).get
		}
	}}
	return opts
}

// selfSigned makes a certificate when it is first needed, so that a start does
// not wait for it.
type selfSigned struct {
	once sync.Once
	cert *tls.Certificate
	err  error
}

func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.once.Do(func() { s.cert, s.err = makeCertificate(time.Now()) })
	return s.cert, s.err
}

func makeCertificate(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for the metrics endpoint: %w", err)
	}
	const validity = 10 * 365 * 24 * time.Hour // it lives as long as the process
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "castellan-metrics"}, DNSNames: []string{"castellan-metrics"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the metrics endpoint: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// verdicts are kept for verdictAge, so that a scraper costs no more than two
// requests to the API server in that time; no more than maxVerdicts are kept.
const (
	verdictAge  = time.Minute
	maxVerdicts = 64
)

type verdict struct {
	status int
	until  time.Time
}

// gate lets those in whose token the API server knows and who may get the path.
// It is small on purpose: the filter that controller-runtime has brings half of
// the API server into this process.
type gate struct {
	reviewer interface {
		Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	}
	now func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

func (g *gate) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := g.check(r)
		if err != nil {
			log.Error(err, "checking who reads metrics")
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// check gives the status to answer with. A check that fails lets nobody in.
func (g *gate) check(r *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized, nil
	}
	verb := strings.ToLower(r.Method)
	key := sha256.Sum256([]byte(verb + "\x00" + r.URL.Path + "\x00" + token))
	g.mu.Lock()
	v, ok := g.known[key]
	g.mu.Unlock()
	if ok && g.now().Before(v.until) {
		return v.status, nil
	}
	status, err := g.ask(r.Context(), token, verb, r.URL.Path)
	if err != nil {
		return http.StatusInternalServerError, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= maxVerdicts {
		clear(g.known)
	}
	g.known[key] = verdict{status, g.now().Add(verdictAge)}
	return status, nil
}

func (g *gate) ask(ctx context.Context, token, verb, path string) (int, error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := g.reviewer.Create(ctx, who); err != nil {
		return 0, fmt.Errorf("asking whose token it is: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range who.Status.User.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Status.User.Username, UID: who.Status.User.UID, Groups: who.Status.User.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path},
	}}
	if err := g.reviewer.Create(ctx, may); err != nil {
		return 0, fmt.Errorf("asking what %s may read: %w", who.Status.User.Username, err)
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
