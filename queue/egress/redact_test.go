package egress

import "testing"

func TestRedactRemovesAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`Post "http://shop.internal:3000/": dial tcp 10.1.2.3:3000: connect: connection refused`: `Post "http://shop.internal:3000/": dial tcp [address]: connect: connection refused`,
		"read tcp 10.0.0.7:51234->192.168.1.5:443: i/o timeout":                                  "read tcp [address]->[address]: i/o timeout",
		"dial tcp [fd00::1]:443: connect: no route to host":                                      "dial tcp [address]: connect: no route to host",
		"dial tcp [fe80::1%eth0]:443: timeout":                                                   "dial tcp [address]: timeout",
		"lookup shop on 10.96.0.10:53: no such host":                                             "lookup shop on [address]: no such host",
		"the server does not call fd12:3456::1 (private)":                                        "the server does not call [address] (private)",
		"the server does not call ::1 (loopback)":                                                "the server does not call [address] (loopback)",
		`http://127.0.0.1:3000/x answered 500: "no"`:                                             `http://[address]/x answered 500: "no"`,
		"version 1.2.3, at 12:30:45, 999.1.1.1 is no address, a::b::c neither":                   "version 1.2.3, at 12:30:45, 999.1.1.1 is no address, a::b::c neither",
		"": "",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}
