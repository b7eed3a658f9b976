package handlers

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/admin"
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
