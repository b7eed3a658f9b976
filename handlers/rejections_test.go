package handlers

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestRejectionsAreLoggedOncePerAddressAndMinute: the first at once, and the number of the others afterwards.
func TestRejectionsAreLoggedOncePerAddressAndMinute(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	now := time.Unix(1_800_000_000, 0)
	r := &rejections{logger: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	add := func(address string, n int) {
		for range n {
			r.flush(t.Context())
			r.add(t.Context(), address, auth.ErrUnauthorized)
		}
	}
	add("203.0.113.7", 500)
	add("2001:db8::1", 1)
	add("2001:db8::2", 2) // the same network
	check.Equal(t, "lines at first", strings.Count(log.String(), "\n"), 2)
	log.Reset()
	now = now.Add(rejectionWindow)
	r.flush(t.Context())
	r.flush(t.Context())
	for _, want := range []string{"address=203.0.113.7/32 count=499", "address=2001:db8::/64 count=2"} {
		if strings.Count(log.String(), want) != 1 || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("want one line with %s:\n%s", want, &log)
		}
	}
	log.Reset()
	for i := range 3 * maxRejected {
		add(fmt.Sprintf("10.0.%d.%d", i/256, i%256), 1)
	}
	if got := strings.Count(log.String(), "\n"); got != maxRejected || len(r.more) != maxRejected {
		t.Errorf("%d lines and %d addresses from many addresses, want %d", got, len(r.more), maxRejected)
	}
}

// TestClientAddresses: nobody can choose the address that is logged, except through a trusted proxy.
func TestClientAddresses(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fd00::/8")}
	for _, tt := range []struct {
		proxies              []netip.Prefix
		peer, header, client string
	}{
		{nil, "192.0.2.1:1", "", "192.0.2.1"},
		{nil, "192.0.2.1:1", "203.0.113.7", "192.0.2.1"},
		{nil, "127.0.0.1:1", "203.0.113.7", "127.0.0.1"},
		{proxies, "192.0.2.1:1", "203.0.113.7", "203.0.113.7"},
		{proxies, "[fd00::1]:1", "203.0.113.7", "203.0.113.7"},
		{proxies, "192.0.2.1:1", "1.1.1.1, 203.0.113.7", "203.0.113.7"},
		{proxies, "192.0.2.1:1", "203.0.113.7, 192.0.2.9", "203.0.113.7"},
		{proxies, "10.0.0.1:1", "203.0.113.7", "10.0.0.1"},
		{proxies, "192.0.2.1:1", "", "192.0.2.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.peer
		if tt.header != "" {
			r.Header.Set("X-Forwarded-For", tt.header)
		}
		check.Equal(t, fmt.Sprintf("%s, %q, proxies %v", tt.peer, tt.header, tt.proxies), clientAddresses(tt.proxies)(r), tt.client)
	}
}
