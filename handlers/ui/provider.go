package ui

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/access"
	"github.com/stepwell-dev/stepwell/handlers/auth"
)

// Provider is the identity provider by which people sign in. Package oidc has one.
type Provider interface {
	// Host is how people know it.
	Host() string
	// Begin returns the address where a person signs in, who then comes back to the address redirect.
	Begin(ctx context.Context, redirect string, a access.Attempt) (string, error)
	// End returns who has signed in, by the code with which the provider sent the browser back.
	End(ctx context.Context, redirect, code string, a access.Attempt) (access.Person, error)
}

const (
	// providerPath is where a sign-in by the identity provider begins, and returnPath where the provider sends the
	// browser back.
	providerPath = "/-/provider"
	returnPath   = providerPath + "/return"
	// attemptCookie has the attempt of a browser, for as long as it may take.
	attemptCookie = "stepwell_attempt"
	attemptTime   = 10 * time.Minute
)

// The ends of sign-ins that did not succeed, as the page reads them in its address.
const (
	noAccess     = "no-access"
	signInFailed = "failed"
)

func (s *Server) redirectURL() string { return s.origin + s.base + Path + returnPath }

// setAttempt makes the browser keep its attempt, or forget it. Other than that of a session, the cookie comes with the
// browser from the provider's page.
func (s *Server) setAttempt(c echo.Context, value string, age time.Duration) {
	c.SetCookie(&http.Cookie{ //nolint:gosec // over plain HTTP, browsers drop cookies that are Secure
		Name: attemptCookie, Value: value, Path: s.base + Path + returnPath, MaxAge: int(age.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.secure || c.Request().TLS != nil,
	})
}

// beginProvider sends the browser to the identity provider.
func (s *Server) beginProvider(c echo.Context) error {
	a := access.NewAttempt()
	address, err := s.options.Provider.Begin(c.Request().Context(), s.redirectURL(), a)
	if err != nil {
		return s.refuse(c, err)
	}
	s.setAttempt(c, strings.Join([]string{a.State, a.Nonce, a.Verifier}, "."), attemptTime)
	return c.Redirect(http.StatusSeeOther, address)
}

// errAttempt is an [auth.ErrUnauthorized].
var errAttempt = fmt.Errorf("the provider's answer is for no sign-in of this browser: %w", auth.ErrUnauthorized)

// attemptOf returns the attempt of the browser that the identity provider sent back. It fails with [errAttempt].
func attemptOf(r *http.Request) (a access.Attempt, err error) {
	cookie, err := r.Cookie(attemptCookie)
	if err != nil {
		return a, errAttempt
	}
	parts := strings.Split(cookie.Value, ".")
	if len(parts) != 3 || subtle.ConstantTimeCompare([]byte(parts[0]), []byte(r.FormValue("state"))) != 1 {
		return a, errAttempt
	}
	return access.Attempt{State: parts[0], Nonce: parts[1], Verifier: parts[2]}, nil
}

// endProvider opens what the person may open whom the identity provider sent back.
func (s *Server) endProvider(c echo.Context) error {
	r := c.Request()
	s.setAttempt(c, "", -time.Second)
	var opened []access.Opened
	err := s.failed.limit(r.Context(), c.RealIP(), "provider", func() (err error) {
		opened, err = s.admit(c)
		return err
	})
	if err != nil {
		return s.refuse(c, err)
	}
	// The browser does not send the cookie of its session here, so a new one begins.
	var cookie string
	for _, o := range opened {
		if cookie, err = s.options.Sessions.Enter(r.Context(), cookie, o); err != nil {
			return s.refuse(c, err)
		}
	}
	s.setCookie(c, cookie, cookieAge)
	return c.Redirect(http.StatusSeeOther, s.base+Path+"/"+url.PathEscape(string(opened[0].Project)))
}

// errNoAccess is for people whose groups open no project.
var errNoAccess = errors.New("no group of the person opens a project")

// admit returns what the person may open whom the identity provider sent back; at least one project.
func (s *Server) admit(c echo.Context) ([]access.Opened, error) {
	r := c.Request()
	a, err := attemptOf(r)
	if err != nil {
		return nil, err
	}
	if code := r.FormValue("error"); code != "" {
		return nil, fmt.Errorf("the identity provider answered %.100q: %w", code, auth.ErrUnauthorized)
	}
	person, err := s.options.Provider.End(r.Context(), s.redirectURL(), r.FormValue("code"), a)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", auth.ErrUnauthorized, err)
	}
	ctx := admin.WithSource(r.Context(), admin.Source{Address: c.RealIP()})
	opened, err := s.options.People.Admit(ctx, person)
	if err == nil && len(opened) == 0 {
		err = errNoAccess
	}
	return opened, err
}

// refuse shows the page of the sign-in, which says that it did not succeed. Why is logged.
func (s *Server) refuse(c echo.Context, err error) error {
	s.options.Refused(c.Request().Context(), c.RealIP(), err)
	end := signInFailed
	if errors.Is(err, errNoAccess) {
		end = noAccess
	}
	return c.Redirect(http.StatusSeeOther, s.base+Path+"/-/login#provider="+end)
}
