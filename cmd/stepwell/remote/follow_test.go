package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a server of events: what it sends on its first connection, its second, and so on. It breaks a connection
// off behind what it sends; behind the last it refuses all.
type script struct {
	connections []string
	from        []string // the Last-Event-IDs that came
}

func (c *script) handle(w http.ResponseWriter, r *http.Request) {
	c.from = append(c.from, r.Header.Get("Last-Event-ID"))
	if len(c.from) > len(c.connections) {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, c.connections[len(c.from)-1])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

const end = "event: end\ndata: {}\n\n"

func TestFollow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		connections []string
		took, from  []string
		code        int
	}{
		{"in one go", []string{"id: 1\ndata: a\n\nid: 2\ndata: b\n\n" + end}, []string{"a", "b"}, []string{""}, 0},
		{
			"broken between events", []string{"id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n" + end},
			[]string{"a", "b"},
			[]string{"", "1"}, 0,
		},
		{
			"broken amid an event", []string{"id: 1\ndata: a\n\nid: 2\ndata: b\n", "id: 2\ndata: b\n\n" + end},
			[]string{"a", "b"},
			[]string{"", "1"}, 0,
		},
		{
			"place of a comment", []string{": nothing new\nid: 7:x\n\n", "id: 8\ndata: a\n\n" + end},
			[]string{"a"},
			[]string{"", "7:x"}, 0,
		},
		{"broken at once", []string{"", end}, nil, []string{"", ""}, 0},
		{"never back", []string{"id: 1\ndata: a\n\n"}, []string{"a"}, nil, ExitUnreachable},
		{"never there", nil, nil, []string{""}, ExitUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &script{connections: tt.connections}
			s, _, notes := newSession(t, c.handle)
			var took []string
			err := s.follow(t.Context(), "/v1/x", nil, func(data string) error {
				took = append(took, data)
				return nil
			})
			if ExitCode(err) != tt.code {
				t.Errorf("got %v, want exit code %d", err, tt.code)
			}
			if !slices.Equal(took, tt.took) || tt.from != nil && !slices.Equal(c.from, tt.from) {
				t.Errorf("took %v from %q, want %v from %q", took, c.from, tt.took, tt.from)
			}
			if want := min(1, len(c.from)-1); strings.Count(notes.String(), "trying again") != want {
				t.Errorf("said %q, want that it tries again: %d", notes, want)
			}
		})
	}
}

// TestFollowEndsForGood when there is no point in another try.
func TestFollowEndsForGood(t *testing.T) {
	t.Parallel()
	errFull := errors.New("disk full")
	nothing := func(string) error { return nil }
	for _, tt := range []struct {
		name   string
		handle http.HandlerFunc
		take   func(string) error
		want   func(error) bool
	}{
		{"reader fails", (&script{connections: []string{"data: a\n\n"}}).handle, func(string) error { return errFull }, func(err error) bool { return errors.Is(err, errFull) }},
		{"no events", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, nothing, func(err error) bool { return strings.Contains(err.Error(), "is it a Stepwell server?") }},
		{"no run", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, nothing, func(err error) bool { return ExitCode(err) == ExitNotFound }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				tt.handle(w, r)
			})
			if err := s.follow(t.Context(), "/v1/x", nil, tt.take); err == nil || !tt.want(err) {
				t.Errorf("got %v", err)
			}
			if requests != 1 {
				t.Errorf("it asked %d times", requests)
			}
		})
	}
}

func TestFollowIsInterrupted(t *testing.T) {
	t.Parallel()
	s, _, notes := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: a\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.follow(ctx, "/v1/x", nil, func(string) error { cancel(); return nil })
	if !errors.Is(err, ErrInterrupted) || ExitCode(err) != ExitInterrupted || notes.Len() > 0 {
		t.Errorf("got %v, said %q", err, notes)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	ended := func(status string) string {
		return fmt.Sprintf(`{"id":"wrun_1","status":%q,"completedAt":"2026-11-21T01:41:44.012Z"}`, status)
	}
	const running, broken = `{"id":"wrun_1","status":"running"}`, ""
	for _, tt := range []struct {
		name    string
		answers []string // of which the last comes again and again
		timeout time.Duration
		code    int
	}{
		{"completed", []string{running, ended("completed")}, 0, 0},
		{"failed", []string{ended("failed")}, 0, ExitFailed},
		{"cancelled", []string{ended("cancelled")}, 0, ExitCancelled},
		{"in time", []string{running, running, ended("completed")}, time.Minute, 0},
		{"too late", []string{running}, 20 * time.Millisecond, ExitTimeout},
		{"server restarted", []string{running, broken, broken, ended("completed")}, 0, 0},
		{"server gone", []string{running, broken}, 0, ExitUnreachable},
		{"server never there", []string{broken, ended("completed")}, 0, ExitUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			s, out, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				answer := tt.answers[min(asked, len(tt.answers)-1)]
				asked++
				if answer == broken {
					panic(http.ErrAbortHandler)
				}
				if _, err := time.ParseDuration(r.URL.Query().Get("timeout")); err != nil || r.URL.Path != "/v1/runs/wrun_1/wait" {
					t.Errorf("asked %s", r.URL)
				}
				_, _ = io.WriteString(w, answer)
			})
			err := waitRunCmd{ID: "wrun_1", Timeout: tt.timeout}.Run(t.Context(), s)
			if ExitCode(err) != tt.code {
				t.Errorf("got %v, want exit code %d", err, tt.code)
			}
			// A server that answers at once, as one does that stops, is not asked without a pause.
			if most := int(tt.timeout/s.pause) + 2; tt.code == ExitTimeout && asked > most {
				t.Errorf("asked %d times, want at most %d", asked, most)
			}
			if (out.Len() > 0) != (tt.code != ExitUnreachable) {
				t.Errorf("printed %q", out)
			}
		})
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	s := &Session{Console: Console{Stdin: strings.NewReader(" [1] \n")}}
	if got, err := document("-").read(s, "--input"); err != nil || string(got) != "[1]" {
		t.Errorf("standard input: got %s, %v", got, err)
	}
	for in, want := range map[document]string{"": "", `{"a": 1}`: `{"a": 1}`, "7": "7", "null": "null"} {
		if got, err := in.read(s, "--input"); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", in, got, err)
		}
	}
	for _, in := range []document{"teapot", "{", "@/no/such/file", "1 2"} {
		if _, err := in.read(s, "--input"); ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--input") {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

// TestPaths: what users name is one segment of a path, whatever it is.
func TestPaths(t *testing.T) {
	t.Parallel()
	var asked string
	s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.EscapedPath()
		_, _ = io.WriteString(w, `{}`)
	})
	if _, err := s.client.do(t.Context(), http.MethodGet, path("hooks", "a/../b?c#d%2F", "resume"), nil); err != nil {
		t.Fatal(err)
	}
	if asked != "/v1/hooks/a%2F..%2Fb%3Fc%23d%252F/resume" {
		t.Errorf("asked for %s", asked)
	}
}
