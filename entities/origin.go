package entities

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Origin returns the scheme, host and port of an HTTP URL in lower case, such as "https://mail.example.com". It fails
// with [ErrInvalid] if the URL has none. The host must be ASCII: lower case and the mapping of international names do
// not agree on what host other characters mean.
func Origin(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", Invalid("%.100q is not a URL like https://example.com/path", rawURL)
	}
	for i := range len(u.Host) { // without the percent-encoding of the URL
		if u.Host[i] >= utf8.RuneSelf {
			return "", Invalid("the host of %.100q is not ASCII: write it in Punycode, as xn--…", rawURL)
		}
	}
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}
