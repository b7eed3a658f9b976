package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/queue/egress"
)

const (
	// appRoute is where apps of the Workflow SDK take webhooks (protocol §7).
	appRoute = "/.well-known/workflow/v1/webhook/"
	// appPatience is how long an app may take until its answer begins: workflows may answer themselves.
	appPatience = 5 * time.Minute
)

// newTransport makes what calls apps, where that is allowed.
func newTransport(allowed egress.Allowed) http.RoundTripper {
	return allowed.Transport(&http.Transport{
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: appPatience,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       4 * time.Second, // below the 5 s after which Node closes idle connections
		DisableCompression:    true,
	})
}

// pass passes a request to the app's own route, and its answer back as it comes.
func (s *Server) pass(r call) error {
	target, err := s.appURL(r)
	if err != nil {
		return &discreet{ErrUnreachable, fmt.Errorf("run %s: %w", r.run.ID, err)}
	}
	ctx, cancel := context.WithCancel(r.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	var failure error
	proxy := httputil.ReverseProxy{
		Transport:     s.proxy,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			rewrite(p, target)
			if s.Passing != nil {
				s.Passing(ctx, p.Out.Header)
			}
		},
		ModifyResponse: takeOver,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failure = err },
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // it has a form of its own
	}
	request := r.Request().Clone(ctx)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	request.TransferEncoding = nil
	proxy.ServeHTTP(r.Response(), request)
	if failure == nil || errors.Is(failure, ErrNotFound) {
		return failure
	}
	return &discreet{ErrUnreachable, fmt.Errorf("run %s: %w", r.run.ID, withoutWords(failure))}
}

// withoutWords is what the log may say of a call that came to nothing: an error about an answer quotes it.
func withoutWords(err error) error {
	if connection := (*net.OpError)(nil); errors.As(err, &connection) {
		return connection
	}
	if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
		return certificate
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New("there is no answer, or none that is HTTP")
}

// appURL is the app's route for the token.
func (s *Server) appURL(r call) (*url.URL, error) {
	d, err := s.Queue.Deployment(r.Request().Context(), r.hook.Project, r.run.DeploymentID)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(strings.TrimSuffix(d.URL, "/") + appRoute + url.PathEscape(r.token))
	if err != nil {
		return nil, err
	}
	target.RawQuery = r.Request().URL.RawQuery
	return target, nil
}

// rewrite makes the request that the app gets: who asked, and for what, is in the headers for that.
func rewrite(p *httputil.ProxyRequest, target *url.URL) {
	p.Out.URL, p.Out.Host = target, ""
	for _, name := range []string{"Connection", "Upgrade", "Cookie"} { // cookies are those of this server
		p.Out.Header.Del(name)
	}
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if before := p.In.Header.Get(name); before != "" {
			p.Out.Header.Set(name, before) // those who know are nearer to the one who asked
		}
	}
}

// takeOver makes an app's answer that of this server.
func takeOver(response *http.Response) error {
	if response.StatusCode == http.StatusNotFound && response.ContentLength == 0 {
		return ErrNotFound // the hook has just gone
	}
	for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc"} {
		response.Header.Del(name)
	}
	// The proxy adds the app's headers to those that are there; each is to be there once.
	for _, name := range []string{"X-Content-Type-Options", "Referrer-Policy", "X-Request-Id"} {
		response.Header.Del(name)
	}
	return nil
}
