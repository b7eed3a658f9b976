package model

// Message is a message that was accepted and not acknowledged.
type Message struct {
	ID, Topic, Body string
	// Delayed is over at the latest when the message is delivered.
	Delayed bool
	// Handle is that of the lease; empty while there is none, and the message is to be delivered.
	Handle string
	Count  int // of its deliveries
	Acked  bool
}

// Stream is an append-only list of chunks (§4).
type Stream struct {
	Chunks []string
	Done   bool
}

// send is §5.1: of messages with one key, topic and deployment the first counts, also when it is acknowledged.
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

// lease is §5.4 and §5.5: whoever is handed the message has it alone, and shows its handle to keep it, to give it
// back, or to end it. A handle that is not that of the lease is nothing any more.
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
		m.Handle = "" // given back
	}
	w.Messages[m.ID] = m
	return Answer{Status: 204}
}

// leased is the message whose lease has the handle.
func (w *World) leased(handle string) Message {
	for _, m := range w.Messages {
		if m.Handle == handle && handle != "" {
			return m
		}
	}
	return Message{}
}

// write is §4: what comes after the close is ignored, and so is a chunk with nothing in it.
func (w *World) write(r Request) Answer {
	s := w.Streams[r.Stream]
	if !s.Done {
		s.Chunks, s.Done = append(s.Chunks, r.Chunks...), r.Done
		put(&w.Streams, r.Stream, s)
	}
	return Answer{Status: 204}
}
