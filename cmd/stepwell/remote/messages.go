package remote

import (
	"context"
	"net/http"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type messagesCmd struct {
	List    listMessagesCmd                   `cmd:"" at:"messages" help:"List messages, by default the parked ones."`
	Show    objectCmd[messageRow, identified] `cmd:"" at:"messages/*" help:"Show a message."`
	Retry   retryMessageCmd                   `cmd:"" at:"POST messages/retry" help:"Deliver failed messages now, with a fresh delivery count."`
	Discard discardMessageCmd                 `cmd:"" at:"POST messages/discard" help:"Delete messages for good."`
	Count   objectCmd[messageCountsRow, none] `cmd:"" at:"messages/count" help:"Count the messages by state, up to 1,000 of each."`
}

type messageRow api.Message

func (m messageRow) columns() []field {
	return []field{
		{"id", m.ID}, {"state", m.State}, {"deployment", m.DeploymentID}, {"topic", m.Topic},
		{"work", strings.TrimSpace(m.Work + " " + m.Subject)}, {"run", m.RunID}, {"deliveries", m.DeliveryCount},
		{"sent", m.CreatedAt}, {"last error", m.LastError},
	}
}

type listMessagesCmd struct {
	State string `field:"-" enum:"waiting,retrying,due,delayed,leased,parked,all" default:"parked" help:"The state: ${enum}."`
	messageFilter
	paging
}

// messageFilter are the flags that select messages.
type messageFilter struct {
	RunID         string `name:"run" field:"runId" placeholder:"ID" help:"Select the messages of this run."`
	Deployment    string `placeholder:"ID" help:"Select the messages for this deployment."`
	Work          string `placeholder:"KIND" help:"Select tasks of this kind, such as run or step."`
	ErrorContains string `placeholder:"TEXT" help:"Select messages whose last error contains this text."`
}

// Run lists the messages.
func (c listMessagesCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	if c.State != "all" {
		r.params["state"] = c.State
	}
	return list[messageRow](ctx, s, r.path(), r.query(), c.paging)
}

func (m messageRow) details() []field {
	due := m.DueAt
	if m.State == "parked" {
		due = api.Time{}
	}
	return []field{{"due", due}, {"parked", m.ParkedAt}}
}

// messageSelection selects the messages to retry or discard: by their IDs, or all that match the flags.
type messageSelection struct {
	IDs []string `arg:"" optional:"" name:"id" help:"The messages' IDs, unless flags select the messages."`
	messageFilter
	Limit  int  `placeholder:"N" help:"Change at most this many messages; up to 1000."`
	DryRun bool `help:"Only print the messages that would be changed."`
}

// change calls one with each ID, or changes all messages that match.
func (c messageSelection) change(ctx context.Context, k *kong.Context, s *Session, one func(id string) error) error {
	r, err := s.request(k)
	switch {
	case err != nil:
		return err
	case len(c.IDs) > 0 && len(r.params) > 0:
		return usageErrorf("give either IDs of messages, or flags that select messages")
	case len(c.IDs) > 0:
		return forEach(c.IDs, one)
	case c.messageFilter == messageFilter{} && r.params["state"] == nil:
		return usageErrorf("give IDs of messages, or flags that select messages, such as --state parked; " +
			"preview them with --dry-run")
	}
	result, raw, err := answerOf[api.ChangedMessages](ctx, s, r)
	if err != nil {
		return err
	}
	if result.More {
		s.note("more messages match: repeat the command")
	}
	if c.DryRun {
		return s.printResult(raw, "%d messages match", result.Matched)
	}
	return s.printResult(raw, "changed %d messages", result.Changed)
}

type retryMessageCmd struct {
	messageSelection
	State string `enum:",parked,retrying" default:"" placeholder:"STATE" help:"Select parked or retrying messages."`
}

// Run retries the messages.
func (c retryMessageCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	return c.change(ctx, k, s, func(id string) error {
		return s.change(ctx, http.MethodPost, path("messages", id, "retry"), nil, "retrying %s", id)
	})
}

type discardMessageCmd struct {
	messageSelection
	State string `enum:",parked,retrying,due,delayed" default:"" placeholder:"STATE" help:"Select messages in this state."`
}

// Run discards the messages.
func (c discardMessageCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	return c.change(ctx, k, s, func(id string) error { return s.client.delete(ctx, path("messages", id)) })
}

type messageCountsRow api.MessageCounts

func (c messageCountsRow) columns() []field {
	text := func(n api.Count) string { return countText(n.Count, n.More) }
	return []field{
		{"parked", text(c.Parked)}, {"retrying", text(c.Retrying)}, {"leased", text(c.Leased)}, {"due", text(c.Due)},
		{"delayed", text(c.Delayed)}, {"oldest due", c.OldestDue},
	}
}
