package remote

import (
	"context"
	"errors"
	"net/url"
	"strconv"
)

type stepsCmd struct {
	List listStepsCmd `cmd:"" help:"List the steps of a run, in the order they were created."`
	Show showStepCmd  `cmd:"" help:"Show a step with its input and its result."`
}

var stepColumns = []column[step]{
	{"ID", func(_ *Session, st step) string { return st.ID }},
	{"NAME", func(_ *Session, st step) string { return st.Name }},
	{"STATUS", func(_ *Session, st step) string { return st.Status }},
	{"ATTEMPT", func(_ *Session, st step) string { return strconv.Itoa(st.Attempt) }},
	{"CREATED", func(s *Session, st step) string { return s.when(st.CreatedAt) }},
	{"TOOK", func(_ *Session, st step) string { return took(st.StartedAt, st.CompletedAt) }},
	{"RETRY", func(s *Session, st step) string { return s.when(st.RetryAfter) }},
}

type listStepsCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	paging
	ordering
}

// Run lists the steps.
func (c listStepsCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	c.into(query)
	return list(ctx, s, path("runs", c.RunID, "steps"), query, c.paging, stepColumns)
}

type showStepCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	ID    string `arg:"" name:"step" help:"The step's ID."`
}

// Run prints the step.
func (c showStepCmd) Run(ctx context.Context, s *Session) error {
	var st step
	raw, err := s.client.get(ctx, path("runs", c.RunID, "steps", c.ID), nil, &st)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	var details string
	if st.Error != nil {
		details = value(st.Error.Details, "")
	}
	return s.fields([]field{
		{"step", clean(st.ID)},
		{"run", st.RunID},
		{"name", clean(st.Name)},
		{"status", st.Status},
		{"attempt", strconv.Itoa(st.Attempt)},
		{"deployment", clean(st.Deployment)},
		{"child", st.ChildID},
		{"created", s.exactly(st.CreatedAt)},
		{"started", s.exactly(st.StartedAt)},
		{"ended", s.exactly(st.CompletedAt)},
		{"took", took(st.StartedAt, st.CompletedAt)},
		{"retry", s.exactly(st.RetryAfter)},
		{"input", value(st.Input, st.InputEncoding)},
		{"output", value(st.Output, st.OutputEncoding)},
		{"error", clean(st.Error.String())},
		{"details", details},
	})
}

type waitsCmd struct {
	List listWaitsCmd `cmd:"" help:"List the waits that a run has or had."`
}

var waitColumns = []column[wait]{
	{"ID", func(_ *Session, w wait) string { return w.ID }},
	{"STATUS", func(_ *Session, w wait) string { return w.Status }},
	{"RESUMES", func(s *Session, w wait) string { return s.when(w.ResumeAt) }},
	{"CREATED", func(s *Session, w wait) string { return s.when(w.CreatedAt) }},
	{"ENDED", func(s *Session, w wait) string { return s.when(w.CompletedAt) }},
}

type listWaitsCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	paging
	ordering
}

// Run lists the waits.
func (c listWaitsCmd) Run(ctx context.Context, s *Session) error {
	query := url.Values{}
	c.into(query)
	return list(ctx, s, path("runs", c.RunID, "waits"), query, c.paging, waitColumns)
}
