package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/entities"
)

// UIHeader must be in each request of the dashboard that changes something. A page of another site can send it only if
// the server allows that, which it never does.
const UIHeader = "Stepwell-UI"

// Sessions are the sessions of browsers.
type Sessions interface {
	// Key returns what opened a project in the session of a cookie, even if it is revoked or expired. It fails with
	// [admin.ErrSessionNotFound].
	Key(ctx context.Context, cookie string, project entities.Project) (access.Opened, error)
}

// Browser is how a request of the dashboard authenticates: by a cookie, in a project.
type Browser struct {
	// Cookie is that of the session; empty for none.
	Cookie  string
	Project entities.Project
	// Cell is that of the server, and Elsewhere are the cells of which the browser has sessions as well.
	Cell      entities.Cell
	Elsewhere []entities.Cell
	// Origin is the origin of the server's public URL; empty if it is unknown. The origin of the request's own host is
	// accepted in addition.
	Origin string
}

type browserKey struct{}

// WithBrowser marks a request as one of the dashboard. It is then authenticated by its cookie, and only by that. Other
// requests never are, so no page can make a browser use them with somebody's rights.
func WithBrowser(ctx context.Context, b Browser) context.Context {
	return context.WithValue(ctx, browserKey{}, b)
}

// FromBrowser reports whether a request is one of the dashboard.
func FromBrowser(r *http.Request) bool {
	_, ok := browserOf(r.Context())
	return ok
}

// CookieOf returns the cookie of the session that makes a request of the dashboard; empty for other requests.
func CookieOf(r *http.Request) string {
	b, _ := browserOf(r.Context())
	return b.Cookie
}

// OwnerOf returns whose an authenticated request is: a browser's session, or else a key. It is empty if clients need
// neither.
func OwnerOf(c echo.Context) string {
	identity := IdentityOf(c)
	if b, ok := browserOf(c.Request().Context()); ok && b.Cookie != "" {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(b.Cookie)))
	}
	if identity.Actor == admin.ActorOpen {
		return ""
	}
	return string(identity.Project) + " " + string(identity.Actor)
}

func browserOf(ctx context.Context) (Browser, bool) {
	b, ok := ctx.Value(browserKey{}).(Browser)
	return b, ok
}

// identifyBrowser returns the client whose browser made the request. It fails with [ErrUnauthorized]; if the browser
// has sessions in other cells, with an *[entities.WrongCellError]; and with [ErrForbidden] for requests that a page of
// another site makes.
func (a *Authenticator) identifyBrowser(r *http.Request, b Browser) (Identity, error) {
	if err := CheckSameOrigin(r, b.Origin); err != nil {
		return Identity{}, err
	}
	identity, err := a.identifySession(r.Context(), b)
	if errors.Is(err, ErrUnauthorized) && len(b.Elsewhere) > 0 {
		wrong := &entities.WrongCellError{What: "the browser's session", Here: b.Cell}
		if len(b.Elsewhere) == 1 {
			wrong.In = b.Elsewhere[0]
		}
		return Identity{}, wrong
	}
	if errors.Is(err, ErrUnauthorized) && a.options.Open && b.Project == entities.DefaultProject {
		return operator(admin.ActorOpen), a.checkOrigin(r)
	}
	return identity, err
}

// errNoSession is an [ErrUnauthorized].
var errNoSession = fmt.Errorf("the browser has not opened this project, or its session has ended: sign in with a key"+
	" of the project: %w", ErrUnauthorized)

// identifySession returns the client that opened the browser's project in its session. It fails with
// [ErrUnauthorized].
func (a *Authenticator) identifySession(ctx context.Context, b Browser) (Identity, error) {
	if b.Cookie == "" || a.options.Sessions == nil {
		return Identity{}, errNoSession
	}
	opened, err := a.options.Sessions.Key(ctx, b.Cookie, b.Project)
	switch {
	case errors.Is(err, admin.ErrSessionNotFound):
		return Identity{}, errNoSession
	case err != nil:
		return Identity{}, err
	case opened.Key == nil:
		return operator(admin.ActorEnvironment), nil
	default:
		return a.accept(*opened.Key)
	}
}

// Opens returns what a key opens in the dashboard. It fails with [ErrUnauthorized], and with [ErrForbidden] if the role
// can do nothing there.
func (a *Authenticator) Opens(ctx context.Context, text string) (access.Opened, error) {
	if a.isEnvironmentKey(text) {
		return access.Opened{Project: entities.DefaultProject}, nil
	}
	if a.options.Keys == nil {
		return access.Opened{}, ErrUnauthorized
	}
	identity, err := a.identifyKey(ctx, text)
	if err == nil {
		err = identity.Check(Any)
	}
	if err != nil {
		return access.Opened{}, err
	}
	return access.Opened{Project: identity.Project, Key: &identity.key}, nil
}

// Accepts returns the role that the client has in an opened project. It fails with [ErrUnauthorized].
func (a *Authenticator) Accepts(o access.Opened) (admin.Role, error) {
	if o.Key == nil {
		return admin.RoleAdmin, nil
	}
	identity, err := a.accept(*o.Key)
	return identity.Role, err
}

// CheckSameOrigin fails with [ErrForbidden] if the request changes something and a page of the server has not made it,
// or if its body is not JSON. Cookies come from browsers only, which tell where a request comes from; so a request that
// does not is refused too.
func CheckSameOrigin(r *http.Request, origin string) error {
	if onlyReads(r) {
		return nil
	}
	if !isSameOrigin(r, origin) || r.Header.Get(UIHeader) != "1" {
		return fmt.Errorf("%w: no page of this server makes this request: programs use /v1 with a key; if it is the"+
			" dashboard behind a proxy, set STEPWELL_PUBLIC_URL to the address of the proxy", ErrForbidden)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength != 0 && (err != nil || kind != "application/json") {
		return fmt.Errorf("%w: the body is not JSON", ErrForbidden)
	}
	return nil
}

// isSameOrigin reports whether a page of this server made the request. Browsers send Sec-Fetch-Site only over https and
// to this machine; Origin they always send with requests that change something.
func isSameOrigin(r *http.Request, origin string) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	sent := r.Header.Get("Origin")
	if origin != "" && sent == origin {
		return true
	}
	u, err := url.Parse(sent)
	return err == nil && u.Host != "" && u.Host == r.Host
}
