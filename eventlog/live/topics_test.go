package live

import (
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// wantTopics fails the test unless these topics come next.
func wantTopics(t *testing.T, v *Viewer[entities.RunStatus], topics ...string) Place {
	t.Helper()
	n := next(t, v)
	if !slices.Equal(n.Topics, topics) || n.Runs != nil || n.Reset {
		t.Fatalf("got %+v, want the topics %v", n, topics)
	}
	return n.Place
}

// TestViewersReceiveTopics: one read in an interval serves all viewers. Each is sent what has changed since its last topics.
func TestViewersReceiveTopics(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2*minPollInterval)
	const viewers = 30
	var list []*Viewer[entities.RunStatus]
	for range viewers {
		list = append(list, f.join(t, Wants{Topics: true}))
	}
	begun := f.reads.Load()
	polls := f.polls.Load()
	f.versions.Store(&Versions{"queue": "2", "settings": "1"})
	for _, v := range list {
		wantTopics(t, v, "queue")
	}
	f.start(t)
	for _, v := range list {
		wantTopics(t, v, Runs)
	}
	f.wantPolls(t, polls+4) // nothing happens meanwhile
	if n, intervals := f.reads.Load()-begun, f.polls.Load()-polls; n > intervals+2 {
		t.Errorf("%d viewers cost %d reads in %d intervals", viewers, n, intervals)
	}
	for _, v := range list {
		v.mu.Lock()
		if v.hasUpdate() {
			t.Errorf("a viewer was sent %+v while nothing happened", v.update)
		}
		v.mu.Unlock()
	}
}

// TestTopicsOfAViewerThatResumes are those that changed while it was away, or are all to be read anew.
func TestTopicsOfAViewerThatResumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, minPollInterval)
	v := f.join(t, Wants{Topics: true})
	f.versions.Store(&Versions{"queue": "2", "settings": "1"})
	place := wantTopics(t, v, "queue")
	v.Close()
	f.versions.Store(&Versions{"queue": "2", "settings": "2"})
	parsed, err := ParsePlace(place.String())
	if err != nil || parsed.String() != place.String() {
		t.Fatalf("got %s, %v; want %s", parsed, err, place)
	}
	again := f.join(t, Wants{Topics: true, From: &parsed})
	if !again.Resumed() {
		t.Error("it did not resume")
	}
	wantTopics(t, again, "settings")
	f.start(t)
	wantTopics(t, again, Runs)
	again.Close()
	f.start(t)
	more := f.join(t, Wants{Topics: true, From: &parsed})
	if n := next(t, more); !slices.Contains(n.Topics, Runs) {
		t.Errorf("got %v, want what happened to runs meanwhile", n.Topics)
	}
	parsed.Versions = nil
	if other := f.join(t, Wants{Topics: true, From: &parsed}); other.Resumed() {
		t.Error("it resumed without the versions that it knows")
	}
}

func TestPlacesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "queue=1", "1::0;queue"} {
		if p, err := ParsePlace(text); err == nil {
			t.Errorf("%q: got %s", text, p)
		}
	}
	if p, err := ParsePlace("7::0;queue=1a;stats=2"); err != nil || p.String() != "7::0;queue=1a;stats=2" {
		t.Errorf("got %s, %v", p, err)
	}
}
