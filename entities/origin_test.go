package entities

import (
	"errors"
	"testing"
)

// TestOrigin: a host that is not ASCII has no origin, because net/http would map it to another host than lower case
// does. İ is U+0130: in lower case it is an i with a dot above.
func TestOrigin(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://Mail.Example.com/a?b":    "https://mail.example.com",
		"HTTP://127.0.0.1:8080":           "http://127.0.0.1:8080",
		"https://[2001:DB8::1]:1/":        "https://[2001:db8::1]:1",
		"https://xn--bcher-kva.example":   "https://xn--bcher-kva.example",
		"https://example.com/bücher":      "https://example.com",
		"https://bücher.example":          "",
		"https://maİl.example.com":        "",
		"https://ma%C4%B0l.example.com/":  "",
		"https://ma%c4%b0l.example.com:1": "",
		"https://mail.example.com\x80":    "",
		"https://[fe80::1%25\u0130]/":     "",
		"ftp://example.com":               "",
		"https:///path":                   "",
		"example.com":                     "",
		"":                                "",
	} {
		got, err := Origin(url)
		if got != want || (want == "") != errors.Is(err, ErrInvalid) {
			t.Errorf("%q: got %q, %v; want %q", url, got, err, want)
		}
	}
}
