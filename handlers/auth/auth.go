// Package auth says on whose behalf a request is made. It imports package entities, and nothing else of
// the module.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
)

// ErrUnauthorized says that a request does not carry a valid key.
var ErrUnauthorized = errors.New(
	"missing or wrong API key: send Authorization: Bearer with the server's STEPWELL_API_KEY")

const projectKey = "stepwell.project"

// Middleware lets requests through that carry the key as a bearer token, and puts them into the default
// project. An empty key lets everyone through.
func Middleware(key string) echo.MiddlewareFunc {
	want := sha256.Sum256([]byte(key))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if key != "" {
				token, ok := strings.CutPrefix(c.Request().Header.Get(echo.HeaderAuthorization), "Bearer ")
				got := sha256.Sum256([]byte(token))
				if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
					return ErrUnauthorized
				}
			}
			c.Set(projectKey, entities.DefaultProject)
			return next(c)
		}
	}
}

// Project is the project a request that came through [Middleware] is about. It panics on any other.
func Project(c echo.Context) entities.Project {
	return c.Get(projectKey).(entities.Project)
}
