package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type messagesCmd struct {
	List    listMessagesCmd   `cmd:"" help:"List messages, by default the parked ones."`
	Show    showMessageCmd    `cmd:"" help:"Show a message."`
	Retry   retryMessageCmd   `cmd:"" help:"Deliver failed messages now, with a fresh delivery count."`
	Discard discardMessageCmd `cmd:"" help:"Delete messages for good."`
	Count   countMessagesCmd  `cmd:"" help:"Count the messages by state, up to 1,000 of each."`
}

var messageColumns = []column[api.Message]{
	{"ID", func(m api.Message) any { return m.ID }},
	{"STATE", func(m api.Message) any { return m.State }},
	{"DEPLOYMENT", func(m api.Message) any { return m.DeploymentID }},
	{"TOPIC", func(m api.Message) any { return m.Topic }},
	{"WORK", func(m api.Message) any { return strings.TrimSpace(m.Work + " " + m.Subject) }},
	{"RUN", func(m api.Message) any { return m.RunID }},
	{"DELIVERIES", func(m api.Message) any { return m.DeliveryCount }},
	{"SENT", func(m api.Message) any { return m.CreatedAt }},
	{"LAST ERROR", func(m api.Message) any { return m.LastError }},
}

type listMessagesCmd struct {
	State string `enum:"waiting,retrying,due,delayed,leased,parked,all" default:"parked" help:"The state: ${enum}."`
	messageFilter
	paging
}

// messageFilter are the flags that select messages.
type messageFilter struct {
	RunID         string `name:"run" placeholder:"ID" help:"Select the messages of this run."`
	Deployment    string `placeholder:"ID" help:"Select the messages for this deployment."`
	Work          string `placeholder:"KIND" help:"Select tasks of this kind, such as run or step."`
	ErrorContains string `placeholder:"TEXT" help:"Select messages whose last error contains this text."`
}

// Run lists the messages.
func (c listMessagesCmd) Run(ctx context.Context, s *Session) error {
	query := nonEmpty(url.Values{
		"runId": {c.RunID}, "deployment": {c.Deployment}, "work": {c.Work}, "errorContains": {c.ErrorContains},
	})
	if c.State != "all" {
		query.Set("state", c.State)
	}
	return list(ctx, s, path("messages"), query, c.paging, messageColumns)
}

type showMessageCmd struct {
	ID string `arg:"" help:"The message's ID."`
}

// Run prints the message.
func (c showMessageCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("messages", c.ID), nil, func(m api.Message) []field {
		due := m.DueAt
		if m.State == "parked" {
			due = api.Time{}
		}
		return []field{
			{"message", m.ID},
			{"state", m.State},
			{"deployment", m.DeploymentID},
			{"topic", m.Topic},
			{"work", strings.TrimSpace(m.Work + " " + m.Subject)},
			{"run", m.RunID},
			{"deliveries", m.DeliveryCount},
			{"sent", m.CreatedAt},
			{"due", due},
			{"parked", m.ParkedAt},
			{"last error", m.LastError},
		}
	})
}

// messageSelection selects the messages to retry or discard: by their IDs, or all that match the flags.
type messageSelection struct {
	IDs []string `arg:"" optional:"" name:"id" help:"The messages' IDs, unless flags select the messages."`
	messageFilter
	Limit  int  `placeholder:"N" help:"Change at most this many messages; up to 1000."`
	DryRun bool `help:"Only print the messages that would be changed."`
}

// change calls one with each ID, or changes all messages in the state that match.
func (c messageSelection) change(ctx context.Context, s *Session, verb, state string, one func(id string) error) error {
	body := jsonBody{
		"state": state, "runId": c.RunID, "deployment": c.Deployment, "work": c.Work, "errorContains": c.ErrorContains,
	}.omitZero()
	switch {
	case len(c.IDs) == 0 && len(body) == 0:
		return usageErrorf("give IDs of messages, or flags that select messages, such as --state parked; " +
			"preview them with --dry-run")
	case len(c.IDs) > 0 && (len(body) > 0 || c.DryRun || c.Limit != 0):
		return usageErrorf("give either IDs of messages, or flags that select messages")
	case len(c.IDs) > 0:
		return forEach(c.IDs, one)
	}
	body["dryRun"], body["limit"] = c.DryRun, c.Limit
	var result api.ChangedMessages
	raw, err := s.client.call(ctx, http.MethodPost, path("messages", verb), body.omitZero(), &result)
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
func (c retryMessageCmd) Run(ctx context.Context, s *Session) error {
	return c.change(ctx, s, "retry", c.State, func(id string) error {
		return s.change(ctx, http.MethodPost, path("messages", id, "retry"), nil, "retrying %s", id)
	})
}

type discardMessageCmd struct {
	messageSelection
	State string `enum:",parked,retrying,due,delayed" default:"" placeholder:"STATE" help:"Select messages in this state."`
}

// Run discards the messages.
func (c discardMessageCmd) Run(ctx context.Context, s *Session) error {
	return c.change(ctx, s, "discard", c.State, func(id string) error {
		return s.client.delete(ctx, path("messages", id))
	})
}

type countMessagesCmd struct{}

// Run prints the counts.
func (countMessagesCmd) Run(ctx context.Context, s *Session) error {
	text := func(n api.Count) any { return countText(n.Count, n.More) }
	return show(ctx, s, path("messages", "count"), nil, func(c api.MessageCounts) []field {
		return []field{
			{"parked", text(c.Parked)},
			{"retrying", text(c.Retrying)},
			{"leased", text(c.Leased)},
			{"due", text(c.Due)},
			{"delayed", text(c.Delayed)},
			{"oldest due", c.OldestDue},
		}
	})
}
