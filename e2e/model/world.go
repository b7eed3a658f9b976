package model

import (
	"maps"
	"slices"
)

// World is the state of a server. The zero World is empty.
type World struct {
	Runs     map[string]*History
	Messages map[string]Message // by their ID
	Keys     map[string]string  // message IDs by idempotency key, with its scope
	Streams  map[string]Stream
}

// The kinds of requests.
const (
	Post    = "post"    // append one event
	Batch   = "batch"   // append several events of one run
	ReadLog = "log"     // read a run's events
	ByToken = "token"   // read the hook that holds a token
	Send    = "send"    // send a message
	Deliver = "deliver" // deliver a message to a function, pushed by a worker or pulled by the function
	Extend  = "extend"  // change the visibility of a leased message
	Ack     = "ack"     // acknowledge a leased message
	Write   = "write"   // append chunks to a stream, and optionally close it
	Read    = "read"    // read a stream
)

// Request is one request. Op determines which fields are used. Times are in milliseconds of the server's clock; 0 means
// unset.
type Request struct {
	Op     string
	Now    int64
	Run    string
	Spec   int // the protocol version the client announces
	Events []Event

	InBand bool // an orchestrator writes, which has seen so many in-band events; it does not say so if that is negative
	Seen   int

	Skip    bool // run_started: omit the log from the answer
	Frames  bool // run_started: answer only with the log, as frames
	Since   int  // answer with the events after this position, also for reads; 0 if unset
	MaxSlot int  // the last position that the client knows; 0 if unset

	Topic, Deployment, Key, Body string // of a message
	ID, Handle                   string // of a message and its lease; filled in afterwards if the server makes them
	Seconds                      int    // a delay, or a visibility

	Stream string
	Chunks []string
	Done   bool
}

// Answer is the answer to a request, independent of its encoding.
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
	Allocated          int      // how many positions a write to a run with a fence took
	Snapshot           [2]int   // with the log of a run with a fence: its length, and how much of it is in-band

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

// Do applies a request to the world and returns the answer. A refused request does not change the world.
func (w *World) Do(r Request) Answer {
	switch r.Op {
	case Post:
		return w.post(r)
	case Batch:
		return w.batch(r)
	case ReadLog:
		h := w.Runs[r.Run]
		if h == nil {
			return missing("run")
		}
		return h.read(r, h.Log[min(r.Since, len(h.Log)):])
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
	panic("unknown request: " + r.Op)
}

// Clone returns a copy that shares no mutable state.
func (w *World) Clone() *World {
	c := &World{maps.Clone(w.Runs), maps.Clone(w.Messages), maps.Clone(w.Keys), maps.Clone(w.Streams)}
	for id, h := range c.Runs {
		c.Runs[id] = &History{
			h.Run, maps.Clone(h.Steps), maps.Clone(h.Hooks), maps.Clone(h.Waits), slices.Clip(h.Log), h.InBand,
			maps.Clone(h.Resumed),
		}
	}
	for name, s := range c.Streams {
		c.Streams[name] = Stream{slices.Clip(s.Chunks), s.Done}
	}
	return c
}

// put sets a key of a map, and creates the map if it is nil.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}
