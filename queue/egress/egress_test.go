package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func parse(t testing.TB, list string) Allowed {
	t.Helper()
	a, err := Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestCheckKnowsEveryKindOfAddress checks addresses of every kind, and which setting allows them.
func TestCheckKnowsEveryKindOfAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  kind
		addrs string
	}{
		{public, "1.1.1.1 203.0.113.7 172.15.255.255 172.32.0.0 100.63.255.255 100.128.0.0 169.253.255.255 169.255.0.0 9.255.255.255 " +
			"11.0.0.0 192.167.255.255 192.169.0.0 126.255.255.255 128.0.0.0 223.255.255.255 168.63.129.15 2606:4700::1111 2001:4860:4860::8888 " +
			"64:ff9b::101:101 2002:101:101:: ::ffff:1.1.1.1 ::1.1.1.1 fbff::1 2001:0:101:101::fefe:fefe"},
		{loopback, "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: ::ffff:0:127.0.0.1"},
		{private, "10.0.0.0 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255 100.64.0.1 100.127.255.255 " +
			"192.0.0.1 198.18.0.1 198.19.255.255 fc00::1 fd12:3456::1 fdff:ffff::1 fec0::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::5 " +
			"2001:0:a00:1::fefe:fefe 2001:0:101:101::f5ff:fffe fd00::1%eth0"},
		{linkLocal, "169.254.0.1 169.254.169.254 169.254.170.2 169.254.255.255 fe80::1 fe80::1%eth0 febf::1 ::ffff:169.254.169.254 " +
			"64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: ::169.254.169.254 2001:0:101:101::5601:5601"},
		{metadata, "100.100.100.200 168.63.129.16 192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe " +
			"fd00:42::42 ::ffff:100.100.100.200 64:ff9b::6464:64c8 2002:a83f:8110::"},
		{unspecified, "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0 64:ff9b::"},
		{multicast, "224.0.0.1 239.255.255.255 ff02::1 ff0e::1 ::ffff:224.0.0.1"},
		{reserved, "240.0.0.1 255.255.255.255 ::ffff:255.255.255.255 64:ff9b:1::a00:1 64:ff9b:1:a00:1:: 2001:db8::1 3fff::1 100::1 5f00::1 192.88.99.1 ::ffff:192.88.99.1"},
	} {
		for s := range strings.FieldsSeq(tt.addrs) {
			addr := netip.MustParseAddr(s)
			err := Allowed{}.Check(addr)
			var forbidden *ForbiddenError
			if tt.kind == public && err != nil {
				t.Errorf("%s: got %v, want it public", s, err)
			} else if tt.kind != public && (!errors.As(err, &forbidden) || forbidden.kind != tt.kind) {
				t.Errorf("%s: got %v, want it %s", s, err, tt.kind)
			}
			for list, of := range map[string][]kind{
				Loopback: {loopback}, Private: {private}, Loopback + ", " + Private: {loopback, private},
				"192.0.2.0/24": {}, "0.0.0.0/0,::/0": {loopback, private, linkLocal, metadata, unspecified, multicast, reserved},
				addr.WithZone("").String(): {tt.kind},
			} {
				want := tt.kind == public
				for _, k := range of {
					want = want || k == tt.kind
				}
				if got := parse(t, list).Check(addr); (got == nil) != want {
					t.Errorf("%s with %s allowed: got %v, want it allowed: %v", s, list, got, want)
				}
			}
		}
	}
}

func TestCIDRsAllowTheirAddresses(t *testing.T) {
	t.Parallel()
	a := parse(t, " 10.1.0.0/16 , 169.254.170.2,fd00:1::/64,,")
	for s, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::a01:203": true, "10.2.0.1": false, "169.254.170.2": true,
		"169.254.169.254": false, "fd00:1::5": true, "fd00:2::5": false, "127.0.0.1": false, "2002:a02:1::": false,
	} {
		if got := a.Check(netip.MustParseAddr(s)); (got == nil) != want {
			t.Errorf("%s: got %v, want it allowed: %v", s, got, want)
		}
	}
}

func TestParseRejectsInvalidLists(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		"everything", "10.0.0.0/33", "10.0.0.1/8", "Loopback", "link-local", "10.0.0.0/8;loopback", "example.com",
		"::ffff:10.0.0.0/104", "fe80::1%eth0/64",
	} {
		if a, err := Parse(list); err == nil {
			t.Errorf("%q: got %v, want an error", list, a)
		}
	}
}

func TestErrorNamesTheSetting(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"10.0.0.1": "STEPWELL_ALLOW_ADDRESSES=private or 10.0.0.1", "127.0.0.1": "STEPWELL_ALLOW_ADDRESSES=loopback or 127.0.0.1",
		"169.254.169.254": "(link-local): the operator can allow it with STEPWELL_ALLOW_ADDRESSES=169.254.169.254",
	} {
		err := Allowed{}.Check(netip.MustParseAddr(s))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want it to end in %q", err, want)
		}
	}
}

func TestCheckURLChecksLiteralAddresses(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"http://10.0.0.1": false, "http://10.0.0.1:80/x": false, "https://[::1]:8080": false, "http://[::ffff:a00:1]/": false,
		"http://1.1.1.1": true, "http://localhost": true, "http://internal.example": true, "http://[fe80::1%25eth0]:1/": false,
		"http://2130706433/": true, // some resolvers treat it as 127.0.0.1; the dialer checks that
	} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Allowed{}).CheckURL(u); (got == nil) != want {
			t.Errorf("%s: got %v, want it allowed: %v", s, got, want)
		}
	}
}
