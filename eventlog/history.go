package eventlog

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// history has events of a run's log by their correlation ID, in order: those that say of a hook, a step, or a command
// what its row, if there is one, does not. A log has few of them with one ID.
type history map[string][]pastEvent

type pastEvent struct {
	Type entities.EventType
	Data *entities.EventData
}

// needsHistory reports whether the decision on the request depends on the history of its correlation ID.
func (r *Request) needsHistory() bool {
	switch r.Type {
	case entities.EventHookCreated, entities.EventHookReceived, entities.EventAttrSet:
		return true
	case entities.EventHookDisposed:
		return r.Once
	case entities.EventStoreSet:
		return r.isStoreCommand()
	case entities.EventStepFailed:
		return r.Data.Cancelled // the step may be a child run
	default:
		return false
	}
}

// load queues a read of the history of a correlation ID.
func (h history) load(b *pgx.Batch, runID entities.RunID, id string) {
	pg.LoadEach(b, func(e pastEvent) { h[id] = append(h[id], e) }, `
		SELECT type, data FROM events WHERE `+ofEntity+` AND (
			`+store.OfType+` IN ('hook_created', 'hook_conflict', 'hook_disposed', 'attr_set', 'step_created')
			OR `+store.OfType+` = 'store_set' AND data ->> 'stepName' IS NULL)
		ORDER BY `+store.BySeq, runID, id)
}

// note adds an event that is appended by the same call, for later requests of the call.
func (h history) note(e *entities.Event) {
	switch kind := e.Type.Kind(); {
	case h == nil || e.CorrelationID == "":
	case kind == entities.KindHook && e.Type != entities.EventHookReceived, e.Type == entities.EventAttrSet,
		e.Type == entities.EventStoreSet && e.Data.StepName == "",
		e.Type == entities.EventStepCreated && e.Data.Step != nil:
		data := e.Data // alone, since the event is large
		h[e.CorrelationID] = append(h[e.CorrelationID], pastEvent{e.Type, &data})
	}
}

// first returns the first event of one of the types with the correlation ID, or nil.
func (h history) first(id string, types ...entities.EventType) *pastEvent {
	if i := slices.IndexFunc(h[id], func(e pastEvent) bool { return slices.Contains(types, e.Type) }); i >= 0 {
		return &h[id][i]
	}
	return nil
}

// claims reports whether an event has used up the ID of a hook or of a change of attributes. It may have left no row.
func (h history) claims(id string) bool {
	return h.first(id, entities.EventHookCreated, entities.EventHookConflict, entities.EventAttrSet) != nil
}
