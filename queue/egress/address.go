package egress

import "net/netip"

// kind is the purpose of an address.
type kind string

const (
	public      kind = ""
	loopback    kind = "loopback"
	private     kind = "private"
	linkLocal   kind = "link-local"
	metadata    kind = "cloud metadata"
	unspecified kind = "unspecified"
	multicast   kind = "multicast"
	reserved    kind = "reserved"
)

// kinds lists the address blocks that are not public. The first match wins.
var kinds = []struct {
	prefix netip.Prefix
	kind   kind
}{
	// Metadata services outside the link-local block: Alibaba, Azure, Oracle, and over IPv6 Amazon, Google, Oracle and
	// Scaleway.
	{netip.MustParsePrefix("100.100.100.200/32"), metadata},
	{netip.MustParsePrefix("168.63.129.16/32"), metadata},
	{netip.MustParsePrefix("192.0.0.192/32"), metadata},
	{netip.MustParsePrefix("fd00:ec2::/32"), metadata},
	{netip.MustParsePrefix("fd20:ce::254/128"), metadata},
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), metadata},
	{netip.MustParsePrefix("fd00:42::42/128"), metadata},

	{netip.MustParsePrefix("169.254.0.0/16"), linkLocal}, // includes 169.254.169.254, the metadata service of most clouds
	{netip.MustParsePrefix("fe80::/10"), linkLocal},

	{netip.MustParsePrefix("127.0.0.0/8"), loopback},
	{netip.MustParsePrefix("::1/128"), loopback},

	{netip.MustParsePrefix("0.0.0.0/8"), unspecified}, // most systems connect to themselves
	{netip.MustParsePrefix("::/128"), unspecified},

	{netip.MustParsePrefix("10.0.0.0/8"), private},
	{netip.MustParsePrefix("172.16.0.0/12"), private},
	{netip.MustParsePrefix("192.168.0.0/16"), private},
	{netip.MustParsePrefix("100.64.0.0/10"), private}, // carrier-grade NAT and overlay networks
	{netip.MustParsePrefix("192.0.0.0/24"), private},
	{netip.MustParsePrefix("198.18.0.0/15"), private},
	{netip.MustParsePrefix("fc00::/7"), private},
	{netip.MustParsePrefix("fec0::/10"), private},

	{netip.MustParsePrefix("224.0.0.0/4"), multicast},
	{netip.MustParsePrefix("ff00::/8"), multicast},
	{netip.MustParsePrefix("240.0.0.0/4"), reserved},    // includes the broadcast address
	{netip.MustParsePrefix("64:ff9b:1::/48"), reserved}, // local-use NAT64, which can lead anywhere
	{netip.MustParsePrefix("192.88.99.0/24"), reserved}, // relays of 6to4
	{netip.MustParsePrefix("100::/64"), reserved},       // discards
	{netip.MustParsePrefix("2001:db8::/32"), reserved},  // documentation
	{netip.MustParsePrefix("3fff::/20"), reserved},      // documentation
	{netip.MustParsePrefix("5f00::/16"), reserved},      // segment routing
}

func kindOf(addr netip.Addr) kind {
	for _, k := range kinds {
		if k.prefix.Contains(addr) {
			return k.kind
		}
	}
	return public
}

// carriers lists the IPv6 blocks that embed IPv4 addresses, with the offset of the embedded address.
var carriers = []struct {
	prefix netip.Prefix
	at     int
	invert byte
}{
	{netip.MustParsePrefix("::/96"), 12, 0},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, 0}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), 12, 0},    // NAT64
	{netip.MustParsePrefix("2002::/16"), 2, 0},        // 6to4
	{netip.MustParsePrefix("2001::/32"), 4, 0},        // Teredo: the server,
	{netip.MustParsePrefix("2001::/32"), 12, 0xff},    // and the client
}

// targets returns the address and the IPv4 addresses embedded in it. IPv4-mapped addresses must be unmapped before.
func targets(addr netip.Addr) []netip.Addr {
	all := []netip.Addr{addr}
	if kindOf(addr) == loopback || kindOf(addr) == unspecified {
		return all // ::1 and :: match ::/96 but embed no IPv4 address
	}
	bytes := addr.As16()
	for _, c := range carriers {
		if addr.Is4() || !c.prefix.Contains(addr) {
			continue
		}
		v4 := [4]byte(bytes[c.at:])
		for i := range v4 {
			v4[i] ^= c.invert
		}
		all = append(all, netip.AddrFrom4(v4))
	}
	return all
}
