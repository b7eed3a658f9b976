package flow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/contract/approval"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
)

// hookAction waits for one payload.
type hookAction struct {
	token   *template // nil for a random one
	webhook *webhookFields
}

// webhookFields are those of the contract's openHook.
type webhookFields struct {
	Verify  string `json:"verify,omitempty"`
	Secret  string `json:"secret,omitempty"`
	Respond string `json:"respond,omitempty"`
}

// readHook reads "hook: {token, webhook: {verify, secret, respond}, within}".
func (r *reader) readHook(n *node, a *action, u usage) {
	o := r.object(n)
	a.hook = &hookAction{}
	a.timeout = o.duration("within")
	a.hook.token = o.template("token", u)
	if w := o.get("webhook"); w != nil {
		before, settings := len(*r.faults), r.object(w)
		respond := settings.duration("respond")
		a.hook.webhook = &webhookFields{settings.text("verify"), settings.text("secret"), duration(respond)}
		err := webhook.Validate(entities.WebhookSpec{
			Verify: a.hook.webhook.Verify, Secret: a.hook.webhook.Secret, RespondMS: respond.Milliseconds(),
		})
		if err != nil && len(*r.faults) == before {
			r.faults.add(w, CodeType, "%v", err)
		}
		settings.end()
	}
	o.end()
}

// approvalAction waits for votes.
type approvalAction struct {
	title     *template
	by        []*template       // each is a name or a list of names
	settings  approval.Settings // without the title and the names
	onTimeout string
}

// The values of onTimeout.
const (
	timeoutFails    = "fail"
	timeoutApproves = "approve"
	timeoutRejects  = "reject"
)

// readApproval reads "approval: {title, by, quorum, distinctKeys, form, deadline, onTimeout}", or "approval: TITLE".
func (r *reader) readApproval(n *node, a *action, u usage) {
	o := r.short(n, "title")
	v := &approvalAction{onTimeout: o.choice("onTimeout", timeoutFails, timeoutApproves, timeoutRejects)}
	a.approval, a.timeout = v, o.duration("deadline")
	if v.title = o.template("title", u); v.title == nil {
		r.faults.add(n, CodeMissing, `want a "title": what is to be approved?`)
	}
	var known []string
	for _, by := range o.list("by", approval.MaxVoters) {
		if by.kind != kindText {
			r.faults.add(by, CodeType, "want a name, or role:NAME, instead of %s", by.kind)
			continue
		}
		one := r.template(by, u)
		v.by = append(v.by, one)
		if one.fixed != nil {
			known = append(known, plain(one.fixed))
		}
	}
	v.settings.Quorum = o.count("quorum", 1, 1, approval.MaxQuorum)
	v.settings.DistinctKeys = o.flag("distinctKeys")
	v.settings.Form, _ = r.schema(o.get("form"))
	if a.timeout == 0 && o.node.get("onTimeout") != nil {
		r.faults.add(o.node.get("onTimeout"), CodeMissing, `onTimeout needs a "deadline"`)
	}
	check := v.settings
	check.Title, check.By, check.Form = "title", known, nil // the form is checked above
	if err := check.Validate(); err != nil {
		r.faults.add(orNode(o.node.get("by"), n), CodeType, "%v", err)
	}
	o.end()
}

// openOther opens the hook of a step, and limits its time.
func (t *decision) openOther(i int, a *action, where *stepScope) {
	command := openHook{Type: "openHook", ID: t.Program.steps[i].id}
	var err error
	if a.kind == kindApproval {
		command.Approval, err = a.approval.evaluate(where)
	} else {
		command.Webhook = a.hook.webhook
		command.Token, err = tokenOf(a.hook.token, where)
	}
	if err != nil {
		t.record(i, expressionFailed(string(a.kind), err))
		return
	}
	t.await(i, a, command)
}

// await sends the command that opens the hook of a step, and limits the time for which the step waits.
func (t *decision) await(i int, a *action, command openHook) {
	t.send(command)
	t.hooks[i] = true
	t.limit(i, a)
	t.steps[i].status = statusOpen
}

