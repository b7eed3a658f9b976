package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type messagesCmd struct {
	List    listMessagesCmd   `cmd:"" help:"List messages, by default the parked ones."`
	Show    showMessageCmd    `cmd:"" help:"Show a message."`
	Retry   retryMessageCmd   `cmd:"" help:"Deliver failed messages now, with a fresh delivery count."`
	Discard discardMessageCmd `cmd:"" help:"Delete messages for good."`
}

var messageColumns = []column[message]{
	{"ID", func(m message) any { return m.ID }},
	{"STATE", func(m message) any { return m.State }},
	{"DEPLOYMENT", func(m message) any { return m.DeploymentID }},
	{"TOPIC", func(m message) any { return m.Topic }},
	{"WORK", func(m message) any { return strings.TrimSpace(m.Work + " " + m.Subject) }},
	{"RUN", func(m message) any { return m.RunID }},
	{"DELIVERIES", func(m message) any { return m.DeliveryCount }},
	{"SENT", func(m message) any { return m.CreatedAt }},
	{"LAST ERROR", func(m message) any { return m.LastError }},
}

type listMessagesCmd struct {
	State string `enum:"waiting,leased,parked,all" default:"parked" help:"List the messages in this state: ${enum}."`
	RunID string `name:"run" placeholder:"ID" help:"List the messages of this run."`
	paging
}

// Run lists the messages.
func (c listMessagesCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	if c.State != "all" {
		query.Set("state", c.State)
	}
	setParam(query, "runId", c.RunID)
	return list(ctx, s, path("messages"), query, c.paging, messageColumns)
}

type showMessageCmd struct {
	ID string `arg:"" help:"The message's ID."`
}

// Run prints the message.
func (c showMessageCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("messages", c.ID), nil, func(m message) []field {
		due := m.DueAt
		if m.State == "parked" {
			due = time.Time{}
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

type retryMessageCmd struct {
	IDs []string `arg:"" name:"id" help:"The messages' IDs."`
}

// Run retries the messages.
func (c retryMessageCmd) Run(ctx context.Context, s *Session) error {
	return forEach(c.IDs, func(id string) error {
		raw, err := s.client.do(ctx, http.MethodPost, path("messages", id, "retry"), nil)
		if err != nil {
			return err
		}
		return s.printResult(raw, "retrying %s", id)
	})
}

type discardMessageCmd struct {
	IDs []string `arg:"" name:"id" help:"The messages' IDs."`
}

// Run discards the messages.
func (c discardMessageCmd) Run(ctx context.Context, s *Session) error {
	return forEach(c.IDs, func(id string) error { return s.client.delete(ctx, path("messages", id)) })
}
