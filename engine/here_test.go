package engine

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestExchangeHere: the answer has the events that follow the position, as often as it is asked for. A call that is over
// is refused.
func TestExchangeHere(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := idleServer(t, dsn)
	b := cachingServerOn(t, gate.Open(t, dsn, home.pool, nil), home)
	m := b.prepareInvoked(t, home)
	body := []byte(`{"commands":[{"type":"recordStep","id":"x","output":"<é>"},{"type":"recordStep","id":"y","output":2}]}`)
	for range 2 {
		got, err := b.runs.ExchangeHere(t.Context(), callOf(m.run.ID, m.invocation.Lease), m.run.LastSeq, body)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Seq    int64
			Events []json.RawMessage
		}
		if err := json.Unmarshal(got, &answer); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		var want []json.RawMessage
		page, err := b.log.Events(t.Context(), project, m.run.ID, pg.Page{
			Limit: 100, Cursor: read.EventCursorAt(m.run.LastSeq),
		}, read.WithPayloads)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Events {
			shown := view.Of(&page.Events[i])
			text, err := new(view.Encoder).Append(nil, &shown)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, text)
		}
		if len(want) < 3 || answer.Seq != m.run.LastSeq+int64(len(want)) || len(answer.Events) != len(want) {
			t.Fatalf("got %s, want up to %s", got, want)
		}
		for i := range want {
			if string(answer.Events[i]) != string(want[i]) {
				t.Errorf("event %d is %s, want %s", i, answer.Events[i], want[i])
			}
		}
	}
	over := callOf(m.run.ID, "another")
	if _, err := b.runs.ExchangeHere(t.Context(), over, m.run.LastSeq, body); !errors.Is(err, message.ErrStale) {
		t.Errorf("a call that is over: got error %v", err)
	}
	if _, err := encodeAfter(3, []eventlog.Result{{}}); err == nil {
		t.Error("what is not at hand was answered")
	}
}
