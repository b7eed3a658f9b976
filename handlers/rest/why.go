package rest

import (
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/why"
)

type explanationJSON struct {
	RunID    entities.RunID `json:"runId"`
	Verdict  why.Verdict    `json:"verdict"`
	Since    api.Time       `json:"since,omitzero"`
	At       api.Time       `json:"at"`
	LastSeq  int64          `json:"lastSeq"`
	Deadline api.Time       `json:"deadline,omitzero"`
	Next     *nextJSON      `json:"next,omitempty"`
	Reasons  []reasonJSON   `json:"reasons"`
	Open     *partsJSON     `json:"open,omitempty"`
	End      *endJSON       `json:"end,omitempty"`
}

// nextJSON is what happens next by itself.
type nextJSON struct {
	At     api.Time        `json:"at"`
	Kind   why.Kind        `json:"kind"`
	StepID entities.StepID `json:"stepId,omitempty"`
	WaitID entities.WaitID `json:"waitId,omitempty"`
}

// partsJSON counts the open parts of a run.
type partsJSON struct {
	Steps int `json:"steps"`
	Hooks int `json:"hooks"`
	Waits int `json:"waits"`
}

// endJSON says how a run ended.
type endJSON struct {
	Status       entities.RunStatus `json:"status"`
	At           api.Time           `json:"at"`
	Seq          int64              `json:"seq"`
	Error        *failureJSON       `json:"error,omitempty"`
	CancelReason string             `json:"cancelReason,omitempty"`
}

// reasonJSON is the JSON form of a reason. Clients that may not see payloads get neither the error's message nor the
// condition on signals. Only the operator sees the machines of servers, and addresses in errors.
type reasonJSON struct {
	Kind        why.Kind           `json:"kind"`
	StepID      entities.StepID    `json:"stepId,omitempty"`
	HookID      entities.HookID    `json:"hookId,omitempty"`
	WaitID      entities.WaitID    `json:"waitId,omitempty"`
	Name        string             `json:"name,omitempty"`
	Condition   string             `json:"condition,omitempty"`
	ChildID     entities.RunID     `json:"childId,omitempty"`
	ChildStatus entities.RunStatus `json:"childStatus,omitempty"`
	MessageID   string             `json:"messageId,omitempty"`
	Deployment  string             `json:"deployment,omitempty"`
	Server      string             `json:"server,omitempty"`
	Host        string             `json:"host,omitempty"`
	Attempt     int                `json:"attempt,omitempty"`
	MaxAttempts int                `json:"maxAttempts,omitempty"`
	Failures    int                `json:"failures,omitempty"`
	Backlog     int                `json:"backlog,omitempty"`
	Limit       string             `json:"limit,omitempty"`
	Key         string             `json:"key,omitempty"`
	Held        int                `json:"held,omitempty"`
	Slots       int                `json:"slots,omitempty"`
	InAll       bool               `json:"inAll,omitempty"`
	Ahead       int                `json:"ahead,omitempty"`
	Holders     []holderJSON       `json:"holders,omitempty"`
	Circle      []entities.RunID   `json:"circle,omitempty"`
	Votes       int                `json:"votes,omitempty"`
	Detail      string             `json:"detail,omitempty"`
	Since       api.Time           `json:"since,omitzero"`
	At          api.Time           `json:"at,omitzero"`
	Until       api.Time           `json:"until,omitzero"`
	Error       *reasonErrorJSON   `json:"error,omitempty"`
	Remedies    []why.Remedy       `json:"remedies"`
}

type reasonErrorJSON struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Seq     int64  `json:"seq,omitempty"`
}

// holderJSON is the JSON form of a run, or a step of it, that holds a slot of a limit.
type holderJSON struct {
	RunID  entities.RunID  `json:"runId"`
	StepID entities.StepID `json:"stepId,omitempty"`
	Since  api.Time        `json:"since"`
}

func newHolderJSON(h why.Holder) holderJSON { return holderJSON{h.RunID, h.StepID, timestamp(h.Since)} }

func (r *request) reasonJSON(reason why.Reason) reasonJSON {
	v := reasonJSON{
		reason.Kind, reason.StepID, reason.HookID, reason.WaitID, reason.Name, reason.Condition, reason.ChildID,
		reason.ChildStatus, reason.MessageID, reason.DeploymentID, reason.Server, reason.Host, reason.Attempt,
		reason.MaxAttempts, reason.Failures, reason.Backlog, reason.Limit, reason.Key, reason.Held, reason.Slots,
		reason.InAll, reason.Ahead, encodeAll(reason.Holders, newHolderJSON), reason.Circle,
		reason.Votes, reason.Detail, optionalTime(reason.Since),
		optionalTime(reason.At), optionalTime(reason.Until), nil, reason.Remedies,
	}
	if v.Remedies == nil {
		v.Remedies = []why.Remedy{}
	}
	if reason.Error != nil {
		v.Error = new(reasonErrorJSON(*reason.Error))
	}
	operator := auth.IdentityOf(r).Operator()
	if !operator {
		v.Host = ""
	}
	switch {
	case r.payloads() == read.WithoutPayloads:
		v.Condition = ""
		if v.Error != nil {
			v.Error.Message = ""
		}
	case v.Error != nil && !operator:
		v.Error.Message = egress.Redact(v.Error.Message)
	}
	if v.Error != nil && *v.Error == (reasonErrorJSON{}) {
		v.Error = nil
	}
	return v
}

// explainRun says why a run is not done, or how it ended.
func (s *Server) explainRun(r *request) error {
	id := r.runID()
	return answer(r, func() (explanationJSON, error) {
		e, err := why.Of(r.ctx(), s.Queue.Pool(), r.project(), id)
		if err != nil {
			return explanationJSON{}, err
		}
		return s.newExplanationJSON(r, e)
	})
}

func (s *Server) newExplanationJSON(r *request, e why.Explanation) (v explanationJSON, err error) {
	v = explanationJSON{
		RunID: e.Run.ID, Verdict: e.Verdict, At: timestamp(e.At), LastSeq: e.Run.LastSeq,
		Reasons: encodeAll(e.Reasons, r.reasonJSON),
	}
	if e.Run.Status.Ended() {
		v.End, err = s.endOf(r, e.Run)
		return v, err
	}
	v.Since, v.Open = optionalTime(e.Reasons[0].Since), new(partsJSON(e.Open))
	if e.Run.ForcedAt == nil {
		v.Deadline = optionalTime(e.Run.Deadline)
	}
	if n := e.Next; n != nil {
		v.Next = &nextJSON{timestamp(*n.At), n.Kind, n.StepID, n.WaitID}
	}
	return v, nil
}

// endOf returns how a run ended.
func (s *Server) endOf(r *request, run entities.Run) (*endJSON, error) {
	end := &endJSON{Status: run.Status, At: timestamp(*run.CompletedAt), Seq: run.EndSeq}
	if run.Status == entities.RunCompleted {
		return end, nil
	}
	at := read.Position{RunID: run.ID, Seq: run.EndSeq}
	events, err := s.Log.EventsAt(r.ctx(), []read.Position{at}, r.payloads())
	if err != nil {
		return nil, err
	}
	detail, err := decodeFor(r, func() runJSON {
		v := newRunJSON(run)
		v.addOutcome(run, events[at], r.payloads())
		return v
	})
	end.Error, end.CancelReason = detail.Error, detail.CancelReason
	return end, err
}
