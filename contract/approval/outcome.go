package approval

import (
	"encoding/json"
	"time"
)

// The results that an [Outcome] may have.
const (
	Approved = "approved"
	Rejected = "rejected"
	Expired  = "expired"
)

// Outcome is what people have decided, or that they have not in time.
type Outcome struct {
	// Decision is one of the constants above.
	Decision string
	// By are the names of those who have decided: all who approved, or the one who rejected.
	By []string
}

// Question is what is known of a hook that may ask for a decision.
type Question struct {
	// Metadata and Received are the payloads of its events: an approval's votes, or the answer to a question.
	Metadata json.RawMessage
	Received []json.RawMessage
	// Closed is when the run closed it; zero if it has not. Over says that the wait that limits its time is over.
	Closed time.Time
	Over   bool
}

// Outcome returns what has been decided; nil if nothing has, or if the hook asks for no decision. A hook asks for one
// if it is an approval, or if its metadata has a question and it receives {"approved": true} or false, as from the Go
// SDK.
func (q Question) Outcome() *Outcome {
	var m struct {
		Approval  *Settings
		Question  string
		ExpiresAt time.Time
	}
	if json.Unmarshal(q.Metadata, &m) != nil {
		return nil
	}
	decided, late := (*Outcome)(nil), q.Over
	switch {
	case m.Approval != nil:
		decided = q.count(*m.Approval)
	case m.Question != "":
		decided = q.answer()
		late = len(q.Received) == 0 && !m.ExpiresAt.IsZero() && !q.Closed.Before(m.ExpiresAt)
	default:
		return nil
	}
	if decided == nil && late {
		return &Outcome{Decision: Expired}
	}
	return decided
}

// count counts the votes of an approval.
func (q Question) count(s Settings) *Outcome {
	var t Tally
	for _, vote := range q.Received {
		switch decided, ok := t.Add(s, vote); {
		case ok && decided == Reject:
			return &Outcome{Rejected, []string{t.Votes[len(t.Votes)-1].By}}
		case ok:
			o := Outcome{Decision: Approved}
			for _, v := range t.Votes {
				o.By = append(o.By, v.By)
			}
			return &o
		}
	}
	return nil
}

// answer reads the first answer to a question; nil if it is none.
func (q Question) answer() *Outcome {
	var a struct {
		Approved *bool
		By       string
	}
	if len(q.Received) == 0 || json.Unmarshal(q.Received[0], &a) != nil || a.Approved == nil {
		return nil
	}
	o := Outcome{Decision: Rejected}
	if *a.Approved {
		o.Decision = Approved
	}
	if a.By != "" {
		o.By = []string{a.By}
	}
	return &o
}
