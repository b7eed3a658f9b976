package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
)

type hooksCmd struct {
	List   listHooksCmd  `cmd:"" help:"List the hooks that are there now, or all of a run."`
	Show   showHookCmd   `cmd:"" help:"Show a hook with its metadata."`
	Resume resumeHookCmd `cmd:"" help:"Send a payload to the run that waits for it."`
}

var hookColumns = []column[hook]{
	{"ID", func(_ *Session, h hook) string { return h.ID }},
	{"RUN", func(_ *Session, h hook) string { return h.RunID }},
	{"TOKEN", func(_ *Session, h hook) string { return h.Token }},
	{"STATUS", func(_ *Session, h hook) string { return h.Status }},
	{"CREATED", func(s *Session, h hook) string { return s.when(h.CreatedAt) }},
	{"RECEIVED", func(s *Session, h hook) string { return s.when(h.ReceivedAt) }},
	{"SIGNAL", func(_ *Session, h hook) string { return h.Signal }},
}

type listHooksCmd struct {
	RunID string `name:"run" placeholder:"ID" help:"All hooks that this run has, had or asked for."`
	paging
	ordering
}

// Run lists the hooks.
func (c listHooksCmd) Run(ctx context.Context, s *Session) error {
	at := path("hooks")
	if c.RunID != "" {
		at = path("runs", c.RunID, "hooks")
	}
	query := url.Values{}
	c.into(query)
	return list(ctx, s, at, query, c.paging, hookColumns)
}

type showHookCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	ID    string `arg:"" name:"hook" help:"The hook's ID."`
}

// Run prints the hook.
func (c showHookCmd) Run(ctx context.Context, s *Session) error {
	var h hook
	raw, err := s.client.get(ctx, path("runs", c.RunID, "hooks", c.ID), nil, &h)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	webhook := ""
	if h.Webhook {
		webhook = s.client.base.String() + "/hooks/" + url.PathEscape(h.Token)
	}
	return s.fields([]field{
		{"hook", clean(h.ID)},
		{"run", h.RunID},
		{"token", clean(h.Token)},
		{"status", h.Status},
		{"webhook", webhook},
		{"signal", clean(h.Signal)},
		{"condition", clean(h.Condition)},
		{"created", s.exactly(h.CreatedAt)},
		{"received", s.exactly(h.ReceivedAt)},
		{"disposed", s.exactly(h.DisposedAt)},
		{"retained", s.exactly(h.RetainedUntil)},
		{"taken by", h.ConflictingRunID},
		{"metadata", value(h.Metadata, h.MetadataEncoding)},
	})
}

type resumeHookCmd struct {
	Token    string   `arg:"" help:"The hook's token; its ID with --run."`
	Payload  document `short:"p" default:"null" placeholder:"JSON" help:"What the run gets: ${json}."`
	ResumeID string   `placeholder:"ID" help:"Makes the command safe to repeat: it counts once."`
	RunID    string   `name:"run" placeholder:"ID" help:"The run that has the hook, to name it by its ID."`
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
	raw, err := s.client.do(ctx, http.MethodPost, at, options{}.json("payload", payload).text("resumeId", c.ResumeID))
	if err != nil {
		return err
	}
	var done struct {
		RunID, HookID string
		Seq           json.Number
		Repeated      bool
	}
	if err := s.client.decode(raw, &done); err != nil {
		return err
	}
	if done.Repeated {
		s.note("it was there already")
	}
	return s.say(raw, "%s goes on: event %s of its log", done.RunID, done.Seq)
}
