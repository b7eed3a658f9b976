package eventlog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog/blob"
)

// Large payloads are kept outside of the database. They are written before the append begins, when it holds no lock and
// no connection, and the statement that inserts their events claims them: see package blob. A decision has the payloads
// themselves; only that statement has references instead.

// blobKey identifies a payload of a run by its first byte.
type blobKey struct {
	run   entities.RunID
	first *byte
}

// blobs are the payloads of a call that are kept outside of the database.
type blobs map[blobKey]blob.Reference

// of returns the reference to the payload of an event; zero if there is none.
func (b blobs) of(e *entities.Event) (ref blob.Reference) {
	if len(e.Payload) == 0 {
		return ref
	}
	return b[blobKey{e.RunID, &e.Payload[0]}]
}

// has reports whether there is a reference to the payload of an event.
func (b blobs) has(e entities.Event) bool { return b.of(&e) != blob.Reference{} }

// with returns these and others.
func (b blobs) with(others blobs) blobs {
	switch {
	case len(others) == 0:
		return b
	case len(b) == 0:
		return others
	}
	all := maps.Clone(b)
	maps.Copy(all, others)
	return all
}

// WithBlobs keeps the large payloads of events in a store.
func WithBlobs(s *blob.Store) Option { return func(l *Log) { l.blobs = s } }

// putBlobs writes the large payloads of requests, and adds their references to the call.
func (l *Log) putBlobs(ctx context.Context, c *call, requests []Request) error {
	var list []blob.Payload
	for i := range requests {
		list = l.addLarge(list, &requests[i], c.runID)
	}
	if len(list) == 0 {
		return nil
	}
	refs, err := l.blobs.Put(ctx, c.project, list)
	if err != nil {
		return err
	}
	added := make(blobs, len(list))
	for i, p := range list {
		added[blobKey{p.Run, &p.Bytes[0]}] = refs[i]
	}
	c.blobs = c.blobs.with(added)
	return nil
}

// addLarge adds the payloads of a request, and of the runs that it begins, that are kept outside of the database.
func (l *Log) addLarge(list []blob.Payload, r *Request, run entities.RunID) []blob.Payload {
	add := func(t entities.EventType, correlationID string, payload []byte) {
		if l.blobs.Keeps(len(payload)) && !staysInside(t, correlationID) {
			list = append(list, blob.Payload{Run: run, Bytes: payload})
		}
	}
	add(r.Type, r.CorrelationID, r.Payload)
	if r.First != nil {
		add(entities.EventStepFailed, r.CorrelationID, r.First.Payload)
	}
	for _, e := range r.Kept {
		add(e.Type, e.CorrelationID, e.Payload)
	}
	if r.Child != nil {
		list = l.addLarge(list, r.Child, r.Child.RunID)
	}
	if r.Continue != nil {
		list = l.addLarge(list, &r.Continue.Next, r.Continue.Next.RunID)
	}
	return list
}

// staysInside reports whether the payload of an event is read in transactions: values of stores, of which there are
// rows, and messages of inboxes, which a run that continues takes over.
func staysInside(t entities.EventType, correlationID string) bool {
	return t == entities.EventStoreSet || strings.HasPrefix(correlationID, string(inbox.HookID("")))
}

// claimed returns the references of the events.
func (d *decision) claimed() (refs []blob.Reference) {
	if len(d.blobs) == 0 {
		return nil
	}
	for i := range d.events {
		if ref := d.blobs.of(&d.events[i]); ref != (blob.Reference{}) && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// keep has the decision, and those about runs that it begins, written with references to payloads.
func (d *decision) keep(b blobs) {
	if d.blobs = b; b == nil {
		return
	}
	for i := range d.children {
		d.children[i].blobs = b
	}
	if d.next != nil {
		d.next.blobs = b
	}
}

// discardLimit is how long an append waits until what it has not used is deleted. What is left, the sweeper deletes.
const discardLimit = 5 * time.Second

// discardBlobs deletes the payloads of a call that its decision has not written.
func (l *Log) discardBlobs(ctx context.Context, c call, d decision) {
	if len(c.blobs) == 0 {
		return
	}
	unused := maps.Clone(c.blobs)
	written := append([]decision{d}, d.children...)
	if d.next != nil {
		written = append(written, *d.next)
	}
	for _, of := range written {
		for _, ref := range of.claimed() {
			maps.DeleteFunc(unused, func(_ blobKey, other blob.Reference) bool { return other == ref })
		}
	}
	if len(unused) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardLimit)
	defer cancel()
	_ = l.blobs.Discard(ctx, c.project, slices.Collect(maps.Values(unused)))
}
