package engine

// order yields the events of a log in the order in which they are delivered; see the package comment.
type order struct {
	world    []*Event // in the order of the log
	recorded []*Event // results of inline operations, in the order of the log
	seen     int64    // position of the last world event that was yielded
}

// add appends events of the log that are delivered.
func (o *order) add(e *Event) {
	if e.Data.IsRecorded() {
		o.recorded = append(o.recorded, e)
	} else {
		o.world = append(o.world, e)
	}
}

// next returns the next event to deliver, or false if all have been delivered.
func (o *order) next() (e *Event, ok bool) {
	switch {
	case len(o.recorded) > 0 && (len(o.world) == 0 || o.world[0].Seq > o.recorded[0].Data.Seen):
		e, o.recorded = o.recorded[0], o.recorded[1:]
	case len(o.world) > 0:
		e, o.world = o.world[0], o.world[1:]
		o.seen = e.Seq
	default:
		return nil, false
	}
	return e, true
}

// empty reports whether all events have been delivered.
func (o *order) empty() bool { return len(o.world) == 0 && len(o.recorded) == 0 }
