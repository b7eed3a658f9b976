package webhook_test

import (
	"net/http"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestI9TokensAreSeparatePerProject checks two projects with the same token.
func TestI9TokensAreSeparatePerProject(t *testing.T) {
	t.Parallel()
	d := newTestServer(t)
	ours := d.hook(t, "T", entities.WebhookSpec{})
	theirs := entities.NewRunID(t0)
	d.append(t, "shop", created(theirs, entities.DriverServer), opened(theirs, "hook", "T", &entities.WebhookSpec{}),
		opened(theirs, "own", "U", &entities.WebhookSpec{}))
	received := func(project entities.Project, id entities.RunID) int {
		t.Helper()
		r := check.Value(store.RunByID(t.Context(), d.pool, project, id))(t)
		return int(r.LastSeq)
	}
	us, them := received(entities.DefaultProject, ours), received("shop", theirs)
	wantAccepted(t, d.call("POST", "/hooks/T", "{}"))
	wantAccepted(t, d.call("POST", "/hooks/default/T", "{}"))
	if a, b := received(entities.DefaultProject, ours), received("shop", theirs); a != us+2 || b != them {
		t.Errorf("our run received %d requests, theirs %d; want 2 and 0", a-us, b-them)
	}
	wantAccepted(t, d.call("POST", "/hooks/shop/T", "{}"))
	if a, b := received(entities.DefaultProject, ours), received("shop", theirs); a != us+2 || b != them+1 {
		t.Errorf("our run received %d requests, theirs %d; want 2 and 1", a-us, b-them)
	}
	for _, path := range []string{"/hooks/U", "/hooks/none/T", "/hooks/default/U", "/hooks/a%20b/T", "/hooks/shop/T/x"} {
		wantRejected(t, d.call("POST", path, "{}"), http.StatusNotFound, "not_found")
	}
}
