package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

// declaring returns an app that declares these.
func declaring(declarations ...stepwell.Declaration) *stepwell.App {
	app := stepwell.NewApp(stepwell.AppConfig{Name: "orders", Build: "1"})
	app.Register(approve.Bind(approveOrder))
	app.Declare(declarations...)
	return app
}

// wantChanges reconciles, and expects the changes that were foretold, and that none is needed after them.
func wantChanges(t *testing.T, c *stepwell.Client, app *stepwell.App, want ...string) {
	t.Helper()
	foretold, err := app.Changes(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	made, err := app.Reconcile(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := changeTexts(made); !slices.Equal(got, want) || !slices.Equal(got, changeTexts(foretold)) {
		t.Errorf("it has changed %q and foretold %q, want %q", got, changeTexts(foretold), want)
	}
	if again, err := app.Changes(t.Context(), c); err != nil || len(again) > 0 {
		t.Errorf("then it would change %v, %v", again, err)
	}
}

func changeTexts(changes []stepwell.Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.String())
	}
	return list
}

// everything declares each kind with nothing but what it needs, and with all that it may have.
func everything() []stepwell.Declaration {
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	return []stepwell.Declaration{
		stepwell.Trigger{Name: "orders.paid", Signal: "paid", Start: approve.PlannedFrom(nil)},
		stepwell.Limit{Name: "orders.few", Total: 2},
		stepwell.Limit{
			Name: "bank", PerKey: 3, Total: 20, Rate: 10, Per: 90 * time.Second, Burst: 2, Fair: true, OnFull: "reject",
		},
		stepwell.Schedule{Name: "orders.hourly", Every: time.Hour, Start: approve.Planned("90s")},
		stepwell.Schedule{
			Name: "orders.nightly", Cron: "30 2 * * MON-FRI", TimeZone: "Europe/Berlin", From: from,
			Until: from.AddDate(1, 0, 0), Overlap: "waitAll", CatchUp: "all", CatchUpWindow: 90 * time.Minute,
			Jitter: time.Minute,
			Start:  approve.Planned("all", stepwell.Attribute("why", "90s"), stepwell.Timeout(25*time.Hour)),
		},
		stepwell.Trigger{
			Name: "orders.shop", Webhook: &stepwell.WebhookSource{Respond: 10 * time.Second}, Condition: "data.body.ok",
			Start: approve.PlannedFrom("order ${data.id}", stepwell.RunKey("${data.id}"), stepwell.Join(),
				stepwell.Once("90s"), stepwell.Timeout(time.Hour),
				stepwell.Limits(stepwell.LimitUse{Limit: "bank", Key: "${data.bank}", Cost: 2})),
		},
		stepwell.Trigger{
			Name: "orders.ended", RunEnded: "approve", Statuses: []stepwell.RunStatus{stepwell.StatusFailed},
			Start: approve.Planned("it failed", stepwell.Debounced(stepwell.DebounceRule{Quiet: time.Minute})),
		},
		stepwell.Trigger{Name: "orders.any", RunEnded: "approve", Start: approve.Planned("it ended", stepwell.Delay(90*time.Second))},
	}
}

func TestDeclarationsAreReconciled(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	c := s.client(t, "admin")
	all := everything()
	wantChanges(t, c, declaring(all...),
		"create limits orders.few", "create limits bank", "create schedules orders.hourly", "create schedules orders.nightly",
		"create triggers orders.paid", "create triggers orders.shop", "create triggers orders.ended",
		"create triggers orders.any")

	var nightly struct{ Attributes map[string]string }
	if s.admin(t, http.MethodGet, "/v1/schedules/orders.nightly", nil, &nightly); nightly.Attributes["why"] != "90s" {
		t.Errorf("the attributes are %v", nightly.Attributes)
	}

	// What an operator has paused stays so.
	s.admin(t, http.MethodPut, "/v1/limits/orders.few", map[string]any{"total": 2, "paused": true}, nil)
	s.admin(t, http.MethodPost, "/v1/schedules/orders.hourly/pause", map[string]any{}, nil)
	wantChanges(t, c, declaring(all...))
	all[1] = stepwell.Limit{Name: "orders.few", Total: 3}
	all[3] = stepwell.Schedule{Name: "orders.hourly", Every: 2 * time.Hour, Start: approve.Planned("90s")}
	wantChanges(t, c, declaring(all...), "change limits orders.few", "change schedules orders.hourly")
	var few struct {
		Total  int
		Paused bool
	}
	var hourly struct{ PausedAt time.Time }
	s.admin(t, http.MethodGet, "/v1/limits/orders.few", nil, &few)
	s.admin(t, http.MethodGet, "/v1/schedules/orders.hourly", nil, &hourly)
	if few.Total != 3 || !few.Paused || hourly.PausedAt.IsZero() {
		t.Errorf("the limit is %+v and the schedule %+v, want both changed and paused", few, hourly)
	}

	// What is left out is removed by its name, and what uses it first.
	s.admin(t, http.MethodPut, "/v1/limits/orders2.other", map[string]any{"total": 1}, nil)
	wantChanges(t, c, declaring(),
		"remove triggers orders.shop", "remove triggers orders.paid", "remove triggers orders.ended",
		"remove triggers orders.any", "remove schedules orders.nightly", "remove schedules orders.hourly",
		"remove limits orders.few")
	var limits struct{ Data []struct{ Name string } }
	s.admin(t, http.MethodGet, "/v1/limits", nil, &limits)
	if got := fmt.Sprint(limits.Data); got != "[{bank} {orders2.other}]" {
		t.Errorf("the limits that are left are %s", got)
	}
}

// TestDeclarationsThatTheServerRefuses: what came before is there, and the error says which one it was.
func TestDeclarationsThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.serve(t, approve.Bind(approveOrder))
	app := declaring(stepwell.Schedule{Name: "orders.bad", Cron: "never", Start: approve.Planned("x")},
		stepwell.Limit{Name: "orders.few", Total: 2})
	made, err := app.Reconcile(t.Context(), s.client(t, "admin"))
	if err == nil || !strings.HasPrefix(err.Error(), "create schedules orders.bad: PUT /v1/schedules/orders.bad: 400 ") ||
		!slices.Equal(changeTexts(made), []string{"create limits orders.few"}) {
		t.Errorf("it made %v and failed with %v", made, err)
	}
	if _, err := app.Reconcile(t.Context(), s.client(t, "write")); err == nil || !strings.Contains(err.Error(), "403 forbidden") {
		t.Errorf("with a key that may not, it failed with %v", err)
	}
	twice := declaring(stepwell.Limit{Name: "a", Total: 1}, stepwell.Limit{Name: "a", Total: 2})
	if _, err := twice.Changes(t.Context(), s.client(t, "admin")); err == nil || err.Error() != `limits "a" is declared twice` {
		t.Errorf("two of a name: %v", err)
	}
}
