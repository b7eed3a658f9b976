// Package signing signs the server's requests according to RFC 9421 (HTTP Message Signatures) with HMAC-SHA-256.
// Package sdk/signature verifies them. The two share test vectors but no code, so that each is tested against the RFC
// and not against the other.
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

// Lifetime is how long a signature is valid.
const Lifetime = 5 * time.Minute

// Key is a signing key.
type Key struct {
	// ID is the keyid parameter of the signature.
	ID     string
	Secret []byte
}

// Sign adds one signature per key to a request with the given body. The signatures cover the method, the path, the
// query, the body and the headers that identify the call; none of these may change afterwards. The host is not covered,
// because proxies rewrite it.
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

// cover returns the quoted names of the covered components, and the lines of the signature base (RFC 9421 §2.5).
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

// covers reports whether a header identifies the call or describes its body.
func covers(name string) bool {
	return name == "Content-Digest" || name == "Content-Type" || name == "Idempotency-Key" ||
		strings.HasPrefix(name, "Ce-") || strings.HasPrefix(name, "Stepwell-")
}

// encode encodes a byte sequence (RFC 8941 §3.3.5).
func encode(b []byte) string { return ":" + base64.StdEncoding.EncodeToString(b) + ":" }
