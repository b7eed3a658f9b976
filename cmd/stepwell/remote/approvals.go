package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// approvalFilter are the flags that select approvals.
type approvalFilter struct {
	For      []string `placeholder:"NAME" help:"List those that wait for this name, or role:NAME. Repeatable."`
	RunID    string   `name:"run" field:"runId" placeholder:"ID" help:"List those of this run."`
	Workflow string   `placeholder:"NAME" help:"List those of runs of this workflow."`
}

type approvalRow api.Approval

func (a approvalRow) columns() []field {
	return []field{
		{"hook", a.HookID}, {"run", a.RunID}, {"title", a.Title}, {"by", a.By},
		{"votes", fmt.Sprintf("%d of %d", len(a.Votes), a.Needed)}, {"created", a.CreatedAt}, {"due", a.Due},
	}
}

// ballot is a vote.
type ballot struct {
	RunID   string   `arg:"" name:"run" help:"The run's ID."`
	ID      string   `arg:"" name:"hook" help:"The hook's ID: that of the step of a flow."`
	As      string   `placeholder:"NAME" help:"Who votes. By default, the API key."`
	Roles   []string `name:"role" placeholder:"NAME" help:"A role of who votes. Repeatable."`
	Comment string   `placeholder:"TEXT" help:"Why."`
}

func (c ballot) send(ctx context.Context, s *Session, vote jsonBody) error {
	vote["as"], vote["roles"], vote["comment"] = c.As, c.Roles, c.Comment
	return s.change(ctx, http.MethodPost, path("runs", c.RunID, "hooks", c.ID, "resume"),
		jsonBody{"payload": vote.omitZero()}, "voted on %s of run %s", c.ID, c.RunID)
}

type approveCmd struct {
	ballot

	Field map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"A field of the approval's form. Repeatable."`
	Form  jsonFlag          `placeholder:"JSON" help:"The whole form: ${json}."`
}

// Run votes for it.
func (c approveCmd) Run(ctx context.Context, s *Session) error {
	form, err := c.form(ctx, s)
	if err != nil {
		return err
	}
	return c.send(ctx, s, jsonBody{"decision": "approve", "form": form})
}

// form returns the form, or the one with the fields. A field whose schema is that of texts is one, and any other is
// JSON if it can be.
func (c approveCmd) form(ctx context.Context, s *Session) (json.RawMessage, error) {
	form, err := c.Form.read(s, "--form")
	switch {
	case err != nil || len(c.Field) == 0:
		return form, err
	case form != nil:
		return nil, usageErrorf("--form is the whole form: leave out --field")
	}
	var open api.Page[api.Approval]
	query := url.Values{"runId": {c.RunID}, "hookId": {c.ID}}
	if _, err := s.client.get(ctx, path("approvals"), query, &open); err != nil {
		return nil, err
	}
	var known formSchema
	for _, a := range open.Data { // at most one
		_ = json.Unmarshal(a.Form, &known) // the server checks the form
	}
	return known.fill(c.Field)
}

// formSchema is what a JSON Schema says of the fields of an object.
type formSchema struct {
	Properties map[string]struct {
		Type any `json:"type"`
	} `json:"properties"`
}

// fill returns the form with the fields.
func (f formSchema) fill(fields map[string]string) (json.RawMessage, error) {
	values := make(map[string]any, len(fields))
	for name, text := range fields {
		values[name] = text
		if f.Properties[name].Type != "string" && json.Valid([]byte(text)) {
			values[name] = json.RawMessage(text)
		}
	}
	return json.Marshal(values)
}

type rejectCmd struct{ ballot }

// Run votes against it.
func (c rejectCmd) Run(ctx context.Context, s *Session) error {
	return c.send(ctx, s, jsonBody{"decision": "reject"})
}
