package remote

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type hooksCmd struct {
	List   listHooksCmd                 `cmd:"" help:"List the active hooks, or all hooks of a run."`
	Show   objectCmd[hookRow, hookArgs] `cmd:"" at:"runs/*/hooks/*" help:"Show a hook with its metadata."`
	Resume resumeHookCmd                `cmd:"" at:"POST hooks/*/resume" help:"Send a payload to the run that waits for the hook."`

	Approvals listCmd[approvalRow, approvalFilter] `cmd:"" at:"approvals" help:"List the approvals that are open: what is asked, and who has voted."`
	Approve   approveCmd                           `cmd:"" help:"Vote for what a run asks approval of."`
	Reject    rejectCmd                            `cmd:"" help:"Vote against what a run asks approval of."`
}

type hookRow api.Hook

func (h hookRow) columns() []field {
	return []field{
		{"id", h.ID}, {"run", h.RunID}, {"token", h.Token},
		{"status", cmp.Or(outcomeText(h.Outcome), string(h.Status))}, {"created", h.CreatedAt},
		{"received", h.ReceivedAt}, {"signal", h.Signal},
	}
}

// outcomeText says what people have decided, such as "approved by anna, bob"; empty if they have not.
func outcomeText(o api.Outcome) string {
	if len(o.By) == 0 {
		return o.Decision
	}
	return o.Decision + " by " + strings.Join(o.By, ", ")
}

type listHooksCmd struct {
	RunID       string `name:"run" field:"-" placeholder:"ID" help:"List all hooks of this run, past and conflicting ones too."`
	Workflow    string `placeholder:"NAME" help:"List open hooks of runs of this workflow."`
	TokenPrefix string `placeholder:"TEXT" help:"List open hooks whose token begins with this text."`
	OlderThan   string `placeholder:"TIME" help:"List hooks that have been open for so long, such as 24h."`
	paging
}

// Run lists the hooks.
func (c listHooksCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	switch {
	case err != nil:
		return err
	case c.RunID == "":
		return list[hookRow](ctx, s, path("hooks"), r.query(), c.paging)
	case len(r.params) > 0:
		return usageErrorf("--run lists all hooks of the run: leave out the other filters")
	default:
		return list[hookRow](ctx, s, path("runs", c.RunID, "hooks"), nil, c.paging)
	}
}

// hookArgs name a hook.
type hookArgs struct {
	inRun
	ID string `arg:"" name:"hook" help:"The hook's ID."`
}

func (h hookRow) details() []field {
	webhook := ""
	if h.Webhook {
		webhook = "/hooks/" + url.PathEscape(h.Token)
	}
	return []field{
		{"webhook", webhook}, {"condition", h.Condition}, {"disposed", h.DisposedAt}, {"retained", h.RetainedUntil},
		{"taken by", h.ConflictingRunID}, {"question", h.Question},
		{"metadata", payloadText(h.Metadata, string(h.MetadataEncoding))},
	}
}

type resumeHookCmd struct {
	Token    string   `arg:"" field:"-" help:"The hook's token, or its ID with --run."`
	Payload  jsonFlag `short:"p" default:"null" placeholder:"JSON" help:"The payload for the run: ${json}."`
	ResumeID string   `placeholder:"ID" help:"Makes the command idempotent: repeats with the same ID have no effect."`
	RunID    string   `name:"run" field:"-" placeholder:"ID" help:"The hook's run, to name the hook by its ID."`

	Unverified bool `help:"Resume a hook that accepts only signed requests. Needs a key of the role admin."`
}

// Run resumes the hook.
func (c resumeHookCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	if r.args = []string{c.Token}; c.RunID != "" {
		r.at, r.args = "runs/*/hooks/*/resume", []string{c.RunID, c.Token}
	}
	resumed, raw, err := answerOf[api.ResumedHook](ctx, s, r)
	if err != nil {
		return err
	}
	if resumed.Repeated {
		s.note("already received")
	}
	return s.printResult(raw, "resumed %s with event %d", resumed.RunID, resumed.Seq)
}

type signalsCmd struct {
	Send changeCmd[signalFlags]           `cmd:"" at:"POST signals/*" says:"$id" help:"Send a signal to all hooks that wait for it, now or in a minute."`
	List listCmd[signalRow, signalFilter] `cmd:"" at:"signals" help:"List the stored signals."`
}

type signalFlags struct {
	Name    string   `arg:"" help:"The signal's name, as hooks wait for it."`
	Data    jsonFlag `short:"d" placeholder:"JSON" help:"The signal's data: ${json}."`
	ID      string   `name:"id" placeholder:"ID" help:"The sender's ID for the signal. It makes the command idempotent."`
	KeepFor string   `placeholder:"TIME" help:"How long new hooks that look back receive the signal too, such as 1h."`
}

type signalFilter struct {
	Name string `placeholder:"NAME" help:"List the signals with this name."`
}

type signalRow api.ListedSignal

func (g signalRow) columns() []field {
	data := string(g.Data)
	if g.Truncated {
		data = "(omitted: too large)"
	}
	return []field{
		{"id", g.ID}, {"name", g.Name}, {"key", g.Key}, {"created", g.CreatedAt}, {"kept until", g.KeepUntil}, {"data", data},
	}
}
