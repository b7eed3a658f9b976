package rest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// openApproval is an approval that is open, with its votes.
type openApproval struct {
	hook     store.OpenHook
	settings *approval.Settings // nil if it turns out to be none
	tally    approval.Tally
	votes    []api.Vote // those of the tally, with their times
	due      *time.Time
}

// listApprovals lists the open approvals of all runs, or of one run.
func (s *Server) listApprovals(r *request) error {
	page, names := r.page(oldestFirst), r.QueryParams()["for"]
	if len(names) > approval.MaxVoters {
		r.fail(badParam("for", "%d names; the limit is %d", len(names), approval.MaxVoters))
	}
	sees := r.payloads() == read.WithPayloads || auth.IdentityOf(r).Check(auth.Invoke) == nil
	if len(names) > 0 && !sees {
		r.fail(auth.IdentityOf(r).Check(auth.Read))
	}
	f := store.HookFilter{
		WorkflowName: r.QueryParam("workflow"), RunID: entities.RunID(r.QueryParam("runId")),
		HookID: entities.HookID(r.QueryParam("hookId")), Approvals: true,
	}
	encode := func(a openApproval) api.Approval { return a.json(sees) }
	return answerPage(r, encode, func() ([]openApproval, string, error) {
		hooks, next, err := store.OpenHooks(r.ctx(), s.Reader, r.project(), f, s.Log.Now(), page)
		if err != nil {
			return nil, "", err
		}
		all, err := s.approvals(r, hooks)
		if len(all) < len(hooks) && err == nil {
			next = store.HookCursor(all[len(all)-1].hook.Hook)
		}
		return slices.DeleteFunc(all, func(a openApproval) bool {
			return a.settings == nil || len(names) > 0 && !a.settings.Asks(names, a.tally)
		}), next, err
	})
}

// approvals reads what is asked and who has voted, of the first ones whose payloads fit into a page together.
func (s *Server) approvals(r *request, hooks []store.OpenHook) ([]openApproval, error) {
	keys := make([]read.HookKey, len(hooks))
	for i, h := range hooks {
		keys[i] = read.HookKey{RunID: h.RunID, ID: h.ID}
	}
	received, err := s.Log.ReceivedBy(r.ctx(), keys, approval.MaxQuorum, flow.TimeSuffix)
	if err != nil {
		return nil, err
	}
	groups := make([][]read.Position, len(hooks))
	for i, h := range hooks {
		groups[i] = []read.Position{{RunID: h.RunID, Seq: h.CreatedSeq}}
		for _, seq := range received[keys[i]].Seqs {
			groups[i] = append(groups[i], read.Position{RunID: h.RunID, Seq: seq})
		}
	}
	n, err := s.Log.Fit(r.ctx(), groups, read.WithPayloads, read.MaxPageBytes)
	if err != nil {
		return nil, err
	}
	events, err := s.Log.EventsAt(r.ctx(), slices.Concat(groups[:n]...), read.WithPayloads)
	if err != nil {
		return nil, err
	}
	return decodeFor(r, func() []openApproval {
		all := make([]openApproval, n)
		for i := range all {
			all[i] = approvalIn(hooks[i], groups[i], events)
			all[i].due = received[keys[i]].Until
		}
		return all
	})
}

// approvalIn returns the approval of a hook by the events at the positions: that of its creation, and what it received.
func approvalIn(h store.OpenHook, at []read.Position, events map[read.Position]entities.Event) openApproval {
	a := openApproval{hook: h, votes: []api.Vote{}}
	var metadata approval.Metadata
	if json.Unmarshal(events[at[0]].Payload, &metadata) != nil || metadata.Approval == nil {
		return a
	}
	a.settings = metadata.Approval
	for _, p := range at[1:] {
		a.tally.Add(*a.settings, events[p].Payload)
		if n := len(a.votes); n < len(a.tally.Votes) {
			v := a.tally.Votes[n]
			a.votes = append(a.votes, api.Vote{
				Decision: string(v.Decision), By: v.By, Key: v.Key, Comment: v.Comment, At: timestamp(events[p].CreatedAt),
			})
		}
	}
	return a
}

// json encodes the approval. Clients that may neither vote nor see payloads get no texts and no names.
func (a openApproval) json(sees bool) api.Approval {
	v := api.Approval{
		RunID: string(a.hook.RunID), HookID: string(a.hook.ID), Workflow: a.hook.WorkflowName,
		Needed: int64(a.settings.Needed()), DistinctKeys: a.settings.DistinctKeys, Votes: a.votes,
		CreatedAt: timestamp(a.hook.CreatedAt), Due: optionalTime(a.due),
	}
	if sees {
		v.Title, v.By, v.Form = a.settings.Title, a.settings.By, a.settings.Form
		return v
	}
	v.Votes = encodeAll(a.votes, func(vote api.Vote) api.Vote { return api.Vote{Decision: vote.Decision, At: vote.At} })
	return v
}
