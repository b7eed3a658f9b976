package approval

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/schema"
)

// TestVotes: a vote is refused unless its voter is allowed, by name or role, and its form fits.
func TestVotes(t *testing.T) {
	t.Parallel()
	settings := Settings{
		Title: "Order 7", By: []string{"anna", "role:finance"},
		Form: json.RawMessage(`{"type":"object","required":["amount","why"],"properties":{"amount":{"type":"number"}}}`),
	}
	if err := settings.Validate(); err != nil {
		t.Fatal(err)
	}
	good := json.RawMessage(`{"amount":1,"why":"x"}`)
	for name, test := range map[string]struct {
		ballot Ballot
		want   error
		by     string
	}{
		"by name":              {Ballot{Decision: Approve, As: "anna", Form: good}, nil, "anna"},
		"by role":              {Ballot{Decision: Approve, As: "bob", Roles: []string{"finance"}, Form: good}, nil, "bob"},
		"the key itself":       {Ballot{Decision: Approve, Roles: []string{"finance"}, Form: good}, nil, "key_1"},
		"a rejection, no form": {Ballot{Decision: Reject, As: "anna"}, nil, "anna"},
		"somebody else":        {Ballot{Decision: Approve, As: "bob", Form: good}, ErrNotAllowed, ""},
		"a role as a name":     {Ballot{Decision: Approve, As: "finance", Form: good}, ErrNotAllowed, ""},
		"no form":              {Ballot{Decision: Approve, As: "anna"}, schema.ErrViolations, ""},
		"a wrong form":         {Ballot{Decision: Approve, As: "anna", Form: json.RawMessage(`{"amount":"1"}`)}, schema.ErrViolations, ""},
		"no decision":          {Ballot{As: "anna"}, entities.ErrInvalid, ""},
		"the key by its ID":    {Ballot{Decision: Approve, As: "key_1", Roles: []string{"finance"}, Form: good}, nil, "key_1"},
		"another key":          {Ballot{Decision: Approve, As: "KEY_2", Roles: []string{"finance"}, Form: good}, ErrNotAllowed, ""},
		"a name with a space":  {Ballot{Decision: Approve, As: "bob ", Roles: []string{"finance"}, Form: good}, entities.ErrInvalid, ""},
		"a name with two":      {Ballot{Decision: Approve, As: "bob\u00a0 b", Roles: []string{"finance"}, Form: good}, entities.ErrInvalid, ""},
		"a name of no text":    {Ballot{Decision: Approve, As: "a\x00"}, entities.ErrInvalid, ""},
	} {
		v, err := settings.Vote(test.ballot, "key_1", t.Context().Err)
		if !errors.Is(err, test.want) || err == nil && (v.By != test.by || v.Key != "key_1") {
			t.Errorf("%s: got %+v, %v; want by %q, %v", name, v, err, test.by, test.want)
		}
	}
	_, err := settings.Vote(Ballot{Decision: Approve, As: "anna", Form: json.RawMessage(`{"amount":"1"}`)}, "key_1", t.Context().Err)
	if violations := (schema.Violations)(nil); !errors.As(err, &violations) || len(violations) != 2 {
		t.Errorf("got %v, want both violations", err)
	}
}

// TestSettingsAreValidated names what is refused.
func TestSettingsAreValidated(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Settings{
		"no title": {}, "quorum": {Title: "t", Quorum: MaxQuorum + 1}, "negative": {Title: "t", Quorum: -1},
		"voters": {Title: "t", By: make([]string, MaxVoters+1)}, "empty voter": {Title: "t", By: []string{"role:"}},
		"a name twice":          {Title: "t", By: []string{"anna", "bob", "Anna"}},
		"a role twice":          {Title: "t", By: []string{"role:a", "role:a"}},
		"more votes than names": {Title: "t", By: []string{"anna", "bob"}, Quorum: 3},
		"form":                  {Title: "t", Form: json.RawMessage(`{"type":7}`)},
	} {
		if err := s.Validate(); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestQuorumNeedsVoters: as many as it asks for may vote, or any number.
func TestQuorumNeedsVoters(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Settings{
		"everybody": {Title: "t", Quorum: 3}, "a role": {Title: "t", Quorum: 3, By: []string{"anna", "role:a"}},
		"all of them": {Title: "t", Quorum: 2, By: []string{"anna", "bob"}}, "one by default": {Title: "t", By: []string{"anna"}},
		"a role and its name": {Title: "t", By: []string{"a", "role:a"}},
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestAsks: an approval waits for those who may vote, by a name or a role, until they have voted.
func TestAsks(t *testing.T) {
	t.Parallel()
	named := Settings{By: []string{"anna", "role:finance"}}
	voted := Tally{Votes: []Vote{{Decision: Approve, By: "Anna"}}}
	for _, test := range []struct {
		settings Settings
		votes    Tally
		names    []string
		want     bool
	}{
		{named, Tally{}, []string{"anna"}, true},
		{named, Tally{}, []string{"bob", "role:finance"}, true},
		{named, Tally{}, []string{"bob", "finance"}, false},
		{named, Tally{}, []string{"Anna"}, false}, // who may not vote by this name either
		{named, voted, []string{"anna", "role:finance"}, false},
		{named, voted, []string{"zoe", "role:finance"}, true},
		{Settings{}, Tally{}, []string{"bob"}, true},
		{Settings{}, voted, []string{"ANNA"}, false},
	} {
		if got := test.settings.Asks(test.names, test.votes); got != test.want {
			t.Errorf("by %v, votes %v: for %v got %v", test.settings.By, test.votes.Votes, test.names, got)
		}
	}
}
