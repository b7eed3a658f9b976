package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// addWriting adds the tools that change something.
func (t *toolSet) addWriting() {
	addTool(t, adds, "start_run", startRunTool,
		"Starts a run of a workflow. Give an idempotencyKey, so that a repeated call starts no second run. "+
			"wait_run waits for its end.")
	addTool(t, adds, "resume_hook", resumeHookTool,
		"Resumes a run that waits for a hook, with a payload. Name the hook by its token, or by its run and ID. "+
			"The payload for an approval is a vote: send it only if the person who votes has asked you to.")
	addTool(t, adds, "send_signal", sendSignalTool,
		"Sends a signal to all hooks that wait for its name, in all runs.")
	addTool(t, adds, "send_message", sendMessageTool,
		"Sends a message to an inbox of one run, and continues the run.")
	addTool(t, ends, "cancel_run", cancelRunTool,
		"Cancels a run and its children. It cannot be undone. With a grace, the run may undo its work within that "+
			"time.")
	addTool(t, adds, "rerun_run", rerunTool,
		"Starts a copy of a run from the start: with its input, so its steps are executed again.")
	addTool(t, adds, "fork_run", forkTool,
		"Goes on in a new run from a place in the log of a run: by default from where it failed, so what was "+
			"finished before is not done again.")
}

//nolint:lll // tags cannot be broken
type startRunInput struct {
	Workflow       string            `json:"workflow" jsonschema:"The workflow's whole name: list_workflows shows those with runs."`
	Input          json.RawMessage   `json:"input,omitempty" jsonschema:"The workflow's input: any JSON value, not a text with JSON in it."`
	IdempotencyKey string            `json:"idempotencyKey,omitempty" jsonschema:"A text of your choice: calls with the same one return the same run."`
	Deployment     string            `json:"deployment,omitempty" jsonschema:"The deployment's ID: default is the newest with the workflow."`
	Key            string            `json:"key,omitempty" jsonschema:"A key that is unique among the workflow's runs that have not ended."`
	Attributes     map[string]string `json:"attributes,omitempty" jsonschema:"Labels to find the run by."`
	Delay          string            `json:"delay,omitempty" jsonschema:"Starts the run later, such as 30s."`
	Timeout        string            `json:"timeout,omitempty" jsonschema:"Fails the run after this time, such as 24h."`
}

func startRunTool(ctx context.Context, s *Session, in startRunInput) (answer, error) {
	return changeRun(ctx, s, path("runs"), jsonBody{
		"workflow": in.Workflow, "input": in.Input, "idempotencyKey": in.IdempotencyKey, "deployment": in.Deployment,
		"key": in.Key, "attributes": in.Attributes, "delay": in.Delay, "timeout": in.Timeout,
	})
}

// changeRun sends a request whose answer is a run.
func changeRun(ctx context.Context, s *Session, path string, body jsonBody) (answer, error) {
	raw, err := s.client.call(ctx, http.MethodPost, path, body.omitZero(), new(api.Run))
	if err != nil {
		return answer{}, err
	}
	return runAnswer(s, raw)
}

//nolint:lll // tags cannot be broken
type resumeHookInput struct {
	Token    string          `json:"token,omitempty" jsonschema:"The hook's token, unless run and hook are given."`
	Run      string          `json:"run,omitempty" jsonschema:"The ID of the hook's run."`
	Hook     string          `json:"hook,omitempty" jsonschema:"The hook's ID in the run."`
	Payload  json.RawMessage `json:"payload,omitempty" jsonschema:"What the run receives: any JSON value, default null."`
	ResumeID string          `json:"resumeId,omitempty" jsonschema:"A text of your choice: calls with the same one count once."`
}

func resumeHookTool(ctx context.Context, s *Session, in resumeHookInput) (answer, error) {
	var at string
	switch {
	case in.Token != "" && in.Run == "" && in.Hook == "":
		at = path("hooks", in.Token, "resume")
	case in.Token == "" && in.Run != "" && in.Hook != "":
		at = path("runs", in.Run, "hooks", in.Hook, "resume")
	default:
		return answer{}, errors.New("want either the token, or run and hook: list_hooks shows both")
	}
	var resumed api.ResumedHook
	body := jsonBody{"payload": orNull(in.Payload), "resumeId": in.ResumeID}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, at, body, &resumed)
	return done(raw, err, "resumed %s with event %d%s", resumed.RunID, resumed.Seq, repeatedText(resumed.Repeated))
}

