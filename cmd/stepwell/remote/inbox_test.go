package remote

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSendWaitsForTheAnswer, with the same message each time.
func TestSendWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	const silence, broken = `{"seq":4}`, ""
	answer := func(what string) string { return fmt.Sprintf(`{"seq":4,"answer":{"runId":"wrun_2","seq":9,%s}}`, what) }
	for _, tt := range []struct {
		name    string
		answers []string // the last one is repeated
		timeout time.Duration
		code    int
		want    string // of what is printed, or of the error
	}{
		{"an output", []string{silence, broken, answer(`"output":{"a":1}`)}, 0, 0, `{"a":1}`},
		{"a refusal", []string{answer(`"error":{"message":"too little","code":"funds"}`)}, 0, ExitFailed, "wrun_2 refused the message: funds: too little"},
		{"no answer in time", []string{silence}, 20 * time.Millisecond, ExitTimeout, "has not answered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requests, first := 0, ""
			s, out, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				answer := tt.answers[min(requests, len(tt.answers)-1)]
				body, _ := io.ReadAll(r.Body)
				if requests++; requests == 1 {
					first = string(body)
				}
				if prefer := r.Header.Get("Prefer"); string(body) != first || prefer != "wait=30" && prefer != "wait=1" {
					t.Errorf("got %s, %q; want what came first: %s", body, prefer, first)
				}
				if answer == broken {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, answer)
			})
			err := s.execute(t.Context(), []string{"runs", "send", "wrun_1", "notes", "--wait", "--wait-timeout", tt.timeout.String()})
			if got := fmt.Sprint(out, err); ExitCode(err) != tt.code || !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want exit code %d and %s", got, tt.code, tt.want)
			}
			if !strings.Contains(first, `"id":"`) {
				t.Errorf("sent %s, without an ID", first)
			}
		})
	}
}
