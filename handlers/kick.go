package handlers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities/rescue"
)

const (
	// kickTimeout limits how long a request waits for the drain it starts to begin its response. On platforms that
	// buffer responses, every request that makes a message due waits this long.
	kickTimeout = time.Second
	// kickSlack is how much longer than a drain its response may take.
	kickSlack = time.Minute
)

// Kicker starts drains by sending requests to this server's public address. The platform starts another instance for
// them if necessary. If a kick is lost, the messages wait for the scheduler's next drain.
type Kicker struct {
	url     string
	key     selfKey // empty if the server is open
	longest time.Duration
	client  *http.Client
	logger  *slog.Logger
	now     func() time.Time
}

// ParseBaseURL parses the public address of a server.
func ParseBaseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("not an absolute http or https URL")
	}
	if u.User != nil || strings.ContainsAny(text, "?#") {
		return nil, errors.New("the URL has a query, a fragment or credentials; want a base URL") // logs show the URL
	}
	return u, nil
}

// NewKicker returns a kicker for the server at a base URL. Drains take at most longest. The requests are signed with a
// key derived from the API key, which is empty for an open server; they never contain the API key. An http URL must be
// that of a loopback or private address.
func NewKicker(
	baseURL, apiKey string, longest time.Duration, now func() time.Time, logger *slog.Logger,
) (*Kicker, error) {
	u, err := ParseBaseURL(baseURL)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: kickTimeout}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: kickTimeout,
		ForceAttemptHTTP2:   true,
		DisableKeepAlives:   true, // a connection would break while the platform freezes the process
	}
	if u.Scheme == "http" {
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && checkNotPublic(addr) != nil {
			return nil, errPublicHTTP
		}
		dialer.ControlContext = refusePublic
		transport.Proxy = nil // it would only carry the request further in the open
	}
	return &Kicker{
		url: strings.TrimSuffix(baseURL, "/") + drainPath, key: newSelfKey(apiKey), longest: longest, logger: logger,
		now: now,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Kick sends the request and waits until its response begins or the timeout expires. The request continues in either
// case, because platforms stop requests whose client disconnects. A nil kicker does nothing.
func (k *Kicker) Kick(ctx context.Context) {
	if k == nil {
		return
	}
	begun := make(chan struct{})
	go func() {
		_ = rescue.Do(ctx, "kick", func() error { // another request starts the drain
			k.send(context.WithoutCancel(ctx), begun)
			return nil
		})
	}()
	timeout := time.NewTimer(kickTimeout)
	defer timeout.Stop()
	select {
	case <-begun:
	case <-timeout.C:
	}
}

// send sends the request, and closes begun when the response begins or the request fails.
func (k *Kicker) send(ctx context.Context, begun chan<- struct{}) {
	ctx, cancel := context.WithTimeout(ctx, k.longest+kickSlack)
	defer cancel()
	resp, err := k.post(ctx)
	close(begun)
	if err != nil {
		k.logger.WarnContext(ctx, "start drain", "error", err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		k.logger.WarnContext(ctx, "start drain", "url", k.url, "status", resp.Status)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // only the scheduler uses the result
}

func (k *Kicker) post(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "stepwell")
	if len(k.key.Key) > 0 {
		req.Header.Set("Authorization", "Bearer "+k.key.token(k.now()))
	}
	return k.client.Do(req)
}
