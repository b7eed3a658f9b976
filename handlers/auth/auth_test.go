package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestMiddleware(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, key, header string
		want              error
	}{
		{"OK", "k", "Bearer k", nil},
		{"OK without a key", "", "", nil},
		{"OK with any key where there is none", "", "Bearer x", nil},
		{"Err missing", "k", "", ErrUnauthorized},
		{"Err empty", "k", "Bearer ", ErrUnauthorized},
		{"Err wrong", "k", "Bearer K", ErrUnauthorized},
		{"Err longer", "k", "Bearer kk", ErrUnauthorized},
		{"Err padded", "k", "Bearer  k", ErrUnauthorized},
		{"Err other scheme", "k", "Basic k", ErrUnauthorized},
		{"Err no scheme", "k", "k", ErrUnauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", tt.header)
			c := echo.New().NewContext(r, httptest.NewRecorder())
			reached := false
			err := Middleware(tt.key)(func(c echo.Context) error {
				reached = true
				if got := Project(c); got != entities.DefaultProject {
					t.Errorf("project: got %q, want %q", got, entities.DefaultProject)
				}
				return nil
			})(c)
			if !errors.Is(err, tt.want) || reached != (tt.want == nil) {
				t.Errorf("got %v, handler reached: %v; want %v", err, reached, tt.want)
			}
		})
	}
}

func TestProjectPanicsWithoutTheMiddleware(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a route that forgets the middleware has a project all the same")
		}
	}()
	Project(echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()))
}
