package handlers

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/telemetry"
)

const (
	// rejectionWindow is how long requests without a valid key are counted before they are logged again.
	rejectionWindow = time.Minute
	// maxRejected limits the addresses that are logged in one window. Further ones are counted by the metric only.
	maxRejected = 1000
)

// rejections logs requests without a valid key: the first of each address at once, and how many followed when the
// window ends. Keys are never logged.
type rejections struct {
	logger    *slog.Logger
	telemetry *telemetry.Telemetry
	now       func() time.Time

	ends atomic.Int64 // when the window ends, in nanoseconds since 1970; 0 if none is open
	mu   sync.Mutex
	more map[netip.Prefix]int // what followed the first request of each address
}

// add records a request.
func (r *rejections) add(ctx context.Context, address string, err error) {
	r.telemetry.Rejected()
	client := incoming.Network(address)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.more == nil {
		r.more = map[netip.Prefix]int{}
		r.ends.Store(r.now().Add(rejectionWindow).UnixNano())
	}
	n, known := r.more[client]
	switch {
	case known:
		r.more[client] = n + 1
	case len(r.more) < maxRejected:
		r.more[client] = 0
		r.logger.WarnContext(ctx, "request without a valid key", "address", address, "reason", err)
	}
}

// flush logs what was counted if the window has ended. It costs next to nothing if it has not.
func (r *rejections) flush(ctx context.Context) {
	ends := r.ends.Load()
	if ends == 0 || r.now().UnixNano() < ends || !r.ends.CompareAndSwap(ends, 0) {
		return
	}
	r.mu.Lock()
	counted := r.more
	r.more = nil
	r.mu.Unlock()
	for client, n := range counted {
		if n > 0 {
			r.logger.WarnContext(ctx, "more requests without a valid key", "address", client, "count", n)
		}
	}
}

// middleware logs what was counted when the next request comes. Nothing runs in between: see function mode.
func (r *rejections) middleware(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r.flush(c.Request().Context())
		return next(c)
	}
}

// clientAddresses returns how the address of a client is found: it is that of the connection or, behind trusted
// proxies, the last one in X-Forwarded-For that is not a proxy's.
func clientAddresses(proxies []netip.Prefix) echo.IPExtractor {
	if len(proxies) == 0 {
		return echo.ExtractIPDirect()
	}
	options := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range proxies {
		options = append(options, echo.TrustIPRange(ipNet(p)))
	}
	return echo.ExtractIPFromXFFHeader(options...)
}

// ipNet returns the prefix in the form that echo takes.
func ipNet(p netip.Prefix) *net.IPNet {
	addr := p.Masked().Addr()
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(p.Bits(), addr.BitLen())}
}
