package remote

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

func TestTimes(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	s := &Session{Console: Console{Now: func() time.Time { return now }, RelativeTimes: true}}
	pipe := &Session{Console: Console{Now: s.Now}}
	for _, tt := range []struct {
		t    time.Time
		want string
	}{
		{time.Time{}, ""},
		{now, "0s ago"},
		{at(-119 * time.Second), "119s ago"},
		{at(-2 * time.Minute), "2m ago"},
		{at(-2*time.Hour + 1), "119m ago"},
		{at(-2 * time.Hour), "2h ago"},
		{at(-47 * time.Hour), "47h ago"},
		{at(-1000 * time.Hour), "41d ago"},
		{at(90 * time.Second), "in 90s"},
	} {
		if got := s.formatTime(tt.t); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.t, got, tt.want)
		}
	}
	if got := pipe.formatTime(at(time.Millisecond)); got != "2026-11-21T03:00:00.001Z" {
		t.Errorf("in a pipe: got %q", got)
	}
	took := func(end time.Time) string { return elapsed(api.Time{Time: now}, api.Time{Time: end}) }
	if got := took(at(90*time.Second+time.Millisecond)) + " " + took(at(1234567)) + took(time.Time{}); got != "1m30s 1ms" {
		t.Errorf("elapsed: got %q", got)
	}
	for in, want := range map[timeFlag]string{
		"": "", "2h": "2026-11-21T01:00:00.000Z", "30d": "2026-10-22T03:00:00.000Z", "2026-01-01T00:00:00+02:00": "2026-01-01T00:00:00+02:00",
	} {
		if got, err := in.resolve(now); err != nil || got != want {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
	for _, in := range []timeFlag{"yesterday", "-2h", "-2d", "d", "1.5d", "99999999d", "2026-01-01"} {
		if _, err := in.resolve(now); ExitCode(err) != ExitUsage {
			t.Errorf("%q: got %v", in, err)
		}
	}
}

// TestEscape: untrusted text cannot control the terminal and stays on its line.
func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"teapot 🫖 für":   "teapot 🫖 für",
		"a\x1b[2Jb":      `a\x1b[2Jb`,
		"a\tb\nc\r":      `a\tb\nc\r`,
		"a\u202eb\u009b": `a\u202eb\u009b`,
		"\xff":           "\ufffd",
	} {
		if got := escape(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestPayloadText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxInlineJSON)
	for _, tt := range []struct{ raw, encoding, want string }{
		{"", "none", ""},
		{"", "", ""},
		{"", "opaque", "(opaque: cannot be displayed)"},
		{`{"a": 1}`, "json", `{"a":1}`},
		{"\"\u202e\"", "json", `"\u202e"`},
		{`{"a":"` + long + `"}`, "json", "{\n  \"a\": \"" + long + "\"\n}"},
	} {
		if got := string(payloadText(json.RawMessage(tt.raw), tt.encoding)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.raw, got, tt.want)
		}
	}
}

// TestListsStopAtLimit: exactly the requested number of entries is printed, also over short pages, and a note says if
// there are more.
func TestListsStopAtLimit(t *testing.T) {
	t.Parallel()
	pages := map[string]string{ // by cursor
		"": `{"data":[1,2],"cursor":"b"}`, "b": `{"data":[],"cursor":"c"}`, "c": `{"data":[3],"cursor":"d"}`, "d": `{"data":[4]}`,
	}
	for _, tt := range []struct {
		name   string
		paging paging
		want   string
		note   string
		limits string
	}{
		{"default", paging{}, "1234", "", "100 98 98 97 "},
		{"exact", paging{Limit: 2}, "12", "more entries: use --all or --cursor b\n", "2 "},
		{"over short pages", paging{Limit: 3}, "123", "more entries: use --all or --cursor d\n", "3 1 1 "},
		{"all", paging{All: true}, "1234", "", "1000 1000 1000 1000 "},
		{"continued", paging{Cursor: "c", Limit: 5}, "34", "", "5 4 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			limits := ""
			s, _, notes := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				limits += r.URL.Query().Get("limit") + " "
				_, _ = w.Write([]byte(pages[r.URL.Query().Get("cursor")]))
			})
			var got strings.Builder
			err := s.pages(t.Context(), "/v1/runs", url.Values{}, tt.paging, func(data []json.RawMessage) error {
				for _, d := range data {
					got.Write(d)
				}
				return nil
			})
			if err != nil || got.String() != tt.want || notes.String() != tt.note || limits != tt.limits {
				t.Errorf("got %s, note %q, limits %s, %v; want %s, %q, %s", &got, notes, limits, err, tt.want, tt.note, tt.limits)
			}
		})
	}
	for _, wrong := range []paging{{Limit: -1}, {Limit: 1, All: true}} {
		s, _, _ := sessionAt(t, "http://127.0.0.1:1")
		if err := s.pages(t.Context(), "/v1/runs", url.Values{}, wrong, nil); ExitCode(err) != ExitUsage {
			t.Errorf("%+v: got %v", wrong, err)
		}
	}
}

// TestABlockedRunShowsWhy, and the text of its function cannot control the terminal.
func TestABlockedRunShowsWhy(t *testing.T) {
	t.Parallel()
	s, out, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wrun_1") {
			_, _ = w.Write([]byte(`{"id":"wrun_1","blocked":{"code":"diverged","message":"order.go:41\n\u001b[2J",
				"since":"2026-11-21T01:41:43Z","attempts":3}}`))
			return
		}
		_, _ = w.Write([]byte(`{"data":[]}`))
	})
	if err := (showRunCmd{ID: "wrun_1"}).Run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := "blocked  since 2026-11-21T01:41:43.000Z, 3 attempts: diverged: order.go:41\n         \\x1b[2J\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got %s, want %s", out, want)
	}
}
