// Package signing signs the server's calls as RFC 9421 says, with HMAC-SHA-256. Package sdk/signature verifies them.
// The two share test vectors, but no code: each is held to the document, not to the other.
//
// It imports nothing else of the module.
package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Lifetime is how long a signature is good.
const Lifetime = 5 * time.Minute

// Key is what a call is signed with.
type Key struct {
	// ID is what the signature calls it.
	ID     string
	Secret []byte
}

// Sign adds a signature by each of the keys to a request with the body. It covers all that says what is called, and
// which call it is, so nothing of that must change afterwards. Who is called is not covered: proxies rewrite hosts.
func Sign(r *http.Request, body []byte, keys []Key, now time.Time) {
	if len(keys) == 0 {
		return
	}
	digest := sha256.Sum256(body)
	r.Header.Set("Content-Digest", "sha-256="+encode(digest[:]))
	names, lines := cover(r)
	var inputs, signatures []string
	for i, k := range keys {
		params := fmt.Sprintf(`(%s);created=%d;expires=%d;keyid="%s";alg="hmac-sha256"`,
			strings.Join(names, " "), now.Unix(), now.Add(Lifetime).Unix(), k.ID)
		mac := hmac.New(sha256.New, k.Secret)
		_, _ = fmt.Fprintf(mac, "%s\"@signature-params\": %s", lines, params) // never fails
		label := fmt.Sprintf("sig%d", i+1)
		inputs = append(inputs, label+"="+params)
		signatures = append(signatures, label+"="+encode(mac.Sum(nil)))
	}
	r.Header.Set("Signature-Input", strings.Join(inputs, ", "))
	r.Header.Set("Signature", strings.Join(signatures, ", "))
}

// cover lists what a signature covers: the names in quotes, and the lines of the text that is signed.
func cover(r *http.Request) (names []string, lines string) {
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	add := func(name, value string) {
		name = `"` + name + `"`
		names = append(names, name)
		lines += name + ": " + value + "\n"
	}
	add("@method", r.Method)
	add("@path", path)
	add("@query", "?"+r.URL.RawQuery)
	var headers []string
	for name := range r.Header {
		if covers(name) {
			headers = append(headers, name)
		}
	}
	slices.Sort(headers)
	for _, name := range headers {
		add(strings.ToLower(name), strings.TrimSpace(r.Header.Get(name)))
	}
	return names, lines
}

// covers reports whether a header is one that says what a call is.
func covers(name string) bool {
	return name == "Content-Digest" || name == "Content-Type" || name == "Idempotency-Key" ||
		strings.HasPrefix(name, "Ce-") || strings.HasPrefix(name, "Stepwell-")
}

// encode writes bytes as RFC 8941 does.
func encode(b []byte) string { return ":" + base64.StdEncoding.EncodeToString(b) + ":" }
