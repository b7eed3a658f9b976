package eventlog

import (
	"fmt"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
)

// TestFullLimitsAreNotTried: a start does not try to take slots that were full lately, nor, after many failures with
// any keys, those of another key.
func TestFullLimitsAreNotTried(t *testing.T) {
	t.Parallel()
	s, now := newLimitedStarts(nil), time.Unix(0, 0)
	with := func(name, key string) limit.Start {
		return limit.Start{Uses: []entities.LimitUse{{Name: name, Key: key}}}
	}
	want := func(what, name, key string, want bool) {
		t.Helper()
		if got := s.mayTake("p", with(name, key), now); got != want {
			t.Errorf("%s: it may try = %t, want %t", what, got, want)
		}
	}
	want("at first", "a", "new", true)
	for n := range manyFailed - 1 {
		s.tried("p", with("a", fmt.Sprint(n)), now, false)
	}
	want("a key that was full", "a", "0", false)
	want("another key after some failures", "a", "new", true)
	s.tried("p", with("a", "free"), now, true)
	s.tried("p", with("a", "last"), now, false)
	want("a success came in between", "a", "new", true)
	for n := range manyFailed - 1 {
		s.tried("p", with("a", fmt.Sprint(n)), now, false)
	}
	want("another key after many failures", "a", "new", false)
	want("another limit", "b", "new", true)
	if !s.mayTake("q", with("a", "new"), now) {
		t.Error("another project may not try")
	}
	now = now.Add(fullTime)
	want("a while later", "a", "new", true)
	s.tried("p", with("a", "0"), now, false)
	want("one failure a while later", "a", "new", true)
}

// grantingQueue grants slots, though there are none.
type grantingQueue struct{ noQueue }

func (grantingQueue) Awaited(entities.Project, []entities.LimitUse) {}
func (grantingQueue) Freed(entities.Project, []entities.LimitUse)   {}
func (grantingQueue) Grants() bool                                  { return true }

// TestStartThatNeedsTheLockSaysNothingAboutSlots: it is not tried without the lock, so its limits do not count as full.
func TestStartThatNeedsTheLockSaysNothingAboutSlots(t *testing.T) {
	t.Parallel()
	l := newFixture(t).with(grantingQueue{})
	if _, err := limit.NewStore(l.pool, time.Now).Put(t.Context(), home, "cap", limit.Spec{Total: 1}); err != nil {
		t.Fatal(err)
	}
	for what, with := range map[string]Companion{
		"always": UnderLock{}, "says so itself": struct{ UnderLock }{},
	} {
		r := runCreated(newRunID())
		r.Data.Limits = []entities.LimitUse{{Name: "cap"}}
		if _, err := l.AppendAll(t.Context(), home, r.RunID, []Request{r}, AppendOptions{With: with}); err != nil {
			t.Fatal(err)
		}
		if n := l.limited.full.Len(); n != 0 {
			t.Errorf("%s: slots of %d limits count as full", what, n)
		}
	}
}
