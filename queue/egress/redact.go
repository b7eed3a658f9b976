package egress

import (
	"net/netip"
	"regexp"
	"strings"
)

// addressLike matches what may be an address, with or without a port: IPv4, IPv6 in brackets, and IPv6 alone.
var addressLike = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b|` +
	`\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\](?::\d{1,5})?|` +
	`[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%[\w.-]+)?`)

// Redact replaces the addresses in the text of an error by "[address]". Errors of connections name the addresses that
// a name resolved to, those of resolvers, and the server's own: they show what the network behind it looks like.
func Redact(text string) string {
	return addressLike.ReplaceAllStringFunc(text, func(s string) string {
		if !isAddress(s) {
			return s
		}
		return "[address]"
	})
}

func isAddress(s string) bool {
	if _, err := netip.ParseAddrPort(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return err == nil
}
