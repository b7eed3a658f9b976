// Package egress decides which addresses the server may call. Whoever registers a deployment chooses where the server
// connects to from inside its network: so it calls public addresses alone, unless its operator allows more.
//
// What counts is the address that is dialed, after names are resolved: a name that changes its mind gains nothing.
//
// It imports nothing else of the module.
package egress

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Variable is the setting that the operator allows addresses with, as errors call it.
const Variable = "STEPWELL_ALLOW_ADDRESSES"

// Words that stand for kinds of addresses in [Parse].
const (
	Loopback = "loopback"
	Private  = "private"
)

// Allowed are the addresses that may be called besides public ones. The zero value is none.
type Allowed struct {
	kinds    []kind
	prefixes []netip.Prefix
}

// Parse reads a list with commas: CIDRs, addresses, and the words [Loopback] and [Private]. Link-local addresses and
// those of clouds' metadata are in no word: they must be named by CIDR.
func Parse(list string) (Allowed, error) {
	var a Allowed
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		switch item {
		case "":
		case Loopback:
			a.kinds = append(a.kinds, loopback)
		case Private:
			a.kinds = append(a.kinds, private)
		default:
			prefix, err := parsePrefix(item)
			if err != nil {
				return Allowed{}, fmt.Errorf("%q is neither a CIDR nor the word %s or %s", item, Loopback, Private)
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
		err = fmt.Errorf("%s is not where the network begins", prefix.Addr()) // who wrote it meant another
	}
	return prefix, err
}

// ForbiddenError is of an address that may not be called.
type ForbiddenError struct {
	// Addr is the address; behind it may be another, in the ways that IPv6 has to carry IPv4.
	Addr netip.Addr
	kind kind
}

func (e *ForbiddenError) Error() string {
	needed := e.Addr.String()
	if e.kind == loopback || e.kind == private {
		needed = string(e.kind) + " or " + needed
	}
	return fmt.Sprintf("the server does not call %s (%s): whoever runs it can allow it with %s=%s",
		e.Addr, e.kind, Variable, needed)
}

// Check fails with a [ForbiddenError] if the address may not be called.
func (a Allowed) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	for _, target := range targets(addr) {
		k := kindOf(target)
		if k == public || slices.Contains(a.kinds, k) || a.named(addr) || a.named(target) {
			continue
		}
		return &ForbiddenError{Addr: addr, kind: k}
	}
	return nil
}

func (a Allowed) named(addr netip.Addr) bool {
	return slices.ContainsFunc(a.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// CheckURL fails with a [ForbiddenError] if the URL's host is an address that may not be called. A name is not
// resolved: what it stands for is seen when it is dialed.
func (a Allowed) CheckURL(u *url.URL) error {
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // it is a name
	}
	return a.Check(addr)
}
