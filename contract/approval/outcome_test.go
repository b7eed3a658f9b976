package approval

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOutcomes: an approval is decided by its quorum or by one rejection, a question by its first answer, and either by
// the end of its time.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	const two, one = `{"approval":{"title":"t","quorum":2}}`, `{"approval":{"title":"t"}}`
	const question, until = `{"question":"May I?"}`, `{"question":"May I?","expiresAt":"2026-11-21T12:00:00Z"}`
	vote := func(decision, by string) string { return `{"decision":"` + decision + `","by":"` + by + `"}` }
	for name, test := range map[string]struct {
		metadata string
		received []string
		closed   time.Time
		over     bool
		want     *Outcome
	}{
		"a quorum":                        {two, []string{vote("approve", "anna"), vote("approve", "bob")}, noon, false, &Outcome{Approved, []string{"anna", "bob"}}},
		"less than a quorum":              {two, []string{vote("approve", "anna"), vote("approve", "Anna")}, noon, false, nil},
		"a rejection after an approval":   {two, []string{vote("approve", "anna"), vote("reject", "bob")}, noon, false, &Outcome{Rejected, []string{"bob"}}},
		"a vote before the end":           {one, []string{vote("approve", "anna")}, noon, true, &Outcome{Approved, []string{"anna"}}},
		"votes that were too few in time": {two, []string{vote("approve", "anna")}, noon, true, &Outcome{Decision: Expired}},
		"an answer":                       {question, []string{`{"approved":true,"by":"anna"}`, `{"approved":false}`}, noon, false, &Outcome{Approved, []string{"anna"}}},
		"a refusal by nobody":             {question, []string{`{"approved":false}`}, noon, false, &Outcome{Decision: Rejected}},
		"an answer that decides nothing":  {until, []string{`{"limit":100}`}, noon, false, nil},
		"a question without an answer":    {until, nil, noon, false, &Outcome{Decision: Expired}},
		"one that was closed before":      {until, nil, noon.Add(-1), false, nil},
		"one that is open":                {until, nil, time.Time{}, false, nil},
		"no question":                     {`{"expiresAt":"2026-11-21T12:00:00Z"}`, []string{`{"approved":true}`}, noon, true, nil},
		"no object":                       {`7`, []string{`{"approved":true}`}, noon, true, nil},
	} {
		q := Question{Metadata: json.RawMessage(test.metadata), Closed: test.closed, Over: test.over}
		for _, p := range test.received {
			q.Received = append(q.Received, json.RawMessage(p))
		}
		if diff := cmp.Diff(test.want, q.Outcome()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
