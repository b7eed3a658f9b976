package model

// Message is an accepted message.
type Message struct {
	ID, Topic, Body string
	// Delayed is set until the delay has passed or the message is delivered.
	Delayed bool
	// Handle is the receipt handle of the lease. It is empty while the message is not leased and must be delivered.
	Handle string
	Count  int // of its deliveries
	Acked  bool
}

// Stream is an append-only list of chunks (§4).
type Stream struct {
	Chunks []string
	Done   bool
}

// send is §5.1: of the messages with the same key, topic and deployment only the first counts, even after its
// acknowledgement.
func (w *World) send(r Request) Answer {
	key := r.Topic + " " + r.Deployment + " " + r.Key
	if first, ok := w.Keys[key]; ok && r.Key != "" {
		return Answer{Status: 201, ID: first}
	}
	if r.Key != "" {
		put(&w.Keys, key, r.ID)
	}
	put(&w.Messages, r.ID, Message{ID: r.ID, Topic: r.Topic, Body: r.Body, Delayed: r.Seconds > 0})
	return Answer{Status: 201, ID: r.ID}
}

// lease is §5.4 and §5.5: a delivery leases the message. The handle of the lease extends it, releases it, or
// acknowledges the message. Handles of earlier leases are invalid.
func (w *World) lease(r Request) Answer {
	m := w.Messages[r.ID]
	if r.Op != Deliver {
		m = w.leased(r.Handle)
	}
	switch {
	case r.Op == Deliver && (m.ID == "" || m.Acked || m.Topic != r.Topic):
		return missing("message")
	case r.Op == Deliver && (m.Handle != "" || m.Delayed):
		return conflict
	case r.Op == Deliver:
		m.Handle, m.Count = r.Handle, m.Count+1
		w.Messages[m.ID] = m
		return Answer{Status: 200, ID: m.ID, Handle: m.Handle, Body: m.Body, Count: m.Count}
	case m.ID == "" || m.Topic != r.Topic:
		return missing("lease")
	case r.Op == Ack:
		m.Handle, m.Acked = "", true
	case r.Seconds == 0:
		m.Handle = "" // released
	}
	w.Messages[m.ID] = m
	return Answer{Status: 204}
}

// leased returns the message that is leased with the handle.
func (w *World) leased(handle string) Message {
	for _, m := range w.Messages {
		if m.Handle == handle && handle != "" {
			return m
		}
	}
	return Message{}
}

// write is §4: chunks after the close are ignored, and so are empty chunks.
func (w *World) write(r Request) Answer {
	s := w.Streams[r.Stream]
	if !s.Done {
		s.Chunks, s.Done = append(s.Chunks, r.Chunks...), r.Done
		put(&w.Streams, r.Stream, s)
	}
	return Answer{Status: 204}
}
