package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

type messagesCmd struct {
	List    listMessagesCmd   `cmd:"" help:"List messages; the parked ones unless told otherwise."`
	Show    showMessageCmd    `cmd:"" help:"Show a message."`
	Retry   retryMessageCmd   `cmd:"" help:"Deliver messages that failed now, as if for the first time."`
	Discard discardMessageCmd `cmd:"" help:"Delete messages for good."`
}

var messageColumns = []column[message]{
	{"ID", func(_ *Session, m message) string { return m.ID }},
	{"STATE", func(_ *Session, m message) string { return m.State }},
	{"DEPLOYMENT", func(_ *Session, m message) string { return m.DeploymentID }},
	{"TOPIC", func(_ *Session, m message) string { return m.Topic }},
	{"WORK", func(_ *Session, m message) string { return strings.TrimSpace(m.Work + " " + m.Subject) }},
	{"RUN", func(_ *Session, m message) string { return m.RunID }},
	{"DELIVERIES", func(_ *Session, m message) string { return strconv.Itoa(m.DeliveryCount) }},
	{"SENT", func(s *Session, m message) string { return s.when(m.CreatedAt) }},
	{"LAST ERROR", func(_ *Session, m message) string { return m.LastError }},
}

type listMessagesCmd struct {
	State string `enum:"waiting,leased,parked,all" default:"parked" help:"Which to list: ${enum}."`
	RunID string `name:"run" placeholder:"ID" help:"Those about this run."`
	paging
	ordering
}

// Run lists the messages.
func (c listMessagesCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	if c.State != "all" {
		query.Set("state", c.State)
	}
	set(query, "runId", c.RunID)
	c.into(query)
	return list(ctx, s, path("messages"), query, c.paging, messageColumns)
}

type showMessageCmd struct {
	ID string `arg:"" help:"The message's ID."`
}

// Run prints the message.
func (c showMessageCmd) Run(ctx context.Context, s *Session) error {
	var m message
	raw, err := s.client.get(ctx, path("messages", c.ID), nil, &m)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	due := s.exactly(m.DueAt)
	if m.State == "parked" {
		due = ""
	}
	return s.fields([]field{
		{"message", m.ID},
		{"state", m.State},
		{"deployment", clean(m.DeploymentID)},
		{"topic", clean(m.Topic)},
		{"work", clean(strings.TrimSpace(m.Work + " " + m.Subject))},
		{"run", m.RunID},
		{"deliveries", strconv.Itoa(m.DeliveryCount)},
		{"sent", s.exactly(m.CreatedAt)},
		{"due", due},
		{"parked", s.exactly(m.ParkedAt)},
		{"last error", clean(m.LastError)},
	})
}

type retryMessageCmd struct {
	IDs []string `arg:"" name:"id" help:"The messages' IDs."`
}

// Run retries the messages.
func (c retryMessageCmd) Run(ctx context.Context, s *Session) error {
	return each(c.IDs, func(id string) error {
		raw, err := s.client.do(ctx, http.MethodPost, path("messages", id, "retry"), nil)
		if err != nil {
			return err
		}
		return s.say(raw, "%s is on its way", id)
	})
}

type discardMessageCmd struct {
	IDs []string `arg:"" name:"id" help:"The messages' IDs."`
}

// Run discards the messages.
func (c discardMessageCmd) Run(ctx context.Context, s *Session) error {
	return each(c.IDs, func(id string) error {
		_, err := s.client.do(ctx, http.MethodDelete, path("messages", id), nil)
		return err
	})
}
