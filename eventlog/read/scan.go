package read

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// eventScanner scans the rows of a list of events, of which a log has thousands. Unlike [pgx.RowToStructByName], it
// uses no reflection, and neither allocates nor decodes again what a row has in common with earlier ones: the run, the
// type and, for most events of a kind, the data.
type eventScanner struct {
	rows         pgx.Rows
	destinations []any

	// The columns of the current row; size and xid are 0 if there are none.
	runID, eventType, correlationID, data pgtype.DriverBytes
	seq, size                             int64
	specVersion                           int
	createdAt, occurredAt                 pgtype.Timestamptz
	extra, payload                        []byte
	xid                                   uint64

	run        entities.RunID // of the last row, as is correlated
	correlated string
	known      knownData
}

// newEventScanner returns a scanner for rows with the columns of [entities.Event], and perhaps size and xid.
func newEventScanner(rows pgx.Rows) (*eventScanner, error) {
	s := &eventScanner{rows: rows}
	columns := map[string]any{
		"run_id": &s.runID, "seq": &s.seq, "type": &s.eventType, "correlation_id": &s.correlationID,
		"spec_version": &s.specVersion, "created_at": &s.createdAt, "occurred_at": &s.occurredAt,
		"data": &s.data, "extra": &s.extra, "payload": &s.payload, "size": &s.size, "xid": &s.xid,
	}
	for _, f := range rows.FieldDescriptions() {
		to, ok := columns[f.Name]
		if !ok {
			return nil, fmt.Errorf("scan events: no column %q is expected", f.Name)
		}
		s.destinations = append(s.destinations, to)
	}
	return s, nil
}

// scan scans the current row.
func (s *eventScanner) scan(r *Row) error {
	if err := s.rows.Scan(s.destinations...); err != nil {
		return err
	}
	if string(s.runID) != string(s.run) {
		s.run = entities.RunID(s.runID)
	}
	data, err := s.known.decode(s.data)
	if err != nil {
		return fmt.Errorf("decode the data of event %d of %s: %w", s.seq, s.run, err)
	}
	if string(s.correlationID) != s.correlated {
		s.correlated = string(s.correlationID)
	}
	*r = Row{
		RunID: s.run, Seq: s.seq, Type: eventType(s.eventType), CorrelationID: s.correlated, SpecVersion: s.specVersion,
		CreatedAt: s.createdAt.Time, Data: data, Extra: s.extra, Payload: s.payload,
	}
	if s.occurredAt.Valid {
		r.OccurredAt = s.occurredAt.Time
	}
	return nil
}

// knownData has data of earlier events by its JSON, so that equal data is decoded once.
type knownData map[string]*entities.EventData

// maxKnown is how many different data are remembered.
const maxKnown = 64

func (k *knownData) decode(text []byte) (*entities.EventData, error) {
	if known, ok := (*k)[string(text)]; ok {
		return known, nil
	}
	data := new(entities.EventData)
	if err := json.Unmarshal(text, data); err != nil {
		return nil, err
	}
	if *k == nil {
		*k = knownData{}
	}
	if len(*k) < maxKnown {
		(*k)[string(text)] = data
	}
	return data, nil
}

// eventTypes has the known types by their names, so that scanning one needs no memory.
var eventTypes = func() map[string]entities.EventType {
	all := make(map[string]entities.EventType, len(entities.EventTypes))
	for _, t := range entities.EventTypes {
		all[string(t)] = t
	}
	return all
}()

func eventType(name []byte) entities.EventType {
	if t, ok := eventTypes[string(name)]; ok {
		return t
	}
	return entities.EventType(name)
}

// CollectEvents collects the rows of a query for events, with the columns [EventColumns] and payload.
// Events may share what the pointers in their data refer to, which must not be changed. It takes the results of Query
// as they are.
func CollectEvents(rows pgx.Rows, err error) ([]entities.Event, error) {
	if err != nil {
		return nil, err
	}
	list, _, err := collectPage(rows, math.MaxInt, math.MaxInt, func(s *eventScanner, r *Row) (int, error) {
		return 0, s.scan(r)
	})
	return eventsOf(list), err
}

// collectPage reads rows of events until there are limit of them, or their sizes reach maxBytes. Either way it tries to
// read one more, to report whether more follow. Scan scans the current row into an item, and returns its size.
func collectPage[T any](
	rows pgx.Rows, limit, maxBytes int, scan func(*eventScanner, *T) (size int, err error),
) (items []T, more bool, err error) {
	items, more, open, err := collectUnopened(rows, limit, maxBytes, scan)
	if err == nil {
		err = open()
	}
	return items, more, err
}

// collectUnopened is [collectPage] for the rows of a batch. The payloads are opened by the function that it returns,
// which is called once the batch has given its connection back.
func collectUnopened[T any](
	rows pgx.Rows, limit, maxBytes int, scan func(*eventScanner, *T) (size int, err error),
) (items []T, more bool, open func() error, err error) {
	defer rows.Close()
	codec := pg.CodecOf(rows)
	open = func() error { return pg.OpenRows(codec, items) }
	var s *eventScanner
	bytes := 0
	for rows.Next() {
		if s == nil { // rows that have ended no longer have their connection, which knows the columns
			if s, err = newEventScanner(rows); err != nil {
				return nil, false, open, err
			}
		}
		if len(items) == limit || bytes >= maxBytes {
			more = true
			break
		}
		if len(items) == cap(items) { // items are large: few steps, so that few are copied
			items = slices.Grow(items, min(7*len(items)+16, limit-len(items)))
		}
		items = items[:len(items)+1]
		size, err := scan(s, &items[len(items)-1])
		if err != nil {
			return nil, false, open, err
		}
		bytes += size
	}
	rows.Close()
	return items, more, open, rows.Err()
}