// limit limits the time for which a step waits whose hook is open, unless it is limited. A fork may have kept the hook
// without the wait.
func (t *decision) limit(i int, a *action) {
	if t.hooks[i] && !t.limits[i] && a.timeout > 0 {
		t.send(wait{Type: "wait", ID: t.Program.steps[i].id + TimeSuffix, For: duration(a.timeout)})
		t.limits[i] = true
	}
}

func tokenOf(v *template, where *stepScope) (string, error) {
	if v == nil {
		return "", nil
	}
	text, err := v.json(where)
	if err != nil {
		return "", err
	}
	token := plain(text)
	return token, entities.ValidateToken(token)
}

// evaluate returns the settings with their title and names.
func (v *approvalAction) evaluate(where *stepScope) (*approval.Settings, error) {
	text, err := v.title.json(where)
	if err != nil {
		return nil, fmt.Errorf("title: %w", err)
	}
	settings := v.settings
	settings.Title = plain(text)
	for _, by := range v.by {
		names, err := by.json(where)
		if err != nil {
			return nil, fmt.Errorf("by: %w", err)
		}
		var list []string
		if json.Unmarshal(names, &list) != nil {
			list = []string{plain(names)}
		}
		settings.By = append(settings.By, list...)
	}
	if len(v.by) > 0 && len(settings.By) == 0 {
		return nil, errors.New("by: nobody is named, and then anybody could vote")
	}
	return &settings, settings.Validate()
}

// The codes of failures of hooks, approvals and responses.
const (
	// codeHookConflict means that another hook has the token.
	codeHookConflict = "hook_conflict"
	// codeRejected means that somebody has rejected.
	codeRejected = "rejected"
	// codeNoRequest means that there is no request to respond to.
	codeNoRequest = "no_request"
)

// received folds the payload of a hook that is open. The first one ends the step, unless it is an approval that needs
// more votes.
func (s *state) received(p progress, i int, e Event) progress {
	v := s.Program.steps[i].action.approval
	if v == nil {
		return progress{status: statusCompleted, output: s.dataOf(i, orNull(e.Payload)), seq: e.Seq}
	}
	decision, decided := s.tally(i).Add(v.settings, e.Payload)
	if !decided {
		return p
	}
	return s.decided(i, decision, e.Seq)
}

// dataOf returns the data of a signal that a hook has received, and any other payload as it is.
func (s *state) dataOf(i int, payload json.RawMessage) json.RawMessage {
	var signal struct {
		Signal *string         `json:"signal"`
		Data   json.RawMessage `json:"data"`
	}
	isSignal := s.Program.steps[i].action.kind == kindSignal
	if !isSignal || json.Unmarshal(payload, &signal) != nil || signal.Signal == nil {
		return payload
	}
	return orNull(signal.Data)
}

func (s *state) tally(i int) *approval.Tally {
	if s.votes[i] == nil {
		s.votes[i] = &approval.Tally{Votes: []approval.Vote{}}
	}
	return s.votes[i]
}

// decided returns the end of an approval.
func (s *state) decided(i int, decision approval.Decision, seq int64) progress {
	votes := mustJSON(s.tally(i))
	if decision == approval.Approve {
		return progress{status: statusCompleted, output: votes, seq: seq}
	}
	return failedWith(contract.Failure{Message: "it was rejected", Code: codeRejected, Details: votes}, seq)
}

// late returns the end of a step whose time is over.
func (s *state) late(i int, seq int64) progress {
	a := &s.Program.steps[i].action
	switch {
	case a.approval != nil && a.approval.onTimeout == timeoutApproves:
		return s.decided(i, approval.Approve, seq)
	case a.approval != nil && a.approval.onTimeout == timeoutRejects:
		return s.decided(i, approval.Reject, seq)
	}
	f := contract.Failure{Message: "no signal came in time", Code: codeWaitTimeout}
	switch a.kind {
	case kindHook:
		f.Message = "no payload came in time"
	case kindApproval:
		f.Message, f.Details = "it was not decided in time", json.RawMessage(mustJSON(s.tally(i)))
	default:
	}
	return failedWith(f, seq)
}
