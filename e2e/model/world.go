package model

import (
	"maps"
	"slices"
)

// World is everything there is. The zero World is empty.
type World struct {
	Runs     map[string]*History
	Messages map[string]Message // by their ID
	Keys     map[string]string  // from idempotency keys, with what they are scoped by, to the IDs of messages
	Streams  map[string]Stream
}

// The kinds of requests.
const (
	Post    = "post"    // one event
	Batch   = "batch"   // several events of one run
	ReadLog = "log"     // read a run's events
	ByToken = "token"   // read the hook that holds a token
	Send    = "send"    // a message
	Deliver = "deliver" // a message is handed to a function, by a worker or because it asks for it
	Extend  = "extend"  // change the visibility of a leased message
	Ack     = "ack"     // acknowledge a leased message
	Write   = "write"   // append chunks to a stream, and perhaps close it
	Read    = "read"    // read a stream
)

// Request is one request. Which fields count depends on Op. All times are the server's clock in milliseconds, and
// 0 is no time.
type Request struct {
	Op     string
	Now    int64
	Run    string
	Spec   int // the protocol version the client announces
	Events []Event

	Skip    bool // run_started: leave the log out of the answer
	Frames  bool // run_started: answer with the log alone
	Since   int  // answer with the events after this position, also of a read; 0 for not
	MaxSlot int  // the last position the client knows; 0 when it does not say

	Topic, Deployment, Key, Body string // of a message
	ID, Handle                   string // of a message and its lease; those the server makes are known afterwards
	Seconds                      int    // a delay, or a visibility

	Stream string
	Chunks []string
	Done   bool
}

// Answer is what a request is answered with, and nothing of how that is encoded.
type Answer struct {
	Status, RetryAfter int
	Code               string // of an error
	Event              *Event
	Run                *Run
	Step               *Step
	Hook               *Hook
	Wait               *Wait
	StepCreated        bool
	Events             []Event
	Items              []Answer // of a batch

	ID, Handle, Body string // of a message
	Count            int    // of its deliveries
	Chunks           []string
	Done             bool
}

// Refusals.
var (
	invalid  = Answer{Status: 400, Code: "invalid_request"}
	conflict = Answer{Status: 409, Code: "conflict"}
	over     = Answer{Status: 410, Code: "run_ended"}
)

func missing(what string) Answer { return Answer{Status: 404, Code: what + "_not_found"} }

// Do answers a request and moves the world on. A refused request leaves it as it is.
func (w *World) Do(r Request) Answer {
	switch r.Op {
	case Post:
		return w.post(r)
	case Batch:
		return w.batch(r)
	case ReadLog:
		if h := w.Runs[r.Run]; h != nil {
			return Answer{Status: 200, Events: h.Log[min(r.Since, len(h.Log)):]}
		}
		return missing("run")
	case ByToken:
		if h := w.holder(r.Events[0].Token, r.Now); h != nil {
			return Answer{Status: 200, Hook: h}
		}
		return missing("hook")
	case Send:
		return w.send(r)
	case Deliver, Extend, Ack:
		return w.lease(r)
	case Write:
		return w.write(r)
	case Read:
		s := w.Streams[r.Stream]
		return Answer{Status: 200, Chunks: s.Chunks, Done: s.Done}
	}
	panic("no such request: " + r.Op)
}

// Clone is a copy that shares nothing that changes.
func (w *World) Clone() *World {
	c := &World{maps.Clone(w.Runs), maps.Clone(w.Messages), maps.Clone(w.Keys), maps.Clone(w.Streams)}
	for id, h := range c.Runs {
		c.Runs[id] = &History{
			h.Run, maps.Clone(h.Steps), maps.Clone(h.Hooks), maps.Clone(h.Waits), slices.Clip(h.Log), maps.Clone(h.Resumed),
		}
	}
	for name, s := range c.Streams {
		c.Streams[name] = Stream{slices.Clip(s.Chunks), s.Done}
	}
	return c
}

// put sets a key of a map that may not have been made yet.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}
