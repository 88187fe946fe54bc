package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIssueServesAndIdentifies(t *testing.T) {
	now := time.Now()
	ca, err := NewCA("lab-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.Issue(Subject{CommonName: "kube-apiserver", Hosts: []string{"127.0.0.1", "kubernetes"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Issue(Subject{CommonName: "system:node:node1", Groups: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca.Cert) {
		t.Fatal("the authority's certificate is not PEM")
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := r.TLS.PeerCertificates[0].Subject
		_, _ = io.WriteString(w, s.CommonName+" "+s.Organization[0])
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{keyPair(t, server)}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	srv.StartTLS()
	defer srv.Close()
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{keyPair(t, client)}}}}
	resp, err := c.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("system:node:node1 system:nodes", string(body)); d != "" {
		t.Error(d)
	}

	other, err := NewCA("another", now)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := other.Issue(Subject{CommonName: "system:node:node1"})
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{keyPair(t, stranger)}}}
	if resp, err := c.Get(srv.URL); err == nil {
		_ = resp.Body.Close()
		t.Error("a certificate of another authority was accepted")
	}
}

func TestIssueNames(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := NewCA("lab-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ca.Issue(Subject{CommonName: "x", Hosts: []string{"node1", "172.30.0.11"}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pem.Decode(p.Cert)
	cert, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"node1"}, cert.DNSNames); d != "" {
		t.Error(d)
	}
	if len(cert.IPAddresses) != 1 || cert.IPAddresses[0].String() != "172.30.0.11" {
		t.Errorf("addresses %v", cert.IPAddresses)
	}
	if cert.NotBefore.After(now) || cert.NotAfter.Before(now.Add(Lifetime-time.Second)) {
		t.Errorf("valid from %v to %v", cert.NotBefore, cert.NotAfter)
	}
	if cert.IsCA {
		t.Error("a leaf can sign")
	}
}

func TestSigningKey(t *testing.T) {
	p, err := SigningKey()
	if err != nil {
		t.Fatal(err)
	}
	pub, _ := pem.Decode(p.Cert)
	priv, _ := pem.Decode(p.Key)
	if pub == nil || pub.Type != "PUBLIC KEY" || priv == nil || priv.Type != "EC PRIVATE KEY" {
		t.Fatal("not a key pair in PEM")
	}
	key, err := x509.ParseECPrivateKey(priv.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(der, pub.Bytes) {
		t.Error("the two halves do not belong together")
	}
}

func keyPair(t *testing.T, p Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
