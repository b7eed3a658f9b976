package world

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

var at = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// own returns the headers of an answer of a process with a client of its own.
func own(process string) http.Header {
	return http.Header{"Stepwell-World": {"1"}, "Stepwell-Process": {process}}
}

func TestAppsAreKnownByTheirLastAnswer(t *testing.T) {
	t.Parallel()
	c := NewClients()
	app := App{"p", "dpl"}
	for _, step := range []struct {
		what   string
		header http.Header
		after  time.Duration
		own    bool // how the app is known then
	}{
		{"an official client", http.Header{}, 0, false},
		{"its own client", own("a"), time.Second, true},
		{"a version that the server does not speak", http.Header{"Stepwell-World": {"2"}}, 2 * time.Second, false},
		{"its own client, too soon", own("a"), 61 * time.Second, false},
		{"its own client, a minute later", own("a"), 62 * time.Second, true},
		{"a proxy", http.Header{}, 63 * time.Second, false},
		{"a proxy again", http.Header{}, 100 * time.Second, false},
		{"its own client, a minute after the first", own("a"), 123 * time.Second, true},
	} {
		answered := c.Answered(app, step.header, at.Add(step.after))
		if want := step.header.Get(Header) == "1"; answered != want {
			t.Errorf("%s: answered is %v", step.what, answered)
		}
		if _, got := c.Knows(app, "run"); got != step.own {
			t.Errorf("%s: known as own: %v, want %v", step.what, got, step.own)
		}
	}
	for _, other := range []App{{"q", "dpl"}, {"p", "dpl2"}} {
		if _, got := c.Knows(other, "run"); got {
			t.Errorf("%v is known", other)
		}
	}
}

func TestAProcessIsToldWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	c := NewClients()
	app := App{"p", "dpl"}
	want := func(what string, run entities.RunID, want int64) {
		t.Helper()
		if got, own := c.Knows(app, run); got != want || !own {
			t.Errorf("%s: got %d, %v, want %d", what, got, own, want)
		}
	}
	c.Answered(app, own("a"), at)
	want("nothing sent", "run", 0)
	c.Sent(app, "run", 7)
	want("sent", "run", 7)
	want("another run", "run2", 0)
	c.Answered(app, own("b"), at)
	want("another process", "run", 0)
	c.Sent(app, "run", 9)
	want("sent to the other", "run", 9)
	for _, process := range []string{"", strings.Repeat("x", maxProcess+1)} {
		c.Answered(app, own(process), at)
		c.Sent(app, "run", 11)
		want("a process without a name", "run", 0)
	}
}

// TestWhatIsRememberedIsLimited: the runs and the apps that were not heard of for longest are forgotten.
func TestWhatIsRememberedIsLimited(t *testing.T) {
	t.Parallel()
	c := NewClients()
	for i := range maxApps + 10 {
		c.Answered(App{"p", fmt.Sprint(i)}, own("a"), at)
		c.Sent(App{"p", fmt.Sprint(i)}, entities.RunID(fmt.Sprint(i)), 1)
	}
	if apps, runs := c.apps.Len(), c.runs.Len(); apps != maxApps || runs != maxRuns {
		t.Errorf("got %d apps and %d runs", apps, runs)
	}
}
