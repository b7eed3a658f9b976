package handlers

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestReadersAreLimited: a project has its limit, each key half of it, and no other project is concerned.
func TestReadersAreLimited(t *testing.T) {
	t.Parallel()
	l := newReaders(5)
	a, b, c := keyOf{"p", "a"}, keyOf{"p", "b"}, keyOf{"p", "c"}
	for i, step := range []struct {
		key     keyOf
		refused string
	}{
		{a, ""}, {a, ""}, {a, "the API key"}, {b, ""}, {b, ""}, {b, "the API key"}, {c, ""}, {c, "the project"},
		{keyOf{"q", admin.ActorEnvironment}, ""},
	} {
		err := l.enter(step.key)
		tooMany, refused := errors.AsType[*problem](err)
		if refused != (step.refused != "") || refused && !strings.HasPrefix(tooMany.message, step.refused) {
			t.Fatalf("reader %d, of %v: got error %v, want %q", i, step.key, err, step.refused)
		}
		if p := problemOf(err); refused && (p.status != http.StatusTooManyRequests || p.retryAfter == 0) {
			t.Errorf("got problem %+v", p)
		}
	}
	l.leave(c)
	if err := l.enter(c); err != nil {
		t.Errorf("after one left: %v", err)
	}
	for _, key := range []keyOf{a, a, b, b, c, {"q", admin.ActorEnvironment}} {
		l.leave(key)
	}
	if len(l.projects) != 0 || len(l.keys) != 0 {
		t.Errorf("%v and %v are left", l.projects, l.keys)
	}
}

// TestMessageThatWaits for its answer is a reader. If there are too many, it is sent without waiting.
func TestMessageThatWaits(t *testing.T) {
	t.Parallel()
	l := newReaders(1)
	request := func(handle echo.HandlerFunc) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Prefer", "wait=1")
		c := echo.New().NewContext(r, httptest.NewRecorder())
		c.SetPath(nativePath + "/runs/:id/inbox/:name")
		c.Set("stepwell.identity", auth.Identity{Project: "p"})
		if err := l.middleware(handle)(c); err != nil {
			t.Error(err)
		}
	}
	waits := map[string]bool{}
	request(func(c echo.Context) error {
		waits["first"] = waitsForRun(c)
		request(func(c echo.Context) error {
			waits["second"] = waitsForRun(c)
			return nil
		})
		return nil
	})
	if !waits["first"] || waits["second"] || len(waits) != 2 || len(l.projects) != 0 {
		t.Errorf("waited: %v; left: %v", waits, l.projects)
	}
}

// TestStartThatWaits: it is a reader while it waits, and has no room as a start any more. If there are too many
// readers, it starts without waiting.
func TestStartThatWaits(t *testing.T) {
	t.Parallel()
	const path = nativePath + "/runs"
	a := newAdmission(0, 0, time.Now, func(echo.Context) string { return "p" })
	a.starts = newStarts(t.Context(), func(string, int, int, int) int { return 1 }, time.Now, nil)
	l := newReaders(1)
	request := func(handle echo.HandlerFunc) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
		r.Header.Set("Prefer", "wait=1")
		c := echo.New().NewContext(r, httptest.NewRecorder())
		c.SetPath(path)
		c.Set("stepwell.identity", auth.Identity{Project: "p"})
		if err := a.middleware(l.middleware(handle))(c); err != nil {
			t.Error(err)
		}
	}
	waited := false
	request(func(c echo.Context) error {
		check.Equal(t, "starts are served", a.starts.serving, 1)
		incoming.Waits(c)
		if a.starts.serving != 0 {
			t.Error("it has room as a start while it waits")
		}
		request(func(c echo.Context) error {
			waited = waitsForRun(c)
			return nil
		})
		return nil
	})
	if waited || a.starts.serving != 0 || len(l.projects) != 0 {
		t.Errorf("a second reader waited: %t; left: %d starts, %v", waited, a.starts.serving, l.projects)
	}
}
