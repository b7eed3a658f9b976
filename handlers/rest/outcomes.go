package rest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inbox"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// maxDecisions is how many bytes of payloads are read for the decisions of a page.
const maxDecisions = 1 << 20

// askingHook is a hook that may have asked for a decision.
type askingHook struct {
	id         entities.HookID
	createdSeq int64
	isApproval bool
	closed     time.Time // zero if the run has not closed it
}

// asking returns what is asked about a hook; ok is false if it asks for no decision, or has not got one.
func asking(id string, seq int64, data entities.EventData, received bool, closed time.Time) (h askingHook, ok bool) {
	_, isInbox := inbox.Name(entities.HookID(id))
	webhook := data.IsWebhook != nil && *data.IsWebhook
	h = askingHook{entities.HookID(id), seq, approval.IsToken(data.Token), closed}
	return h, (received || !closed.IsZero()) && !isInbox && !webhook && data.Signal == ""
}

// order puts approvals first.
func (h askingHook) order() int {
	if h.isApproval {
		return 0
	}
	return 1
}

// outcomes reads what has been decided by the hooks of a run, approvals first. Those without a decision are left out.
func (s *Server) outcomes(
	r *request, run entities.RunID, hooks []askingHook,
) (map[entities.HookID]api.Outcome, error) {
	if len(hooks) == 0 {
		return map[entities.HookID]api.Outcome{}, nil
	}
	slices.SortStableFunc(hooks, func(a, b askingHook) int { return a.order() - b.order() })
	keys := encodeAll(hooks, func(h askingHook) read.HookKey { return read.HookKey{RunID: run, ID: h.id} })
	received, err := s.Log.ReceivedBy(r.ctx(), keys, approval.MaxQuorum, flow.TimeSuffix)
	if err != nil {
		return nil, err
	}
	groups := encodeAll(hooks, func(h askingHook) []read.Position {
		return h.positions(run, received[read.HookKey{RunID: run, ID: h.id}])
	})
	n, err := s.Log.Fit(r.ctx(), groups, read.WithPayloads, maxDecisions)
	if err != nil {
		return nil, err
	}
	events, err := s.Log.EventsAt(r.ctx(), slices.Concat(groups[:n]...), read.WithPayloads)
	if err != nil {
		return nil, err
	}
	return decodeFor(r, func() map[entities.HookID]api.Outcome {
		all := make(map[entities.HookID]api.Outcome, n)
		for i, h := range hooks[:n] {
			q := h.question(groups[i], events)
			q.Over = received[keys[i]].Over > 0
			if o := q.Outcome(); o != nil {
				all[h.id] = r.outcomeJSON(*o)
			}
		}
		return all
	})
}

// positions returns those of the events that decide: its creation, and of an approval the votes in time, else the first
// answer.
func (h askingHook) positions(run entities.RunID, received read.Received) []read.Position {
	at := []read.Position{{RunID: run, Seq: h.createdSeq}}
	for _, seq := range received.Seqs {
		if received.Over > 0 && seq > received.Over || !h.isApproval && len(at) > 1 {
			break
		}
		at = append(at, read.Position{RunID: run, Seq: seq})
	}
	return at
}

func (h askingHook) question(at []read.Position, events map[read.Position]entities.Event) approval.Question {
	payloads := encodeAll(at, func(p read.Position) json.RawMessage {
		return payload.Decode(events[p].Payload, maxDecisions).Value
	})
	return approval.Question{Metadata: payloads[0], Received: payloads[1:], Closed: h.closed}
}

// outcomeJSON encodes a decision. Clients that may not see payloads get no names.
func (r *request) outcomeJSON(o approval.Outcome) api.Outcome {
	v := api.Outcome{Decision: o.Decision, By: o.By}
	if r.payloads() == read.WithoutPayloads {
		v.By = nil
	}
	return v
}

// timelineOutcomes reads what has been decided by the hooks of a page of the timeline.
func (s *Server) timelineOutcomes(
	r *request, run entities.RunID, parts []read.TimelinePart,
) (map[entities.HookID]api.Outcome, error) {
	var hooks []askingHook
	for _, p := range parts {
		if p.Type != entities.EventHookCreated {
			continue
		}
		received, closed := false, time.Time{}
		for _, e := range p.Later {
			received = received || e.Type == entities.EventHookReceived
			if e.Type == entities.EventHookDisposed {
				closed = e.At
			}
		}
		if h, ok := asking(p.ID, p.Seq, *p.Data, received, closed); ok {
			hooks = append(hooks, h)
		}
	}
	return s.outcomes(r, run, hooks)
}

// historyOutcomes reads what has been decided by hooks.
func (s *Server) historyOutcomes(
	r *request, run entities.RunID, all []read.HookHistory,
) (map[entities.HookID]api.Outcome, error) {
	var hooks []askingHook
	for _, h := range all {
		closed := time.Time{}
		if h.ClosedAt != nil {
			closed = *h.ClosedAt
		}
		a, ok := asking(string(h.ID), h.Seq, h.Data, h.ReceivedAt != nil, closed)
		if ok && h.Type == entities.EventHookCreated {
			hooks = append(hooks, a)
		}
	}
	return s.outcomes(r, run, hooks)
}
