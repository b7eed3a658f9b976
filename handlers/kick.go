package handlers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// kickPatience is how long a request waits until the one it sends has got through. It is through when its answer
	// begins; platforms that hold answers back until they are whole make every request wait for so long that makes
	// something due.
	kickPatience = time.Second
	// kickSlack is how much longer than a drain its answer may take.
	kickSlack = time.Minute
)

// Kicker asks this server for a drain, at its public address: the platform lets another request run for it. A kick
// that gets lost costs the time until the scheduler asks.
type Kicker struct {
	url, key string
	longest  time.Duration
	client   *http.Client
	logger   *slog.Logger
}

// NewKicker makes a kicker for the server at a base URL. Its drains take no longer than longest.
func NewKicker(baseURL, key string, longest time.Duration, logger *slog.Logger) (*Kicker, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("it is not an absolute http or https URL")
	}
	if u.User != nil || strings.ContainsAny(baseURL, "?#") {
		return nil, errors.New("the URL has a query, a fragment or credentials; want a base URL") // which logs would show
	}
	return &Kicker{
		url: strings.TrimSuffix(baseURL, "/") + drainPath, key: key, longest: longest, logger: logger,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy:               http.ProxyFromEnvironment,
				DialContext:         (&net.Dialer{Timeout: kickPatience}).DialContext,
				TLSHandshakeTimeout: kickPatience,
				ForceAttemptHTTP2:   true,
				DisableKeepAlives:   true, // a connection does not outlive the process being frozen
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Kick sends the request and waits until it is through, or patience ends. It does not hang up then, as platforms end
// requests that nobody waits for. A nil kicker does nothing.
func (k *Kicker) Kick(ctx context.Context) {
	if k == nil {
		return
	}
	through := make(chan struct{})
	go k.send(context.WithoutCancel(ctx), through)
	patience := time.NewTimer(kickPatience)
	defer patience.Stop()
	select {
	case <-through:
	case <-patience.C:
	}
}

// send closes through when the answer begins, or will not come.
func (k *Kicker) send(ctx context.Context, through chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, k.longest+kickSlack)
	defer cancel()
	resp, err := k.post(ctx)
	close(through)
	if err != nil {
		k.logger.WarnContext(ctx, "ask for a drain", "error", err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		k.logger.WarnContext(ctx, "ask for a drain", "url", k.url, "status", resp.Status)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // what it did is told in the scheduler's answers
}

func (k *Kicker) post(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "stepwell")
	if k.key != "" {
		req.Header.Set("Authorization", "Bearer "+k.key)
	}
	return k.client.Do(req)
}
