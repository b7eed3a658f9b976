package remote

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// addReading adds the tools that find and explain runs.
func (t *toolSet) addReading() {
	addTool(t, readsOnly, "whoami", whoamiTool,
		"Says whose API key this is: its project, and its role, which decides what it may do.")
	addTool(t, readsOnly, "list_attention", attentionTool,
		"Lists what needs a person in the project, the most urgent first: blocked and stranded runs, deployments "+
			"that cannot be reached, workflows that fail more than usual. Begin here.")
	addTool(t, readsOnly, "list_failures", failuresTool,
		"Groups the last 1,000 runs that failed by workflow, step, code and message, with a run as an example of "+
			"each group.")
	addTool(t, readsOnly, "list_workflows", workflowsTool,
		"Lists the workflows that have runs, by name, with the number of open runs.")
	addTool(t, readsOnly, "list_runs", listRunsTool,
		"Lists runs, the newest first, with their status, why they are not done, and the errors with which they "+
			"failed.")
	addTool(t, readsOnly, "get_run", getRunTool,
		"Shows a run: status, times, attributes, input, output and error.")
	addTool(t, readsOnly, "explain_run", explainRunTool,
		"Explains why a run is not done: what it waits for or what fails, since when, what comes next, and which "+
			"commands help.")
	addTool(t, readsOnly, "wait_run", waitRunTool,
		"Waits until a run has ended, for some seconds, and shows it. Call again if it has not.")
	addTool(t, readsOnly, "list_hooks", listHooksTool,
		"Lists the open hooks, with the tokens that resume them, or all hooks of a run. A hook is where a run "+
			"waits for somebody or something outside.")
}

type noInput struct{}

type runInput struct {
	Run string `json:"run" jsonschema:"The run's ID, such as wrun_01JD5A8R8D0000000000000000."`
}

func whoamiTool(ctx context.Context, s *Session, _ noInput) (answer, error) {
	raw, err := s.client.get(ctx, path("whoami"), nil, new(api.Client))
	if err != nil {
		return answer{}, err
	}
	return objectAnswer(s, raw, func(to *Session, c api.Client) error { return to.printFields(clientFields(c)) })
}

var attentionColumns = []column[api.AttentionItem]{
	{"WHAT", func(i api.AttentionItem) any { return attentionText(i) }},
	{"SINCE", func(i api.AttentionItem) any { return i.Since }},
	{"RUN", func(i api.AttentionItem) any { return i.RunID }},
	{"UNTIL", func(i api.AttentionItem) any { return i.Until }},
}

func attentionTool(ctx context.Context, s *Session, _ noInput) (answer, error) {
	return wholeListAnswer(ctx, s, path("attention"), nil, rows(attentionColumns))
}

type failuresInput struct {
	Window string `json:"window,omitempty" jsonschema:"How far back, such as 1h: default 24h, up to 2160h."`
}

func failuresTool(ctx context.Context, s *Session, in failuresInput) (answer, error) {
	query := nonEmpty(url.Values{"window": {in.Window}})
	return wholeListAnswer(ctx, s, path("failures"), query, rows(failureColumns))
}

func workflowsTool(ctx context.Context, s *Session, in toolPage) (answer, error) {
	return listAnswer(ctx, s, path("workflows"), nil, in, rows(workflowColumns))
}

//nolint:lll // tags cannot be broken
type listRunsInput struct {
	Workflow      string            `json:"workflow,omitempty" jsonschema:"Only runs of this workflow: its whole name."`
	Status        []api.RunStatus   `json:"status,omitempty" jsonschema:"Only runs in one of these statuses."`
	Need          api.Need          `json:"need,omitempty" jsonschema:"Only runs that have not ended and are stuck, retrying after failures, or waiting for somebody."`
	ErrorCode     string            `json:"errorCode,omitempty" jsonschema:"Only failed runs whose error has this code."`
	Key           string            `json:"key,omitempty" jsonschema:"Only runs with this key."`
	Attributes    map[string]string `json:"attributes,omitempty" jsonschema:"Only runs with these attributes: up to 8."`
	Deployment    string            `json:"deployment,omitempty" jsonschema:"Only runs of the deployment with this ID."`
	Parent        string            `json:"parent,omitempty" jsonschema:"Only children of the run with this ID."`
	CreatedAfter  timeFlag          `json:"createdAfter,omitempty" jsonschema:"Only runs created since: an RFC 3339 time, or an age such as 2h or 30d."`
	CreatedBefore timeFlag          `json:"createdBefore,omitempty" jsonschema:"Only runs created before: a time or an age."`
	EndedAfter    timeFlag          `json:"endedAfter,omitempty" jsonschema:"Only runs that ended since: a time or an age."`
	toolPage
}

