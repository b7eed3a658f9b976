package handlers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/queue"
)

// TestRefusalsOfRequestsOfSQL: what is refused for good is parked, what could not be served now does not count, and what
// may be different later fails as all work does, which is repeated with a growing pause.
func TestRefusalsOfRequestsOfSQL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   *queue.Failure // nil for a failure as all others
		reason string
	}{
		{http.StatusBadRequest, `{"error":{"code":"invalid_request","message":"no"}}`, &queue.Failure{Reached: true, Parked: true}, "invalid_request: no"},
		{http.StatusConflict, `{"error":{"code":"key_taken","message":"by another"}}`, &queue.Failure{Reached: true, Parked: true}, "key_taken: by another"},
		{http.StatusConflict, `{"error":{"code":"conflict","message":"it is already pending"}}`, nil, "conflict: it is already pending"},
		{http.StatusNotFound, `{"error":{"code":"deployment_not_found","message":"none"}}`, nil, "deployment_not_found: none"},
		{http.StatusTooManyRequests, `{"error":{"code":"quota","message":"later"}}`, &queue.Failure{After: refusedRetry}, "quota: later"},
		{http.StatusServiceUnavailable, ``, &queue.Failure{After: refusedRetry}, "Service Unavailable"},
	} {
		err := failureOf(&http.Response{StatusCode: c.status, Body: io.NopCloser(strings.NewReader(c.body))})
		if err.Error() != c.reason {
			t.Errorf("%d %s: got %q, want %q", c.status, c.body, err, c.reason)
		}
		got, _ := errors.AsType[*queue.Failure](err)
		if c.want != nil {
			c.want.Reason = c.reason
			c.want.Public, _, _ = strings.Cut(c.reason, ":")
		}
		check.Equal(t, fmt.Sprintf("%d %s", c.status, c.body), got, c.want)
	}
}
