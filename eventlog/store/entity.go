package store

// The index that finds the events of a step, hook or wait leaves out their positions and types. If a query sorts them
// by seq itself, Postgres may rather read the whole log of the run in that order; and if it compares type, all events
// of that type. These expressions have no index.
const (
	// BySeq orders the events of an entity.
	BySeq = `seq + 0`
	// OfType is the type of an event of an entity, for comparisons.
	OfType = `type COLLATE "C"`
)
