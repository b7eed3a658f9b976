package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type deploymentsCmd struct {
	Add    changeCmd[deploymentFlags]           `cmd:"" at:"PUT deployments/*" says:"registered $1 at $url" help:"Register a deployment; one that exists keeps what is not given."`
	Move   moveDeploymentCmd                    `cmd:"" at:"PATCH deployments/*" help:"Change the URL of a deployment; messages that failed are sent there at once."`
	List   wholeListCmd[deploymentRow, none]    `cmd:"" at:"deployments" help:"List the deployments."`
	Show   objectCmd[deploymentRow, identified] `cmd:"" at:"deployments/*" help:"Show a deployment."`
	Pause  changeCmd[identifiedNote]            `cmd:"" at:"PUT pauses/deployment/*" says:"deployment $1 is paused" help:"Call a deployment no more until it is resumed."`
	Resume changeCmd[identified]                `cmd:"" at:"DELETE pauses/deployment/*" says:"deployment $1 goes on" help:"Call a paused deployment again."`
	Remove removeCmd[ids]                       `cmd:"" at:"DELETE deployments/*" help:"Unregister deployments; their messages wait until they are registered again."`
}

// identifiedNote are the arguments of commands that pause what has an ID.
type identifiedNote struct {
	identified
	note
}

type deploymentFlags struct {
	ID        string   `arg:"" help:"The app's STEPWELL_DEPLOYMENT_ID."`
	URL       string   `arg:"" field:"url" help:"The app's URL, such as http://127.0.0.1:3000."`
	StepsOnly bool     `xor:"what" help:"It executes steps, and has no workflow."`
	Workflows []string `name:"workflow" field:"workflows" short:"w" sep:"none" placeholder:"NAME" xor:"what" help:"${hasWorkflow}"`

	MaxConcurrent *int       `placeholder:"N" help:"How many calls may be under way at once; 0 for any number."`
	Health        healthFlag `placeholder:"PATH" help:"Probe this path of its host; no calls while it fails; off for none."`
}

// healthFlag is the path that is probed, or off.
type healthFlag string

// MarshalJSON implements [json.Marshaler].
func (f healthFlag) MarshalJSON() ([]byte, error) {
	if f == "off" {
		return []byte("null"), nil
	}
	return json.Marshal(jsonBody{"path": string(f)})
}

type moveDeploymentCmd struct {
	ID  string `arg:"" help:"The deployment's ID."`
	URL string `arg:"" field:"url" help:"The app's new URL, such as http://127.0.0.1:3000."`

	Check bool `field:"-" help:"Move nothing: only replay the open runs with the code at the URL, which executes nothing."`
}

// Run moves the deployment, or checks which of its runs could go on.
func (c moveDeploymentCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	if c.Check {
		return c.check(ctx, s, r.params)
	}
	return s.change(ctx, r.method, r.path(), r.params, "moved %s to %s", c.ID, c.URL)
}

func checkedColumns(r api.CheckedRun) []field {
	return []field{
		{"run", r.RunID}, {"workflow", r.Workflow}, {"verdict", r.Verdict}, {"code", r.Code}, {"message", r.Message},
	}
}

// check prints the open runs that do not replay, and fails if there are any.
func (c moveDeploymentCmd) check(ctx context.Context, s *Session, body jsonBody) error {
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

type deploymentRow api.Deployment

func (d deploymentRow) columns() []field {
	return []field{
		{"id", d.ID}, {"url", d.calledAt()}, {"open runs", d.OpenRuns}, {"updated", d.UpdatedAt},
		{"away since", d.UnreachableSince}, {"workflows", d.workflows()},
	}
}

// flowURL begins the URL of a version of a flow, which the server executes.
const flowURL = "flow:"

// calledAt says where the deployment is called.
func (d deploymentRow) calledAt() string {
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

// workflows says which workflows the deployment has; nothing if it may have any.
func (d deploymentRow) workflows() string {
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

func (d deploymentRow) details() []field {
	return []field{
		{"build", d.Build}, {"calls at once", bound(d.MaxConcurrent)}, {"waiting messages", d.WaitingMessages},
		{"answered", d.AnsweredAt}, {"not reached", d.FailedAt}, {"last error", d.LastError},
		{"health", healthText(d.Health)}, {"created", d.CreatedAt},
	}
}
