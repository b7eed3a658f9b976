package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// browsers tells requests that pages of other sites have a browser make.
var browsers = http.NewCrossOriginProtection()

// letInOpen fails with [ErrForbidden] on a request without a key that no client of ours would make: a page of another
// site has a browser send it. Nobody's secret protects an open server from these, only where they come from.
func (g *Gate) letInOpen(r *http.Request) error {
	if err := browsers.Check(r); err != nil {
		return fmt.Errorf("%w: a page of another site asks for it, and this server is open", ErrForbidden)
	}
	if g.options.Local && !nobodys(r.Host) {
		return fmt.Errorf("%w: this server asks for no key only where it is called localhost, or by an address, not %q:"+
			" set STEPWELL_API_KEY, or STEPWELL_OPEN=true", ErrForbidden, r.Host)
	}
	return nil
}

// nobodys reports whether a host is an address, or a name that nobody can buy and then have lead here: a page of such a
// name would be of this server's own origin to a browser.
func nobodys(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		strings.HasSuffix(host, ".internal") // as containers call the machine they are on
}
