package rest_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestStartsFollowTheNamedDeployment: a run that names its deployment is started, or not, as the deployment is now,
// however lately it had some.
func TestStartsFollowTheNamedDeployment(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	body := `{"workflow":"order","deployment":"v1"}`
	for _, step := range []struct{ method, path, put, code string }{
		{http.MethodPut, "/v1/deployments/v1", `{"url":"http://a.test"}`, ""},
		{http.MethodPut, "/v1/deployments/v1", `{"url":"http://b.test"}`, ""},
		{http.MethodPut, "/v1/deployments/v1", `{"url":"http://b.test","stepsOnly":true}`, "deployment_steps_only"},
		{http.MethodPut, "/v1/deployments/v1", `{"url":"http://b.test","stepsOnly":false}`, ""},
		{http.MethodDelete, "/v1/deployments/v1", ``, "deployment_not_found"},
		{http.MethodPut, "/v1/deployments/v1", `{"url":"http://b.test"}`, ""},
	} {
		a.do(t, step.method, step.path, step.put)
		for range 2 {
			status, got := a.do(t, http.MethodPost, "/v1/runs", body)
			switch refusal, _ := got["error"].(object); {
			case step.code == "" && (status != http.StatusCreated || got["deployment"] != "v1"),
				step.code != "" && refusal["code"] != step.code:
				t.Errorf("after %s %s: got %v, want code %q", step.method, step.put, got, step.code)
			}
		}
	}
}

// TestRacingStartsFollowTheNamedDeployment: while another server removes a deployment and registers it again, no start
// that begins when it is gone succeeds, and none fails that ends while it is there.
func TestRacingStartsFollowTheNamedDeployment(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	other := check.Value(queue.New(a.pool, migrations.DefaultSchema, a.hub))(t)
	var changes atomic.Int64 // even: it is there; odd: it is gone; negative while that changes
	change := func(n int64, do func() error) {
		changes.Store(-n)
		if err := do(); err != nil {
			t.Error(err)
		}
		changes.Store(n)
	}
	put := func() error {
		_, err := other.PutDeployment(t.Context(), entities.DefaultProject, "v1", "http://a.test", "order")
		return err
	}
	change(2, put)
	const n = 8
	seen, done := make(chan struct{}), make(chan struct{})
	var racers sync.WaitGroup
	for range n {
		racers.Go(func() {
			for {
				before := changes.Load()
				status, _ := a.do(t, http.MethodPost, "/v1/runs", `{"workflow":"order","deployment":"v1"}`)
				if before < 0 || before != changes.Load() {
					continue
				}
				if started := status == http.StatusCreated; started != (before%2 == 0) {
					t.Errorf("got status %d after change %d", status, before)
				}
				select {
				case seen <- struct{}{}:
				case <-done:
					return
				}
			}
		})
	}
	for number := int64(3); number < 23; number++ {
		if number%2 == 0 {
			change(number, put)
		} else {
			change(number, func() error { return other.RemoveDeployment(t.Context(), entities.DefaultProject, "v1") })
		}
		for range n + 1 { // at least one start that began after the change
			<-seen
		}
	}
	close(done)
	racers.Wait()
}