func listRunsTool(ctx context.Context, s *Session, in listRunsInput) (answer, error) {
	f := runListFilter{
		runFilter: runFilter{
			Workflow: in.Workflow, Key: in.Key, Parent: in.Parent, Attr: in.Attributes,
			CreatedAfter: in.CreatedAfter, CreatedBefore: in.CreatedBefore,
		},
		Deployment: in.Deployment, ErrorCode: in.ErrorCode, EndedAfter: in.EndedAfter,
	}
	for _, status := range in.Status {
		f.Status = append(f.Status, string(status))
	}
	query, err := f.query(s)
	if err != nil {
		return answer{}, err
	}
	maps.Copy(query, nonEmpty(url.Values{"need": {string(in.Need)}, "include": {"reason"}}))
	return listAnswer(ctx, s, path("runs"), query, in.toolPage, rows(runColumns))
}

func getRunTool(ctx context.Context, s *Session, in runInput) (answer, error) {
	raw, err := s.client.get(ctx, path("runs", in.Run), nil, new(api.Run))
	if err != nil {
		return answer{}, err
	}
	return runAnswer(s, raw)
}

func runAnswer(s *Session, raw json.RawMessage) (answer, error) {
	return objectAnswer(s, raw, (*Session).printRun)
}

func explainRunTool(ctx context.Context, s *Session, in runInput) (answer, error) {
	raw, err := s.client.get(ctx, path("runs", in.Run, "why"), nil, new(api.Explanation))
	if err != nil {
		return answer{}, err
	}
	return objectAnswer(s, raw, (*Session).printExplanation)
}

type waitRunInput struct {
	runInput
	Seconds int `json:"seconds,omitempty" jsonschema:"How long to wait: default 20, up to 50."`
}

// Clients give a tool a minute, as a rule.
const defaultWait, maxWait = 20, 50

func waitRunTool(ctx context.Context, s *Session, in waitRunInput) (answer, error) {
	seconds := defaultWait
	if in.Seconds > 0 {
		seconds = min(in.Seconds, maxWait)
	}
	hold := time.Duration(seconds) * time.Second
	var r api.Run
	raw, err := s.client.get(ctx, path("runs", in.Run, "wait"), url.Values{"timeout": {hold.String()}}, &r)
	if err != nil {
		return answer{}, err
	}
	a, err := runAnswer(s, raw)
	if r.CompletedAt.IsZero() {
		a.text += "\n(it has not ended: call again, or explain_run says why)"
	}
	return a, err
}

//nolint:lll // tags cannot be broken
type listHooksInput struct {
	Run         string `json:"run,omitempty" jsonschema:"List all hooks of this run, past ones too. Not with the other filters."`
	Workflow    string `json:"workflow,omitempty" jsonschema:"Only open hooks of runs of this workflow."`
	TokenPrefix string `json:"tokenPrefix,omitempty" jsonschema:"Only open hooks whose token begins so."`
	toolPage
}

func listHooksTool(ctx context.Context, s *Session, in listHooksInput) (answer, error) {
	at := path("hooks")
	query := nonEmpty(url.Values{"workflow": {in.Workflow}, "tokenPrefix": {in.TokenPrefix}})
	switch {
	case in.Run != "" && len(query) > 0:
		return answer{}, errors.New("run lists all hooks of the run: leave out the other filters")
	case in.Run != "":
		at = path("runs", in.Run, "hooks")
	}
	return listAnswer(ctx, s, at, query, in.toolPage, rows(hookColumns))
}
