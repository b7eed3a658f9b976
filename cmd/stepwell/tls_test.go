package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// certificateFiles are the files of a server's certificate.
type certificateFiles struct{ cert, key string }

func newCertificateFiles(t *testing.T) certificateFiles {
	t.Helper()
	dir := t.TempDir()
	return certificateFiles{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

// renew writes a new certificate with the serial number, and returns it.
func (f certificateFiles) renew(t *testing.T, serial int64) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "stepwell"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(serial) * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, f.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// write replaces a file. Its time differs from the old one's even if the file system's clock is coarse.
func write(t *testing.T, file string, data []byte) {
	t.Helper()
	before, statErr := os.Stat(file)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if statErr == nil {
		next := before.ModTime().Add(time.Second)
		if err := os.Chtimes(file, next, next); err != nil {
			t.Fatal(err)
		}
	}
}

// tlsClient returns a client that trusts the certificates, and connects anew for each request.
func tlsClient(t *testing.T, trusted ...*x509.Certificate) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	for _, c := range trusted {
		roots.AddCert(c)
	}
	return &http.Client{Timeout: waitLimit, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}}
}

// serialOf returns the serial number of the certificate that the server presents.
func serialOf(t *testing.T, client *http.Client, url string) int64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 1 {
		t.Errorf("got %s over %s", resp.Status, resp.Proto)
	}
	return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
}

// TestTLSCertificateIsReloaded: a renewed certificate is used without a restart, and a broken one is not used.
func TestTLSCertificateIsReloaded(t *testing.T) {
	t.Parallel()
	files, log := newCertificateFiles(t), &testdb.Log{}
	first := files.renew(t, 1)
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.logger = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), log), nil))
	s.config.TLSCert, s.config.TLSKey = files.cert, files.key
	mustStart(t, s)
	url := "https://" + s.Addr() + "/readyz"
	if got := serialOf(t, tlsClient(t, first), url); got != 1 {
		t.Fatalf("certificate %d, want 1", got)
	}

	write(t, files.key, []byte("broken"))
	until(t, "the broken key is noticed", func() bool {
		if got := serialOf(t, tlsClient(t, first), url); got != 1 {
			t.Fatalf("certificate %d, want the old one", got)
		}
		return strings.Contains(log.String(), "the new TLS certificate is not used")
	})
	second := files.renew(t, 2)
	client := tlsClient(t, first, second)
	until(t, "the new certificate is used", func() bool { return serialOf(t, client, url) == 2 })
	metric := fmt.Sprintf("gauge:{value:%g}", float64(second.NotAfter.Unix()))
	if got := strings.ReplaceAll(s.metricsText(t), ": ", ":"); !strings.Contains(got, metric) {
		t.Errorf("no metric has %s", metric)
	}
	if n := strings.Count(log.String(), "is not used"); n != 1 {
		t.Errorf("the broken key was logged %d times, want once", n)
	}
}

// until waits until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func TestTLSServerRefusesPlainAndOldConnections(t *testing.T) {
	t.Parallel()
	files := newCertificateFiles(t)
	cert := files.renew(t, 1)
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.config.TLSCert, s.config.TLSKey = files.cert, files.key
	mustStart(t, s)
	if got := servertest.Request(t, http.MethodGet, "http://"+s.Addr()+"/healthz", ""); got.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: got %s", got.Status)
	}
	old := tlsClient(t, cert)
	config := old.Transport.(*http.Transport).TLSClientConfig
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := old.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("TLS 1.1: got %s", resp.Status)
	}
	c, out := s.config, bytes.Buffer{}
	c.Listen = s.Addr()
	if err := (healthCmd{}).Run(t.Context(), &out, c); err != nil || !strings.Contains(out.String(), `"ok"`) {
		t.Errorf("stepwell health: got %s and %v", &out, err)
	}
}

func TestServerDoesNotStartWithoutItsCertificate(t *testing.T) {
	t.Parallel()
	files := newCertificateFiles(t)
	files.renew(t, 1)
	write(t, files.key, []byte("broken"))
	s := newServer(t, testdb.New(t), server.RoleAPI)
	s.config.TLSCert, s.config.TLSKey = files.cert, files.key
	if err := s.start(t.Context()); err == nil || !strings.Contains(err.Error(), "TLS certificate") {
		t.Errorf("got %v", err)
	}
	wantStopped(t, s)
}
