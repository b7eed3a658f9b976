package rest

import (
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/why"
)

func newHolderJSON(h why.Holder) api.SlotHolder {
	return api.SlotHolder{RunID: string(h.RunID), StepID: string(h.StepID), Since: timestamp(h.Since)}
}

// reasonJSON encodes a reason. Clients that may not see payloads get neither the error's message nor the condition on
// signals nor the token of a hook. Only the operator sees the machines of servers, and addresses in errors.
func (r *request) reasonJSON(run entities.RunID, reason why.Reason) api.Reason {
	reason = redactReason(reason, r.payloads())
	v := api.Reason{
		Kind: api.ReasonKind(reason.Kind), Sentence: reason.Sentence(), StepID: string(reason.StepID),
		HookID: string(reason.HookID), WaitID: string(reason.WaitID), Name: reason.Name, Condition: reason.Condition,
		ChildID: string(reason.ChildID), ChildStatus: api.RunStatus(reason.ChildStatus),
		MessageID: reason.MessageID, Deployment: reason.DeploymentID,
		Server: reason.Server, Host: reason.Host, Attempt: int64(reason.Attempt), MaxAttempts: int64(reason.MaxAttempts),
		Failures: int64(reason.Failures), Backlog: int64(reason.Backlog), Limit: reason.Limit, Key: reason.Key,
		Held: int64(reason.Held), Slots: int64(reason.Slots), InAll: reason.InAll, Ahead: int64(reason.Ahead),
		Holders: encodeAll(reason.Holders, newHolderJSON), Circle: textsOf(reason.Circle), Votes: int64(reason.Votes),
		Detail: reason.Detail, Since: optionalTime(reason.Since), At: optionalTime(reason.At),
		Until: optionalTime(reason.Until), Remedies: encodeAll(reason.Remedies, remedyJSON),
		Commands: reason.Commands(run),
	}
	if p := reason.Pause; p != nil {
		v.Pause = newPauseJSON(*p)
	}
	if e := reason.Error; e != nil {
		v.Error = &api.ReasonError{Code: e.Code, Message: e.Message, Seq: e.Seq}
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
	if v.Error != nil && *v.Error == (api.ReasonError{}) {
		v.Error = nil
	}
	return v
}

// redactReason removes the token of a hook, as [request.redactHook] does.
func redactReason(reason why.Reason, with read.Payloads) why.Reason {
	if with == read.WithoutPayloads {
		return reason.WithoutToken()
	}
	return reason
}

func remedyJSON(r why.Remedy) api.Remedy { return api.Remedy(r) }

// explainRun says why a run is not done, or how it ended.
func (s *Server) explainRun(r *request) error {
	id := r.runID()
	return answer(r, func() (api.Explanation, error) {
		e, err := why.Of(r.ctx(), s.Queue.Pool(), r.project(), id)
		if err != nil {
			return api.Explanation{}, err
		}
		return s.newExplanationJSON(r, e)
	})
}

func (s *Server) newExplanationJSON(r *request, e why.Explanation) (v api.Explanation, err error) {
	v = api.Explanation{
		RunID: string(e.Run.ID), Verdict: api.Verdict(e.Verdict), At: timestamp(e.At), LastSeq: e.Run.LastSeq,
		Reasons: encodeAll(e.Reasons, func(reason why.Reason) api.Reason { return r.reasonJSON(e.Run.ID, reason) }),
	}
	if e.Run.Status.Ended() {
		v.End, err = s.endOf(r, e.Run)
		return v, err
	}
	v.Since = optionalTime(e.Reasons[0].Since)
	v.Open = &api.OpenParts{Steps: int64(e.Open.Steps), Hooks: int64(e.Open.Hooks), Waits: int64(e.Open.Waits)}
	if e.Run.ForcedAt == nil {
		v.Deadline = optionalTime(e.Run.Deadline)
	}
	if n := e.Next; n != nil {
		v.Next = &api.NextEvent{
			At: timestamp(*n.At), Kind: api.ReasonKind(n.Kind), StepID: string(n.StepID), WaitID: string(n.WaitID),
		}
	}
	return v, nil
}

// endOf returns how a run ended.
func (s *Server) endOf(r *request, run entities.Run) (*api.RunEnd, error) {
	end := &api.RunEnd{Status: string(run.Status), At: timestamp(*run.CompletedAt), Seq: run.EndSeq}
	if run.Status == entities.RunCompleted {
		return end, nil
	}
	at := read.Position{RunID: run.ID, Seq: run.EndSeq}
	events, err := s.Log.EventsAt(r.ctx(), []read.Position{at}, r.payloads())
	if err != nil {
		return nil, err
	}
	detail, err := decodeFor(r, func() api.Run {
		v := newRunJSON(run)
		addOutcome(&v, run, events[at], r.payloads())
		return v
	})
	end.Error, end.CancelReason = detail.Error, detail.CancelReason
	return end, err
}
