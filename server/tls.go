package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// certificateRecheck is how long a certificate is used before its files are looked at again.
const certificateRecheck = time.Second

// certificate is a TLS certificate in two files. It is loaded again when a file changes, so that renewing it needs no
// restart. If the new files cannot be loaded, for example because only one of them has been replaced yet, the old
// certificate stays in use.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2]fileVersion // of the last attempt to load it
	checked time.Time
}

// fileVersion tells whether a file has changed.
type fileVersion struct {
	modified time.Time
	size     int64
}

// loadCertificate loads the certificate. It fails if the files are missing or do not belong together.
func loadCertificate(certFile, keyFile string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, logger: logger}
	return c, c.load(time.Now())
}

// load loads the files, and notes their versions even if that fails.
func (c *certificate) load(now time.Time) error {
	c.checked, c.seen = now, c.versions() // before the files are read, so that a later change is noticed
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("load TLS certificate: %w", err)
	}
	c.current = &pair
	return nil
}

// versions returns the versions of both files; the zero version for a file that cannot be read.
func (c *certificate) versions() (v [2]fileVersion) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			v[i] = fileVersion{info.ModTime(), info.Size()}
		}
	}
	return v
}

// get returns the current certificate. It is the GetCertificate of a [tls.Config].
func (c *certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateRecheck {
		c.reload(hello.Context(), now)
	}
	return c.current, nil
}

// ends returns when the current certificate ends.
func (c *certificate) ends() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.Leaf.NotAfter
}

// reload loads the files if they have changed since the last attempt. Thus a broken file is logged once.
func (c *certificate) reload(ctx context.Context, now time.Time) {
	c.checked = now
	if c.versions() == c.seen {
		return
	}
	if err := c.load(now); err != nil {
		c.logger.ErrorContext(ctx, "the new TLS certificate is not used; the old one stays", "error", err)
		return
	}
	c.logger.InfoContext(ctx, "TLS certificate reloaded", "file", c.certFile, "expires", c.current.Leaf.NotAfter)
}

// useTLS makes the HTTP server use the configured certificate, if there is one.
func (s *Server) useTLS(h *http.Server) (err error) {
	if s.TLSCert == "" {
		return nil
	}
	if s.certificate, err = loadCertificate(s.TLSCert, s.TLSKey, s.Logger); err != nil {
		return err
	}
	h.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate.get}
	// Without HTTP/2, a connection has one request at a time, as it has without TLS: limits apply to both in the same way.
	h.Protocols = &http.Protocols{}
	h.Protocols.SetHTTP1(true)
	return nil
}