// orNull returns the value, or null if there is none.
func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

func repeatedText(repeated bool) string {
	if repeated {
		return ": it was there already"
	}
	return ""
}

// done answers what has been done.
func done(raw json.RawMessage, err error, format string, a ...any) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	short, err := shortened(raw, objectBudget)
	return answer{text: fmt.Sprintf(format, a...), data: short}, err
}

//nolint:lll // tags cannot be broken
type sendSignalInput struct {
	Name    string          `json:"name" jsonschema:"The signal's name, as hooks wait for it."`
	Data    json.RawMessage `json:"data,omitempty" jsonschema:"The signal's data: any JSON value."`
	ID      string          `json:"id,omitempty" jsonschema:"A text of your choice: calls with the same one send one signal."`
	KeepFor string          `json:"keepFor,omitempty" jsonschema:"How long hooks that are opened later and look back receive it, too, such as 1h."`
}

func sendSignalTool(ctx context.Context, s *Session, in sendSignalInput) (answer, error) {
	var sent api.Signal
	body := jsonBody{"data": in.Data, "id": in.ID, "keepFor": in.KeepFor}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, path("signals", in.Name), body, &sent)
	return done(raw, err, "sent %s", sent.ID)
}

type sendMessageInput struct {
	runInput
	Inbox   string          `json:"inbox" jsonschema:"The name of the inbox."`
	Payload json.RawMessage `json:"payload,omitempty" jsonschema:"The message: any JSON value, default null."`
	ID      string          `json:"id,omitempty" jsonschema:"A text of your choice: calls with the same one count once."`
}

func sendMessageTool(ctx context.Context, s *Session, in sendMessageInput) (answer, error) {
	var sent api.SentMessage
	body := jsonBody{"payload": orNull(in.Payload), "id": in.ID}.omitZero()
	raw, err := s.client.call(ctx, http.MethodPost, path("runs", in.Run, "inbox", in.Inbox), body, &sent)
	return done(raw, err, "sent as event %d%s", sent.Seq, repeatedText(sent.Repeated))
}

type cancelRunInput struct {
	runInput
	Reason string `json:"reason,omitempty" jsonschema:"Why: it is stored with the run."`
	Grace  string `json:"grace,omitempty" jsonschema:"How long the run may take to end by itself, such as 1m."`
}

func cancelRunTool(ctx context.Context, s *Session, in cancelRunInput) (answer, error) {
	return changeRun(ctx, s, path("runs", in.Run, "cancel"), jsonBody{"reason": in.Reason, "grace": in.Grace})
}

//nolint:lll // tags cannot be broken
type rerunInput struct {
	runInput
	Deployment     string `json:"deployment,omitempty" jsonschema:"Another deployment's ID, or latest."`
	IdempotencyKey string `json:"idempotencyKey,omitempty" jsonschema:"A text of your choice: calls with the same one start one run."`
}

// body returns the body of a request, with the place where to go on.
func (in rerunInput) body(place jsonBody) jsonBody {
	place["deployment"], place["idempotencyKey"] = in.Deployment, in.IdempotencyKey
	return place
}

func rerunTool(ctx context.Context, s *Session, in rerunInput) (answer, error) {
	return changeRun(ctx, s, path("runs", in.Run, "rerun"), in.body(jsonBody{}))
}

//nolint:lll // tags cannot be broken
type forkInput struct {
	rerunInput
	At int64 `json:"at,omitempty" jsonschema:"Keeps this many events of the log. By default, those before the step that failed."`
}

func forkTool(ctx context.Context, s *Session, in forkInput) (answer, error) {
	place := jsonBody{"at": in.At}
	if in.At == 0 {
		place["from"] = "failure"
	}
	return changeRun(ctx, s, path("runs", in.Run, "rerun"), in.body(place))
}
