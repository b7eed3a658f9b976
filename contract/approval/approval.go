// Package approval decides about approvals: who may vote, whether a vote is complete, and what the votes amount to. An
// approval is a hook whose metadata has its settings; each vote is a payload that the hook receives.
package approval

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/schema"
)

const (
	// MaxQuorum limits how many votes an approval may need.
	MaxQuorum = 100
	// MaxVoters limits the names and roles that may vote.
	MaxVoters = 100
	// rolePrefix begins the roles among those who may vote.
	rolePrefix = "role:"
	// tokenPrefix begins the tokens of approvals' hooks, by which servers know them without reading their metadata.
	tokenPrefix = "approval_"
	// keyPrefix begins the IDs of API keys. They are the names of those who vote without another one.
	keyPrefix  = "key_"
	maxComment = 4096
	maxTitle   = 1024
)

// NewToken returns an unguessable token for the hook of an approval.
func NewToken() string { return tokenPrefix + rand.Text() }

// IsToken reports whether the hook with a token may be an approval.
func IsToken(token string) bool { return strings.HasPrefix(token, tokenPrefix) }

// Settings are those of an approval.
type Settings struct {
	// Title says what is to be approved.
	Title string `json:"title"`
	// By are the names, and as "role:NAME" the roles, of those who may vote; empty for everybody with a key.
	By []string `json:"by,omitempty"`
	// Quorum is how many approvals are needed; 0 for one.
	Quorum int `json:"quorum,omitempty"`
	// DistinctKeys says that each API key has one vote, whatever names it gives: a key that may vote for two names is
	// no quorum of two.
	DistinctKeys bool `json:"distinctKeys,omitempty"`
	// Form is the JSON Schema of what an approval comes with; nil for nothing in particular.
	Form json.RawMessage `json:"form,omitempty"`
}

// Metadata is the metadata of an approval's hook.
type Metadata struct {
	Approval *Settings `json:"approval"`
}

// Validate fails with [entities.ErrInvalid] if the settings are.
func (s Settings) Validate() error {
	if s.Quorum < 0 || s.Quorum > MaxQuorum {
		return entities.Invalid("quorum %d is not from 1 to %d", s.Quorum, MaxQuorum)
	}
	if len(s.By) > MaxVoters {
		return entities.Invalid("%d names and roles; the limit is %d", len(s.By), MaxVoters)
	}
	if err := s.validateVoters(); err != nil {
		return err
	}
	if err := entities.ValidateText("title", s.Title, maxTitle); err != nil {
		return err
	}
	if s.Form != nil {
		if _, err := schema.Compile(s.Form); err != nil {
			return entities.Invalid("form is not a JSON Schema: %v", err)
		}
	}
	return nil
}

// validateVoters validates those who may vote. There must be enough of them, unless a role may vote, which any number
// of names may have.
func (s Settings) validateVoters() error {
	roles := false
	for i, name := range s.By {
		bare, isRole := strings.CutPrefix(name, rolePrefix)
		if err := entities.ValidateName("by", bare); err != nil {
			return err
		}
		if slices.ContainsFunc(s.By[:i], func(other string) bool { return Voter(other) == Voter(name) }) {
			return entities.Invalid("by has %q twice", name)
		}
		roles = roles || isRole
	}
	if n := len(s.By); n > 0 && !roles && s.Quorum > n {
		return entities.Invalid("quorum %d is more than the %d who may vote", s.Quorum, n)
	}
	return nil
}

// Decision is what somebody votes.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Reject  Decision = "reject"
)

// Vote is a vote as it is in the log.
type Vote struct {
	Decision Decision `json:"decision"`
	// By is the name of who votes, and Key is the API key that has sent the vote, and so answers for the name.
	By      string          `json:"by"`
	Key     string          `json:"key"`
	Comment string          `json:"comment,omitempty"`
	Form    json.RawMessage `json:"form,omitempty"`
}

// Ballot is a vote as it is sent.
type Ballot struct {
	Decision Decision `json:"decision"`
	// As is the name of who votes; empty for the key's. Roles are those that the sender vouches for.
	As      string          `json:"as"`
	Roles   []string        `json:"roles"`
	Comment string          `json:"comment"`
	Form    json.RawMessage `json:"form"`
}

// ErrNotAllowed refuses the vote of somebody who may not vote.
var ErrNotAllowed = errors.New("this approval is for others")

