// Package pki makes the certificates and kubeconfigs of a lab: one authority,
// and a key pair for each component, each node and the administrator. Keys are
// ECDSA P-256: a lab is made in seconds and lives for days.
//
// It must not write files or know where anything is kept.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Lifetime is how long the certificates of a lab are good for.
const Lifetime = 10 * 365 * 24 * time.Hour

// skew is how far in the past certificates begin, for programs whose clock is
// a little behind.
const skew = 5 * time.Minute

// Pair is a certificate and its key, both in PEM.
type Pair struct {
	Cert, Key []byte
}

// CA signs certificates. The zero value is not usable.
type CA struct {
	Pair
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
}

// NewCA makes an authority with this common name, valid from now on.
func NewCA(commonName string, now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of %s: %w", commonName, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: commonName}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of %s: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of %s: %w", commonName, err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	return &CA{Pair: pair, cert: cert, key: key, now: now}, nil
}

// Subject says whom a certificate is for.
type Subject struct {
	CommonName string   // the user's name, for the API server
	Groups     []string // the user's groups
	Hosts      []string // names and addresses it serves at
}

// Issue makes a key pair for the subject, good for serving and for clients.
func (ca *CA) Issue(s Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of %s: %w", s.CommonName, err)
	}
	template, err := newTemplate(pkix.Name{CommonName: s.CommonName, Organization: s.Groups}, ca.now)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("making the certificate of %s: %w", s.CommonName, err)
	}
	return encode(der, key)
}

// SigningKey makes a key pair for service account tokens: the public key in
// PEM stands where a certificate would.
func SigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of service accounts: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encoding the key of service accounts: %w", err)
	}
	pair, err := encode(nil, key)
	if err != nil {
		return Pair{}, err
	}
	pair.Cert = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
	return pair, nil
}

func newTemplate(name pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(Lifetime),
	}, nil
}

func encode(der []byte, key *ecdsa.PrivateKey) (Pair, error) {
	k, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a key: %w", err)
	}
	p := Pair{Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: k})}
	if der != nil {
		p.Cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return p, nil
}

// Kubeconfig is a kubeconfig that holds everything it needs. cluster names the
// cluster, context and user in it.
func Kubeconfig(cluster, server string, ca []byte, user Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster:
    server: %[2]s
    certificate-authority-data: %[3]s
users:
- name: %[1]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[1]s
  context:
    cluster: %[1]s
    user: %[1]s
current-context: %[1]s
`, cluster, server, b64(ca), b64(user.Cert), b64(user.Key))
}
