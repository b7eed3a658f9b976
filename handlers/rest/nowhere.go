package rest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

var (
	// ErrNoPath says that there is no such path below /v1.
	ErrNoPath = errors.New("there is no such path: GET /v1/openapi.json has all there are")
	// ErrNoMethod says that there is such a path, but not for this method.
	ErrNoMethod = errors.New("there is no such method here")
)

// nowhere answers requests that no operation is for.
func nowhere(c echo.Context) error {
	allowed := methodsAt(c.Request().URL.EscapedPath())
	if len(allowed) == 0 {
		return ErrNoPath
	}
	c.Response().Header().Set(echo.HeaderAllow, strings.Join(allowed, ", "))
	return fmt.Errorf("%s: %w: it takes %s", c.Request().Method, ErrNoMethod, strings.Join(allowed, " and "))
}

// methodsAt are the methods of the operations that the path has, in the order of the alphabet.
func methodsAt(path string) []string {
	var methods []string
	for operation := range described().accepted {
		method, route, _ := strings.Cut(operation, " ")
		if leadsTo(route, path) {
			methods = append(methods, method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// leadsTo reports whether a path is one of the route's, whose parameters are any but nothing.
func leadsTo(route, path string) bool {
	want, got := strings.Split(route, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, got, func(want, got string) bool {
		return want == got || strings.HasPrefix(want, ":") && got != ""
	})
}
