package remote

import (
	"context"
	"net/http"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

var pauseColumns = []column[api.Pause]{
	{"PAUSED", func(p api.Pause) any { return p.Kind }},
	{"NAME", func(p api.Pause) any { return p.Name }},
	{"BY", func(p api.Pause) any { return p.PausedBy }},
	{"SINCE", func(p api.Pause) any { return p.PausedAt }},
	{"NOTE", func(p api.Pause) any { return p.Note }},
}

type pausesCmd struct{}

// Run lists what is paused.
func (pausesCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("pauses"), nil, pauseColumns)
}

// pauseFlags are those of the commands that pause something.
type pauseFlags struct {
	Note string `placeholder:"TEXT" help:"The reason, shown with it."`
}

func (f pauseFlags) pause(ctx context.Context, s *Session, kind api.PauseKind, name string) error {
	body := jsonBody{"note": f.Note}.omitZero()
	return s.change(ctx, http.MethodPut, path("pauses", string(kind), name), body, "%s %s is paused", kind, name)
}

// resume ends a pause.
func (s *Session) resume(ctx context.Context, kind api.PauseKind, name string) error {
	return s.change(ctx, http.MethodDelete, path("pauses", string(kind), name), nil, "%s %s goes on", kind, name)
}

type pauseRunCmd struct {
	ID string `arg:"" help:"The run's ID."`
	pauseFlags
}

// Run pauses the run.
func (c pauseRunCmd) Run(ctx context.Context, s *Session) error {
	return c.pause(ctx, s, api.PauseKindRun, c.ID)
}

type resumeRunCmd struct {
	ID string `arg:"" help:"The run's ID."`
}

// Run resumes the run.
func (c resumeRunCmd) Run(ctx context.Context, s *Session) error {
	return s.resume(ctx, api.PauseKindRun, c.ID)
}

type pauseWorkflowCmd struct {
	Name string `arg:"" help:"The workflow's name."`
	pauseFlags
}

// Run pauses the workflow.
func (c pauseWorkflowCmd) Run(ctx context.Context, s *Session) error {
	return c.pause(ctx, s, api.PauseKindWorkflow, c.Name)
}

type resumeWorkflowCmd struct {
	Name string `arg:"" help:"The workflow's name."`
}

// Run resumes the workflow.
func (c resumeWorkflowCmd) Run(ctx context.Context, s *Session) error {
	return s.resume(ctx, api.PauseKindWorkflow, c.Name)
}

type pauseDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`
	pauseFlags
}

// Run pauses the deployment.
func (c pauseDeploymentCmd) Run(ctx context.Context, s *Session) error {
	return c.pause(ctx, s, api.PauseKindDeployment, c.ID)
}

type resumeDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`
}

// Run resumes the deployment.
func (c resumeDeploymentCmd) Run(ctx context.Context, s *Session) error {
	return s.resume(ctx, api.PauseKindDeployment, c.ID)
}
