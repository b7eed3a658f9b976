package remote

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type deploymentsCmd struct {
	Add    addDeploymentCmd    `cmd:"" help:"Register a deployment; one that exists keeps what is not given."`
	Move   moveDeploymentCmd   `cmd:"" help:"Change the URL of a deployment; messages that failed are sent there at once."`
	List   listDeploymentsCmd  `cmd:"" help:"List the deployments."`
	Show   showDeploymentCmd   `cmd:"" help:"Show a deployment."`
	Pause  pauseDeploymentCmd  `cmd:"" help:"Call a deployment no more until it is resumed."`
	Resume resumeDeploymentCmd `cmd:"" help:"Call a paused deployment again."`
	Remove removeDeploymentCmd `cmd:"" help:"Unregister a deployment; its messages wait until it is registered again."`
}

type addDeploymentCmd struct {
	ID        string   `arg:"" help:"The app's STEPWELL_DEPLOYMENT_ID."`
	URL       string   `arg:"" help:"The app's URL, such as http://127.0.0.1:3000."`
	StepsOnly bool     `xor:"what" help:"It executes steps, and has no workflow."`
	Workflows []string `name:"workflow" short:"w" sep:"none" placeholder:"NAME" xor:"what" help:"${hasWorkflow}"`

	MaxConcurrent *int   `placeholder:"N" help:"How many calls may be under way at once; 0 for any number."`
	Health        string `placeholder:"PATH" help:"Probe this path of its host; no calls while it fails; off for none."`
}

// Run registers the deployment.
func (c addDeploymentCmd) Run(ctx context.Context, s *Session) error {
	body := jsonBody{"url": c.URL, "workflows": c.Workflows, "stepsOnly": c.StepsOnly}.omitZero()
	if c.MaxConcurrent != nil {
		body["maxConcurrent"] = *c.MaxConcurrent
	}
	switch c.Health {
	case "":
	case "off":
		body["health"] = nil
	default:
		body["health"] = jsonBody{"path": c.Health}
	}
	return s.change(ctx, http.MethodPut, path("deployments", c.ID), body, "registered %s at %s", c.ID, c.URL)
}

type moveDeploymentCmd struct {
	ID  string `arg:"" help:"The deployment's ID."`
	URL string `arg:"" help:"The app's new URL, such as http://127.0.0.1:3000."`

	Check bool `help:"Move nothing: only replay the open runs with the code at the URL, which executes nothing."`
}

// Run moves the deployment, or checks which of its runs could go on.
func (c moveDeploymentCmd) Run(ctx context.Context, s *Session) error {
	if c.Check {
		return c.check(ctx, s)
	}
	body := jsonBody{"url": c.URL}
	return s.change(ctx, http.MethodPatch, path("deployments", c.ID), body, "moved %s to %s", c.ID, c.URL)
}

var checkedColumns = []column[api.CheckedRun]{
	{"RUN", func(r api.CheckedRun) any { return r.RunID }},
	{"WORKFLOW", func(r api.CheckedRun) any { return r.Workflow }},
	{"VERDICT", func(r api.CheckedRun) any { return r.Verdict }},
	{"CODE", func(r api.CheckedRun) any { return r.Code }},
	{"MESSAGE", func(r api.CheckedRun) any { return r.Message }},
}

// check prints the open runs that do not replay, and fails if there are any.
func (c moveDeploymentCmd) check(ctx context.Context, s *Session) error {
	body := jsonBody{"url": c.URL}
	table := tablePrinter[api.CheckedRun]{Session: s, columns: checkedColumns}
	checked, replayed := int64(0), int64(0)
	for more := true; more; {
		var found api.CheckedRuns
		raw, err := s.client.call(ctx, http.MethodPost, path("deployments", c.ID, "check"), body, &found)
		if err != nil {
			return err
		}
		if s.json {
			err = s.printJSON(raw)
		} else if len(found.Runs) > 0 {
			err = table.table(found.Runs)
		}
		if err != nil {
			return err
		}
		checked, replayed = checked+found.Checked, replayed+found.Replayed
		body["cursor"], more = found.Cursor, found.More
	}
	if replayed < checked {
		return exitError{ExitConflict, fmt.Errorf("%d of %d open runs do not replay at %s", checked-replayed, checked, c.URL)}
	}
	s.note("all %d open runs replay at %s", checked, c.URL)
	return nil
}

var deploymentColumns = []column[api.Deployment]{
	{"ID", func(d api.Deployment) any { return d.ID }},
	{"URL", func(d api.Deployment) any { return calledAt(d) }},
	{"OPEN RUNS", func(d api.Deployment) any { return d.OpenRuns }},
	{"UPDATED", func(d api.Deployment) any { return d.UpdatedAt }},
	{"AWAY SINCE", func(d api.Deployment) any { return d.UnreachableSince }},
	{"WORKFLOWS", func(d api.Deployment) any { return workflowsOf(d) }},
}

// flowURL begins the URL of a version of a flow, which the server executes.
const flowURL = "flow:"

// calledAt says where the deployment is called.
func calledAt(d api.Deployment) string {
	switch {
	case strings.HasPrefix(d.URL, flowURL):
		return "flow " + strings.Replace(strings.TrimPrefix(d.URL, flowURL), "@", ", version ", 1)
	case d.URL != "pull:":
		return d.URL
	case d.AnsweredAt.IsZero():
		return "pulled, no poll yet"
	default:
		return "pulled, last poll " + timestamp(d.AnsweredAt.Time)
	}
}

// workflowsOf says which workflows the deployment has; nothing if it may have any.
func workflowsOf(d api.Deployment) string {
	if d.StepsOnly {
		return "none, steps only"
	}
	return strings.Join(d.Workflows, " ")
}

// healthText says how the deployment is; empty if it is not probed.
func healthText(h *api.Health) string {
	if h == nil || h.Status != "unhealthy" {
		return orZero(h).Status
	}
	return fmt.Sprintf("unhealthy, not called until %s: %s", timestamp(h.TrialAt.Time), h.LastError)
}

type listDeploymentsCmd struct{}

// Run lists the deployments.
func (listDeploymentsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("deployments"), nil, deploymentColumns)
}

type showDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`
}

// Run prints the deployment.
func (c showDeploymentCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("deployments", c.ID), nil, func(d api.Deployment) []field {
		return []field{
			{"deployment", d.ID},
			{"url", calledAt(d)},
			{"build", d.Build},
			{"workflows", workflowsOf(d)},
			{"calls at once", bound(d.MaxConcurrent)},
			{"open runs", d.OpenRuns},
			{"waiting messages", d.WaitingMessages},
			{"answered", d.AnsweredAt},
			{"away since", d.UnreachableSince},
			{"not reached", d.FailedAt},
			{"last error", d.LastError},
			{"health", healthText(d.Health)},
			{"created", d.CreatedAt},
			{"updated", d.UpdatedAt},
		}
	})
}

type removeDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`
}

// Run unregisters the deployment.
func (c removeDeploymentCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("deployments", c.ID))
}
