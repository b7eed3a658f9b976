package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

const (
	// appRoute is where apps of the Workflow SDK receive webhooks (protocol §7).
	appRoute = "/.well-known/workflow/v1/webhook/"
	// responseTimeout limits how long an app may take to begin its response, which a workflow may compute.
	responseTimeout = 5 * time.Minute
)

// newTransport returns the transport that calls apps at allowed addresses.
func newTransport(allowed egress.Allowed) http.RoundTripper {
	return allowed.Transport(&http.Transport{
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: responseTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       4 * time.Second, // below the 5 s after which Node closes idle connections
		DisableCompression:    true,
	})
}

// forward forwards a request to the app's own route and streams its response back.
func (s *Server) forward(r call) error {
	leave, ok := s.waits.enter(r.target)
	if !ok {
		return tooMany(time.Second)
	}
	defer leave()
	incoming.Waits(r)
	target, err := s.appURL(r)
	if err != nil {
		return &redactedError{ErrUnreachable, fmt.Errorf("run %s: %w", r.run.ID, err)}
	}
	ctx, cancel := context.WithCancel(r.Request().Context())
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	var proxyErr error
	proxy := httputil.ReverseProxy{
		Transport:     s.proxy,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			rewrite(p, target)
			if s.OnForward != nil {
				s.OnForward(ctx, p.Out.Header)
			}
		},
		ModifyResponse: answerOf(r.Response().Header()),
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { proxyErr = err },
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // errors are logged by the error handler
	}
	request := r.Request().Clone(ctx)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	request.TransferEncoding = nil
	proxy.ServeHTTP(r.Response(), request)
	if proxyErr == nil || errors.Is(proxyErr, ErrNotFound) {
		return proxyErr
	}
	return &redactedError{ErrUnreachable, fmt.Errorf("run %s: %w", r.run.ID, redact(proxyErr))}
}

// redact returns an error that is safe to log: other errors of the transport may quote the app's response.
func redact(err error) error {
	if connection, ok := errors.AsType[*net.OpError](err); ok {
		return connection
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return certificate
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New("no valid HTTP response")
}

// appURL returns the URL of the app's route for the token.
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

// rewrite prepares the request to the app. The X-Forwarded headers have the original client and host.
func rewrite(p *httputil.ProxyRequest, target *url.URL) {
	p.Out.URL, p.Out.Host = target, ""
	for _, name := range []string{"Connection", "Upgrade", "Cookie"} { // cookies belong to this server's origin
		p.Out.Header.Del(name)
	}
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if before := p.In.Header.Get(name); before != "" {
			p.Out.Header.Set(name, before) // an earlier proxy is closer to the client
		}
	}
}

// answerOf returns what is done with the app's response before it is copied to own, the headers that the server has
// set. They are put back, because an informational response (1xx) of the app clears them.
func answerOf(own http.Header) func(*http.Response) error {
	set := own.Clone()
	return func(response *http.Response) error {
		maps.Copy(own, set)
		return filterResponse(response)
	}
}

// filterResponse removes the headers that an app must not set for this server's origin.
func filterResponse(response *http.Response) error {
	if response.StatusCode == http.StatusNotFound && response.ContentLength == 0 {
		return ErrNotFound // the hook was disposed meanwhile
	}
	maps.DeleteFunc(response.Header, func(name string, _ []string) bool { return webhook.SharedHeader(name) })
	// This server has set these; the proxy would add the app's as duplicates.
	for _, name := range []string{"X-Content-Type-Options", "Referrer-Policy", "X-Request-Id"} {
		response.Header.Del(name)
	}
	return nil
}
