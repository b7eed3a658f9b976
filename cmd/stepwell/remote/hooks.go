package remote

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type hooksCmd struct {
	List   listHooksCmd  `cmd:"" help:"List the active hooks, or all hooks of a run."`
	Show   showHookCmd   `cmd:"" help:"Show a hook with its metadata."`
	Resume resumeHookCmd `cmd:"" help:"Send a payload to the run that waits for the hook."`

	Approvals listApprovalsCmd `cmd:"" help:"List the approvals that are open: what is asked, and who has voted."`
	Approve   approveCmd       `cmd:"" help:"Vote for what a run asks approval of."`
	Reject    rejectCmd        `cmd:"" help:"Vote against what a run asks approval of."`
}

var hookColumns = []column[api.Hook]{
	{"ID", func(h api.Hook) any { return h.ID }},
	{"RUN", func(h api.Hook) any { return h.RunID }},
	{"TOKEN", func(h api.Hook) any { return h.Token }},
	{"STATUS", func(h api.Hook) any { return cmp.Or(outcomeText(h.Outcome), string(h.Status)) }},
	{"CREATED", func(h api.Hook) any { return h.CreatedAt }},
	{"RECEIVED", func(h api.Hook) any { return h.ReceivedAt }},
	{"SIGNAL", func(h api.Hook) any { return h.Signal }},
}

// outcomeText says what people have decided, such as "approved by anna, bob"; empty if they have not.
func outcomeText(o api.Outcome) string {
	if len(o.By) == 0 {
		return o.Decision
	}
	return o.Decision + " by " + strings.Join(o.By, ", ")
}

type listHooksCmd struct {
	RunID       string `name:"run" placeholder:"ID" help:"List all hooks of this run, past and conflicting ones too."`
	Workflow    string `placeholder:"NAME" help:"List open hooks of runs of this workflow."`
	TokenPrefix string `placeholder:"TEXT" help:"List open hooks whose token begins with this text."`
	OlderThan   string `placeholder:"TIME" help:"List hooks that have been open for so long, such as 24h."`
	paging
}

// Run lists the hooks.
func (c listHooksCmd) Run(ctx context.Context, s *Session) error {
	query := nonEmpty(url.Values{
		"workflow": {c.Workflow}, "tokenPrefix": {c.TokenPrefix}, "olderThan": {c.OlderThan},
	})
	switch {
	case c.RunID == "":
		return list(ctx, s, path("hooks"), query, c.paging, hookColumns)
	case len(query) > 0:
		return usageErrorf("--run lists all hooks of the run: leave out the other filters")
	default:
		return list(ctx, s, path("runs", c.RunID, "hooks"), nil, c.paging, hookColumns)
	}
}

type showHookCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	ID    string `arg:"" name:"hook" help:"The hook's ID."`
}

// Run prints the hook.
func (c showHookCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("runs", c.RunID, "hooks", c.ID), nil, func(h api.Hook) []field {
		webhook := ""
		if h.Webhook {
			webhook = s.client.base.String() + "/hooks/" + url.PathEscape(h.Token)
		}
		return []field{
			{"hook", h.ID},
			{"run", h.RunID},
			{"token", h.Token},
			{"status", h.Status},
			{"outcome", outcomeText(h.Outcome)},
			{"webhook", webhook},
			{"signal", h.Signal},
			{"condition", h.Condition},
			{"created", h.CreatedAt},
			{"received", h.ReceivedAt},
			{"disposed", h.DisposedAt},
			{"retained", h.RetainedUntil},
			{"taken by", h.ConflictingRunID},
			{"question", h.Question},
			{"metadata", payloadText(h.Metadata, string(h.MetadataEncoding))},
		}
	})
}

type resumeHookCmd struct {
	Token    string   `arg:"" help:"The hook's token, or its ID with --run."`
	Payload  jsonFlag `short:"p" default:"null" placeholder:"JSON" help:"The payload for the run: ${json}."`
	ResumeID string   `placeholder:"ID" help:"Makes the command idempotent: repeats with the same ID have no effect."`
	RunID    string   `name:"run" placeholder:"ID" help:"The hook's run, to name the hook by its ID."`

	Unverified bool `help:"Resume a hook that accepts only signed requests. Needs a key of the role admin."`
}

// Run resumes the hook.
func (c resumeHookCmd) Run(ctx context.Context, s *Session) error {
	payload, err := c.Payload.read(s, "--payload")
	if err != nil {
		return err
	}
	at := path("hooks", c.Token, "resume")
	if c.RunID != "" {
		at = path("runs", c.RunID, "hooks", c.Token, "resume")
	}
	var resumed api.ResumedHook
	body := jsonBody{"payload": payload, "resumeId": c.ResumeID, "unverified": c.Unverified}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, at, body, &resumed)
	if err != nil {
		return err
	}
	if resumed.Repeated {
		s.note("already received")
	}
	return s.printResult(raw, "resumed %s with event %d", resumed.RunID, resumed.Seq)
}

type signalsCmd struct {
	Send sendSignalCmd  `cmd:"" help:"Send a signal to all hooks that wait for it, now or in a minute."`
	List listSignalsCmd `cmd:"" help:"List the stored signals."`
}

type sendSignalCmd struct {
	Name    string   `arg:"" help:"The signal's name, as hooks wait for it."`
	Data    jsonFlag `short:"d" placeholder:"JSON" help:"The signal's data: ${json}."`
	ID      string   `name:"id" placeholder:"ID" help:"The sender's ID for the signal. It makes the command idempotent."`
	KeepFor string   `placeholder:"TIME" help:"How long new hooks that look back receive the signal too, such as 1h."`
}

// Run sends the signal.
func (c sendSignalCmd) Run(ctx context.Context, s *Session) error {
	data, err := c.Data.read(s, "--data")
	if err != nil {
		return err
	}
	var sent api.Signal
	body := jsonBody{"data": data, "id": c.ID, "keepFor": c.KeepFor}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, path("signals", c.Name), body, &sent)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", sent.ID)
}

type listSignalsCmd struct {
	Name string `placeholder:"NAME" help:"List the signals with this name."`
	paging
}

var signalColumns = []column[api.ListedSignal]{
	{"ID", func(g api.ListedSignal) any { return g.ID }},
	{"NAME", func(g api.ListedSignal) any { return g.Name }},
	{"KEY", func(g api.ListedSignal) any { return g.Key }},
	{"CREATED", func(g api.ListedSignal) any { return g.CreatedAt }},
	{"KEPT UNTIL", func(g api.ListedSignal) any { return g.KeepUntil }},
	{"DATA", func(g api.ListedSignal) any {
		if g.Truncated {
			return "(omitted: too large)"
		}
		return string(g.Data)
	}},
}

// Run lists the signals.
func (c listSignalsCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("signals"), nonEmpty(url.Values{"name": {c.Name}}), c.paging, signalColumns)
}
