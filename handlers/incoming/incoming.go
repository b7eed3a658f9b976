// Package incoming reads what incoming HTTP requests carry: decoded path parameters, and bodies from senders that may
// stall.
package incoming

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// PathParam returns a decoded path parameter. Echo decodes parameters itself unless the path was sent in an unusual
// encoding, in which case [url.URL.RawPath] is set.
func PathParam(c echo.Context, name string) (string, error) {
	if c.Request().URL.RawPath == "" {
		return c.Param(name), nil
	}
	return url.PathUnescape(c.Param(name))
}

// AcceptsGzip reports whether the client takes an answer that is compressed by gzip (RFC 9110, section 12.5.3).
func AcceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values(echo.HeaderAcceptEncoding), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, value, _ := strings.Cut(weight, "=")
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// Digest returns the SHA-256 of the content of a request in hexadecimal, by which the reuse of its idempotency key with
// other content is detected.
func Digest(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// longPast is a deadline that makes a pending read or write fail immediately.
var longPast = time.Unix(1, 0)

// AbortRead returns a function that fails the pending read of the request's body. The function may be called from
// another goroutine, and does not use the context, which echo recycles.
func AbortRead(c echo.Context) func() {
	conn := http.NewResponseController(c.Response().Writer)
	return func() { _ = conn.SetReadDeadline(longPast) }
}

// abortWrite is [AbortRead] for the pending write of the response.
func abortWrite(c echo.Context) func() {
	conn := http.NewResponseController(c.Response().Writer)
	return func() { _ = conn.SetWriteDeadline(longPast) }
}

const waitsKey = "stepwell.waits"

// OnWait adds to what [Waits] calls.
func OnWait(c echo.Context, do func()) {
	before, _ := c.Get(waitsKey).(func())
	c.Set(waitsKey, func() {
		if before != nil {
			before()
		}
		do()
	})
}

// Waits tells that the request only waits from now on, so that it gives up its slot among the requests that run.
func Waits(c echo.Context) {
	if do, ok := c.Get(waitsKey).(func()); ok {
		do()
	}
}

// PreferredWait returns how long the client prefers to wait for what it asks for to be done, by the header Prefer (RFC
// 7240); 0 if it says nothing that can be read.
func PreferredWait(r *http.Request) time.Duration {
	for preference := range strings.SplitSeq(strings.Join(r.Header.Values("Prefer"), ","), ",") {
		name, value, _ := strings.Cut(preference, "=")
		if strings.EqualFold(strings.TrimSpace(name), "wait") {
			value, _, _ = strings.Cut(value, ";")
			seconds, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 16)
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}
