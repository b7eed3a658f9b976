package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/access"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

const (
	cookieName = "stepwell_session"
	// cookieAge is when browsers forget a session: not before the server does.
	cookieAge = 30 * 24 * time.Hour
	// maxSignIn limits the body of a sign-in, and signInTime the time that it takes to arrive.
	maxSignIn  = 4 << 10
	signInTime = 10 * time.Second
)

// cookieOf returns the cookie of a session; empty for none.
func cookieOf(r *http.Request) string {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	return c.Value
}

func (s *Server) setCookie(c echo.Context, value string, age time.Duration) {
	c.SetCookie(&http.Cookie{ //nolint:gosec // over plain HTTP, browsers drop cookies that are Secure
		Name: cookieName, Value: value, Path: s.base + Path, MaxAge: int(age.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.secure || c.Request().TLS != nil,
	})
}

// sameOrigin refuses requests that no page of this server makes.
func (s *Server) sameOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := auth.CheckSameOrigin(c.Request(), s.origin); err != nil {
			return err
		}
		return next(c)
	}
}

// session is what the page knows about its session.
type session struct {
	// Open tells that the server needs no key for the project default.
	Open    bool   `json:"open"`
	Version string `json:"version"`
	// Opened is the project that the request has opened; empty if it opened none.
	Opened entities.Project `json:"opened,omitempty"`
	// Projects are those that the session may use.
	Projects []openedProject `json:"projects"`
}

type openedProject struct {
	Project entities.Project `json:"project"`
	Role    admin.Role       `json:"role"`
	// Key is the name of the key that opened it; missing for a key of the environment, and on open servers.
	Key       string     `json:"key,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// showSession answers with the session of the cookie. It is no error if there is none.
func (s *Server) showSession(c echo.Context) error {
	return s.answerSession(c, cookieOf(c.Request()), "")
}

func (s *Server) answerSession(c echo.Context, cookie string, fresh entities.Project) error {
	answer := session{Open: s.options.Open, Version: s.options.Version, Opened: fresh, Projects: []openedProject{}}
	var opened []access.Opened
	if cookie != "" {
		var err error
		if opened, err = s.options.Sessions.Opened(c.Request().Context(), cookie); err != nil {
			return err
		}
	}
	found := false
	for _, o := range opened {
		role, err := s.auth.Accepts(o)
		if err != nil {
			continue // revoked or expired
		}
		p := openedProject{Project: o.Project, Role: role}
		if o.Key != nil {
			p.Key, p.ExpiresAt = o.Key.Name, o.Key.ExpiresAt
		}
		answer.Projects = append(answer.Projects, p)
		found = found || o.Project == entities.DefaultProject
	}
	if s.options.Open && !found {
		open := openedProject{Project: entities.DefaultProject, Role: admin.RoleAdmin}
		answer.Projects = append([]openedProject{open}, answer.Projects...)
	}
	return c.JSON(http.StatusOK, answer)
}

// signIn opens a project in the browser's session: that of a key, or of a code that a key has made.
func (s *Server) signIn(c echo.Context) error {
	r := c.Request()
	body, err := s.body(c)
	if err != nil {
		return err
	}
	refund, err := s.failed.take(c.RealIP())
	if err != nil {
		return err
	}
	opened, err := s.opens(r.Context(), body)
	if !errors.Is(err, auth.ErrUnauthorized) {
		refund()
	}
	if err != nil {
		return err
	}
	cookie, err := s.options.Sessions.Enter(r.Context(), cookieOf(r), opened)
	if err != nil {
		return err
	}
	s.setCookie(c, cookie, cookieAge)
	return s.answerSession(c, cookie, opened.Project)
}

// opens returns what the body of a sign-in opens. It fails with [auth.ErrUnauthorized], and with [auth.ErrForbidden].
func (s *Server) opens(ctx context.Context, data []byte) (access.Opened, error) {
	var body struct{ Key, Code string }
	if json.Unmarshal(data, &body) != nil || (body.Key == "") == (body.Code == "") {
		return access.Opened{}, entities.Invalid(`want {"key": "…"} or {"code": "…"}`)
	}
	if body.Key != "" {
		return s.auth.Opens(ctx, body.Key)
	}
	opened, err := s.options.Sessions.Redeem(ctx, body.Code)
	if errors.Is(err, admin.ErrSessionNotFound) {
		return access.Opened{}, errCode
	}
	if err == nil {
		_, err = s.auth.Accepts(opened)
	}
	return opened, err
}

// body reads the body of a request. Anybody can send one, so a client that does not send all of it soon holds no
// connection.
func (s *Server) body(c echo.Context) ([]byte, error) {
	timer := time.AfterFunc(s.bodyTimeout, incoming.AbortRead(c))
	data, err := io.ReadAll(io.LimitReader(c.Request().Body, maxSignIn))
	if !timer.Stop() {
		return nil, entities.Invalid("the body takes longer than %s to arrive", s.bodyTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return data, nil
}

// errCode is an [auth.ErrUnauthorized].
var errCode = fmt.Errorf("the code is wrong, was used, or is older than %s: make another one with stepwell ui: %w",
	access.CodeTime, auth.ErrUnauthorized)

// signOut ends the browser's session, with all its projects.
func (s *Server) signOut(c echo.Context) error {
	if cookie := cookieOf(c.Request()); cookie != "" {
		if err := s.options.Sessions.End(c.Request().Context(), cookie); err != nil {
			return err
		}
	}
	s.setCookie(c, "", -time.Second)
	return c.NoContent(http.StatusNoContent)
}

const (
	// failuresPerMinute is how many failed sign-ins an address has.
	failuresPerMinute = 20
	// failureInterval is how often it gets one back.
	failureInterval = time.Minute / failuresPerMinute
)

// failures limits the failed sign-ins of each address.
type failures struct {
	now       func() time.Time
	addresses incoming.Buckets[netip.Prefix]
}

func newFailures(now func() time.Time) failures {
	return failures{now, incoming.NewBuckets[netip.Prefix](rate.Every(failureInterval), failuresPerMinute)}
}

// take uses up one of the failed sign-ins that the address has left. The caller refunds it if the sign-in does not
// fail: so many at once are no more than the limit. It fails with a *[incoming.TooManyError] if there is none left.
func (f failures) take(address string) (refund func(), err error) {
	now := f.now()
	taken := f.addresses.Of(incoming.Network(address)).ReserveN(now, 1)
	refund = func() { taken.CancelAt(now) }
	if taken.DelayFrom(now) > 0 {
		refund()
		return nil, &incoming.TooManyError{What: "failed sign-ins from your address", RetryAfter: failureInterval}
	}
	return refund, nil
}
