// Package egress restricts the addresses that the server connects to. A user who registers a deployment chooses a URL
// that the server calls from inside its network (server-side request forgery). By default only public addresses are
// allowed; the operator can allow more.
//
// The check applies to the address that is dialed, after name resolution, so DNS rebinding cannot bypass it.
package egress

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Variable is the environment variable with the allowed addresses, for use in error messages.
const Variable = "STEPWELL_ALLOW_ADDRESSES"

// Keywords for groups of addresses in [Parse].
const (
	Loopback = string(loopback)
	Private  = string(private)
)

// Allowed is the set of non-public addresses that may be called. The zero value is empty.
type Allowed struct {
	kinds    []kind
	prefixes []netip.Prefix
}

// Parse parses a comma-separated list of CIDRs, addresses, and the keywords [Loopback] and [Private]. No keyword
// includes link-local addresses and cloud metadata services; they must be listed as addresses or CIDRs.
func Parse(list string) (Allowed, error) {
	var a Allowed
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		switch item {
		case "":
		case Loopback, Private:
			a.kinds = append(a.kinds, kind(item))
		default:
			prefix, err := parsePrefix(item)
			if err != nil {
				return Allowed{}, fmt.Errorf("%q is neither a CIDR nor the keyword %s or %s", item, Loopback, Private)
			}
			a.prefixes = append(a.prefixes, prefix)
		}
	}
	return a, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	addr, err := netip.ParseAddr(s)
	if err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return addr.Prefix(addr.BitLen())
	}
	prefix, err := netip.ParsePrefix(s)
	if err == nil && (prefix.Addr().Is4In6() || prefix.Masked().Addr() != prefix.Addr()) {
		err = fmt.Errorf("%s is not the first address of the network", prefix.Addr()) // probably a typo
	}
	return prefix, err
}

// ForbiddenError reports an address that may not be called.
type ForbiddenError struct {
	// Addr is the address that was to be called. The forbidden one may be an IPv4 address embedded in it.
	Addr netip.Addr
	kind kind
}

func (e *ForbiddenError) Error() string {
	needed := e.Addr.String()
	if e.kind == loopback || e.kind == private {
		needed = string(e.kind) + " or " + needed
	}
	return fmt.Sprintf("the server does not call %s (%s): the operator can allow it with %s=%s",
		e.Addr, e.kind, Variable, needed)
}

// NoAddressError reports a name that has no address, or only ones that may not be called. It does not say which.
type NoAddressError struct{ Host string }

func (e *NoAddressError) Error() string {
	return fmt.Sprintf("%s has no address that the server calls: correct the name, "+
		"or have the operator allow its address with %s", e.Host, Variable)
}

// Check returns a [ForbiddenError] if the address may not be called.
func (a Allowed) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	for _, target := range targets(addr) {
		k := kindOf(target)
		if k == public || slices.Contains(a.kinds, k) || a.listed(addr) || a.listed(target) {
			continue
		}
		return &ForbiddenError{Addr: addr, kind: k}
	}
	return nil
}

func (a Allowed) listed(addr netip.Addr) bool {
	return slices.ContainsFunc(a.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// CheckURL returns a [ForbiddenError] if the URL's host is an address that may not be called. Names are not resolved
// here: their addresses are checked when they are dialed.
func (a Allowed) CheckURL(u *url.URL) error {
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // the host is a name
	}
	return a.Check(addr)
}
