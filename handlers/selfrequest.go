package handlers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"

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
type selfKey []byte

// newSelfKey derives the key from the API key; nil without an API key.
func newSelfKey(apiKey string) selfKey {
	if apiKey == "" {
		return nil
	}
	mac := hmac.New(sha256.New, []byte(apiKey))
	mac.Write([]byte("stepwell: requests for drains"))
	return mac.Sum(nil)
}

// token returns a token that is valid from now on.
func (k selfKey) token(now time.Time) string {
	expiry := strconv.FormatInt(now.Add(selfValidity).Unix(), 10)
	return selfPrefix + expiry + "_" + k.mac(expiry)
}

func (k selfKey) mac(expiry string) string {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte(expiry))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// verify reports whether the token is valid.
func (k selfKey) verify(token string, now time.Time) bool {
	text, ok := strings.CutPrefix(token, selfPrefix)
	expiry, mac, found := strings.Cut(text, "_")
	if !ok || !found || k == nil || !hmac.Equal([]byte(mac), []byte(k.mac(expiry))) {
		return false
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	return err == nil && now.Before(time.Unix(seconds, 0))
}

// allowOwn passes the server's own requests for drains to the handler. Other requests, and those that set parameters,
// must be authorized.
func (k *Kicker) allowOwn(authorize echo.MiddlewareFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		authorized := authorize(next)
		return func(c echo.Context) error {
			r := c.Request()
			token, _ := strings.CutPrefix(r.Header.Get(echo.HeaderAuthorization), "Bearer ")
			if k != nil && r.URL.RawQuery == "" && k.key.verify(token, k.now()) {
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

// usePlain restricts a transport for an http URL, which a proxy would only carry further in the open.
func usePlain(t *http.Transport) {
	dialer := newKickDialer()
	dialer.ControlContext = refusePublic
	t.Proxy, t.DialContext = nil, dialer.DialContext
}
