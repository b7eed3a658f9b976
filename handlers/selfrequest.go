package handlers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// selfPrefix starts the tokens with which a server in function mode requests its own drains:
//
//	drain_EXPIRY_MAC
//
// EXPIRY is in seconds since 1970. MAC is an HMAC-SHA-256 of it. With a token one can start drains with
// the default budget until it expires, and nothing else: the API key does not leave the process.
const selfPrefix = "drain_"

// selfValidity is how long a token is valid. It allows for different clocks of the server's instances.
const selfValidity = 5 * time.Minute

// selfKey signs the server's requests to itself. All instances derive the same one.
type selfKey struct{ token.Key }

// newSelfKey derives the key from the API key; empty without an API key.
func newSelfKey(apiKey string) selfKey {
	if apiKey == "" {
		return selfKey{}
	}
	mac := hmac.New(sha256.New, []byte(apiKey))
	mac.Write([]byte("stepwell: requests for drains"))
	return selfKey{mac.Sum(nil)}
}

// token returns a token that is valid from now on.
func (k selfKey) token(now time.Time) string { return k.Sign(selfPrefix, "", now.Add(selfValidity)) }

// verify reports whether the token is valid.
func (k selfKey) verify(text string, now time.Time) bool {
	_, ok := k.Verify(selfPrefix, text, now)
	return ok
}

// allowOwn passes the server's own requests for drains to the handler. Other requests, and those that set parameters,
// must be authorized.
func (k *Kicker) allowOwn(authorize echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		authorized := authorize(next)
		return func(c echo.Context) error {
			r := c.Request()
			text, _ := strings.CutPrefix(r.Header.Get(echo.HeaderAuthorization), "Bearer ")
			if k != nil && r.URL.RawQuery == "" && k.key.verify(text, k.now()) {
				return next(c)
			}
			return authorized(c)
		}
	}
}

// errPublicHTTP is returned instead of sending a token over the internet unencrypted.
var errPublicHTTP = errors.New("over http, the server sends its requests to loopback and private addresses only:" +
	" use an https URL")

// refusePublic is called by the dialer with each resolved address before it connects. It accepts only addresses that
// are not public.
func refusePublic(_ context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return checkNotPublic(target.Addr())
}

func checkNotPublic(addr netip.Addr) error {
	if (egress.Allowed{}).Check(addr) == nil { // without exceptions, it allows the public addresses
		return errPublicHTTP
	}
	return nil
}