// ErrKeyVoted refuses a second vote of an API key where [Settings.DistinctKeys] is set.
var ErrKeyVoted = errors.New(
	"this API key has voted on this approval, which counts one vote of each key: let another key vote")

// ErrVoted refuses another vote of a name that has voted.
var ErrVoted = errors.New("this name has voted on this approval already, and differently: a vote stands")

// Voted returns why there is no second vote: it is one of the same key or of the same name.
func (s Settings) Voted() error {
	if s.DistinctKeys {
		return ErrKeyVoted
	}
	return ErrVoted
}

// ErrOver refuses a vote on an approval for which nobody waits any more.
var ErrOver = errors.New("this approval is decided, or its run does not wait for it any more: the vote does not count")

// Vote returns the vote for the log that a client with a key sends. It fails with [entities.ErrInvalid], with
// [ErrNotAllowed], and with the errors of [schema.Schema.Check] if an approval's form does not fit.
func (s Settings) Vote(b Ballot, key string, stopped func() error) (Vote, error) {
	v := Vote{Decision: b.Decision, By: cmp.Or(b.As, key), Key: key, Comment: b.Comment, Form: b.Form}
	if v.Decision != Approve && v.Decision != Reject {
		return v, entities.Invalid("decision %q is neither %s nor %s", b.Decision, Approve, Reject)
	}
	if err := entities.ValidateName("as", v.By); err != nil {
		return v, err
	}
	if strings.Join(strings.Fields(v.By), " ") != v.By {
		return v, entities.Invalid("as %q has spaces at its ends, or several in a row", v.By)
	}
	if strings.HasPrefix(Voter(v.By), keyPrefix) && v.By != key {
		return v, fmt.Errorf(`%w: "as" is the ID of another API key, which votes for itself`, ErrNotAllowed)
	}
	if v.Comment != "" {
		if err := entities.ValidateText("comment", v.Comment, maxComment); err != nil {
			return v, err
		}
	}
	if !s.allows(v.By, b.Roles) {
		return v, fmt.Errorf("%w: %s may vote: give that name as \"as\", or a role in \"roles\"",
			ErrNotAllowed, strings.Join(s.By, ", "))
	}
	if s.Form == nil || v.Decision == Reject {
		return v, nil
	}
	form, err := schema.Compile(s.Form)
	if err != nil {
		return v, entities.Invalid("form is not a JSON Schema: %v", err)
	}
	return v, form.Check(b.Form, stopped)
}

// Voter returns what names have in common that are the same voter's: upper and lower case are one.
func Voter(name string) string { return strings.ToLower(name) }

// Once returns what only one vote on an approval may have: the name of the voter, or the key if keys must be distinct.
func (s Settings) Once(v Vote) string {
	if s.DistinctKeys {
		return v.Key
	}
	return Voter(v.By)
}

func (s Settings) allows(name string, roles []string) bool {
	return len(s.By) == 0 || slices.Contains(s.By, name) ||
		slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(s.By, rolePrefix+role) })
}

// Asks reports whether the approval waits for somebody with one of the names, and as "role:NAME" the roles: they may
// vote on it, and no such name has voted.
func (s Settings) Asks(names []string, t Tally) bool {
	return (len(s.By) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.By, name) })) &&
		!slices.ContainsFunc(t.Votes, func(v Vote) bool {
			return slices.ContainsFunc(names, func(name string) bool { return Voter(name) == Voter(v.By) })
		})
}

// Needed returns how many approvals are needed.
func (s Settings) Needed() int { return max(1, s.Quorum) }

// Tally counts the votes of an approval in the order of the log.
type Tally struct {
	Votes []Vote `json:"votes"`
}

// Add counts a vote. The first vote of a name counts, or of a name and a key if keys must be distinct, and what is none
// counts for nothing. It reports whether the approval is decided with it: by the quorum, or by one rejection.
func (t *Tally) Add(s Settings, payload json.RawMessage) (decided Decision, ok bool) {
	var v Vote
	if json.Unmarshal(payload, &v) != nil || v.Decision != Approve && v.Decision != Reject {
		return "", false
	}
	if slices.ContainsFunc(t.Votes, func(earlier Vote) bool {
		return Voter(earlier.By) == Voter(v.By) || s.DistinctKeys && earlier.Key == v.Key
	}) {
		return "", false
	}
	t.Votes = append(t.Votes, v)
	return v.Decision, v.Decision == Reject || len(t.Votes) >= s.Needed()
}
