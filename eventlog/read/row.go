package read

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
)

// Row is an event of a list. It has the fields of [entities.Event], in a fifth of its memory: rows of one list share
// their data, which must not be changed.
type Row struct {
	RunID         entities.RunID
	Seq           int64
	Type          entities.EventType
	CorrelationID string
	SpecVersion   int
	CreatedAt     time.Time
	OccurredAt    time.Time // zero if the writer sent none
	Data          *entities.EventData
	Extra         []byte
	Payload       []byte
}

// RowOf returns the row of an event, which shares its data.
func RowOf(e *entities.Event) Row {
	r := Row{
		RunID: e.RunID, Seq: e.Seq, Type: e.Type, CorrelationID: e.CorrelationID, SpecVersion: e.SpecVersion,
		CreatedAt: e.CreatedAt, Data: &e.Data, Extra: e.Extra, Payload: e.Payload,
	}
	if e.OccurredAt != nil {
		r.OccurredAt = *e.OccurredAt
	}
	return r
}

// Payloads implements [atrest.Row].
func (r *Row) Payloads(o *atrest.Opener) {
	o.Bytes(atrest.Place{Kind: atrest.Event, Owner: string(r.RunID), Seq: r.Seq}, &r.Payload)
	o.Bytes(atrest.Place{Kind: atrest.Extra, Owner: string(r.RunID), Seq: r.Seq}, &r.Extra)
}

// ID returns the event's public ID.
func (r *Row) ID() entities.EventID { return entities.Event{Seq: r.Seq}.ID() }

// Event returns the event. It shares what the pointers in its data refer to with others.
func (r *Row) Event() entities.Event {
	e := entities.Event{
		RunID: r.RunID, Seq: r.Seq, Type: r.Type, CorrelationID: r.CorrelationID, SpecVersion: r.SpecVersion,
		CreatedAt: r.CreatedAt, Data: *r.Data, Extra: r.Extra, Payload: r.Payload,
	}
	if !r.OccurredAt.IsZero() {
		e.OccurredAt = new(r.OccurredAt)
	}
	return e
}

// RowPage is one page of a log.
type RowPage struct {
	Rows []Row
	// More is set if more events follow.
	More bool
}

// Last returns the position of the last event; 0 if there is none.
func (p RowPage) Last() int64 {
	if n := len(p.Rows); n > 0 {
		return p.Rows[n-1].Seq
	}
	return 0
}

// events returns the page with its events.
func (p RowPage) events() EventPage { return EventPage{eventsOf(p.Rows), p.More} }

func eventsOf(rows []Row) []entities.Event {
	if len(rows) == 0 {
		return nil
	}
	events := make([]entities.Event, len(rows))
	for i := range rows {
		events[i] = rows[i].Event()
	}
	return events
}
