package upkeep

import (
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// The export format that this version writes, and the only one it reads.
const (
	exportFormat  = "stepwell run"
	exportVersion = 1
)

// Record is one item of an exported run; exactly one field is set. The order is: the run; its events; each stream,
// followed by its chunks; the end.
type Record struct {
	Run    *RunRecord    `json:"run,omitempty"`
	Event  *EventRecord  `json:"event,omitempty"`
	Stream *StreamRecord `json:"stream,omitempty"`
	Chunk  *ChunkRecord  `json:"chunk,omitempty"`
	// End lets a reader detect a file that was cut off between two records.
	End *RunSize `json:"end,omitempty"`
}

// RunRecord has the format and the facts about a run that are in none of its events.
type RunRecord struct {
	Format  string           `json:"format"`
	Version int              `json:"version"`
	ID      entities.RunID   `json:"id"`
	Project entities.Project `json:"project"`
}

// EventRecord is an [entities.Event] of the run, of which the ID is in the [RunRecord].
type EventRecord struct {
	RunID         entities.RunID     `json:"-"`
	Seq           int64              `json:"seq"`
	Type          entities.EventType `json:"type"`
	CorrelationID string             `json:"correlationId,omitempty"`
	SpecVersion   int                `json:"specVersion"`
	CreatedAt     time.Time          `json:"createdAt"`
	OccurredAt    *time.Time         `json:"occurredAt,omitempty"`
	Data          entities.EventData `json:"data"`
	// Extra and Payload are base64, or null if the event has none.
	Extra   []byte `json:"extra"`
	Payload []byte `json:"payload"`
}

// StreamRecord is a stream of the run.
type StreamRecord struct {
	Name      entities.StreamName `json:"name"`
	Chunks    int64               `json:"chunks"`
	CreatedAt time.Time           `json:"createdAt"`
	ClosedAt  *time.Time          `json:"closedAt,omitempty"`
}

// ChunkRecord is the next chunk of the stream before it.
type ChunkRecord struct {
	Data []byte `json:"data"`
}

// RunSize counts what a run has. Events and streams only grow, so a run whose size is unchanged is unchanged.
type RunSize struct {
	// LastSeq is the position of the last event.
	LastSeq int64 `json:"lastSeq"`
	// Streams counts the streams, Closed the closed ones among them, and Chunks the chunks of all of them.
	Streams int64 `json:"streams"`
	Closed  int64 `json:"closed"`
	Chunks  int64 `json:"chunks"`
}

func (s *RunSize) add(stream store.Stream) {
	s.Streams++
	s.Chunks += stream.Chunks
	if stream.ClosedAt != nil {
		s.Closed++
	}
}
