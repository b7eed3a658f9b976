package client

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/stepwell-dev/stepwell/e2e/model"
)

// metaOf returns the metadata of a frame (§3.1).
func metaOf(r model.Request, e model.Event) map[string]any {
	m := map[string]any{
		"eventType": e.Type, "specVersion": r.Spec, "occurredAt": time.UnixMilli(r.Now), "remoteRefBehavior": "lazy",
	}
	switch e.Type {
	case "run_created", "run_started", "step_started":
		m["remoteRefBehavior"] = "resolve"
	case "attr_set":
		m["writer"] = map[string]any{"type": "workflow"}
		m["changes"] = changesOf(e.Changes)
	default: // the fields below apply to all types
	}
	text := func(name, value string) {
		if value != "" {
			m[name] = value
		}
	}
	text("correlationId", e.ID)
	text("stepName", e.Name)
	text("hookToken", e.Token)
	text("resumeId", e.Resume)
	text("resumePayloadDigest", e.Digest)
	text("deploymentId", e.Deployment)
	text("workflowName", e.Workflow)
	text("errorCode", e.ErrorCode)
	text("vercelId", e.Mark) // the protocol gives it no meaning, so it can carry the mark
	if e.Type == "hook_created" {
		m["hookIsWebhook"], m["hookForce"] = e.Webhook, e.Force
	}
	if e.Attempt > 0 {
		m["attempt"] = e.Attempt
	}
	if e.Due != 0 {
		m[map[bool]string{true: "retryAfter", false: "resumeAt"}[e.Type == "step_retrying"]] = time.UnixMilli(e.Due)
	}
	if e.Retain != 0 {
		m["hookTokenRetentionUntil"] = time.UnixMilli(e.Retain)
	}
	if e.Attributes != nil {
		m["attributes"] = e.Attributes
	}
	if r.Spec >= 9 {
		m["inBand"] = r.InBand
	}
	if r.InBand && r.Seen >= 0 {
		m["expectedSeqInBand"] = r.Seen
	}
	if r.Skip {
		m["skipPreload"] = true
	}
	if r.MaxSlot > 0 {
		m["maxSlot"] = r.MaxSlot
	}
	if r.Since > 0 {
		m["sinceCursor"] = cursor(r.Since)
	}
	return m
}

// cursor returns the cursor of a list after the position.
func cursor(seq int) string { return fmt.Sprintf("eid:evnt_%026d", seq) }

func changesOf(changes []model.Change) []map[string]any {
	list := []map[string]any{}
	for _, c := range changes {
		m := map[string]any{"key": c.Key, "value": nil}
		if !c.Delete {
			m["value"] = c.Value
		}
		list = append(list, m)
	}
	return list
}

var encode = func() func(any) ([]byte, error) {
	mode, err := cbor.EncOptions{Time: cbor.TimeUnixMicro, TimeTag: cbor.EncTagRequired}.EncMode()
	if err != nil {
		panic(err)
	}
	return mode.Marshal
}()

var decode = func() func([]byte, any) error {
	mode, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any]()}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode.Unmarshal
}()

// instant is a time on the wire. The zero instant means that the field was missing.
type instant struct{ time.Time }

// UnmarshalCBOR decodes a CBOR date, which is exact to the millisecond.
func (i *instant) UnmarshalCBOR(data []byte) error { return decode(data, &i.Time) }

func (i instant) ms() int64 {
	if i.IsZero() {
		return 0
	}
	return i.Round(time.Millisecond).UnixMilli()
}

type wireEvent struct {
	EventID       string  `cbor:"eventId"`
	EventType     string  `cbor:"eventType"`
	CorrelationID string  `cbor:"correlationId"`
	ResumeID      string  `cbor:"resumeId"`
	CreatedAt     instant `cbor:"createdAt"`
	EventData     *struct {
		DeploymentID     string            `cbor:"deploymentId"`
		WorkflowName     string            `cbor:"workflowName"`
		StepName         string            `cbor:"stepName"`
		Token            string            `cbor:"token"`
		ConflictingRunID string            `cbor:"conflictingRunId"`
		Force            bool              `cbor:"force"`
		From             wireRef           `cbor:"forceClaimedFrom"`
		By               wireRef           `cbor:"forceClaimedBy"`
		Kept             string            `cbor:"forceRefusedReason"`
		Attempt          int               `cbor:"attempt"`
		IsWebhook        bool              `cbor:"isWebhook"`
		RetainUntil      instant           `cbor:"tokenRetentionUntil"`
		ResumeAt         instant           `cbor:"resumeAt"`
		RetryAfter       instant           `cbor:"retryAfter"`
		ErrorCode        string            `cbor:"errorCode"`
		VercelID         string            `cbor:"vercelId"`
		Attributes       map[string]string `cbor:"attributes"`
		Changes          []struct {
			Key   string  `cbor:"key"`
			Value *string `cbor:"value"`
		} `cbor:"changes"`
		Input    []byte `cbor:"input"`
		Output   []byte `cbor:"output"`
		Error    []byte `cbor:"error"`
		Result   []byte `cbor:"result"`
		Metadata []byte `cbor:"metadata"`
		Payload  []byte `cbor:"payload"`
	} `cbor:"eventData"`
}

// event converts the event to the model's type.
func (w wireEvent) event() (model.Event, error) {
	digits, ok := strings.CutPrefix(w.EventID, "evnt_")
	seq, err := strconv.Atoi(digits)
	if !ok || len(digits) != 26 || err != nil {
		return model.Event{}, fmt.Errorf("event ID %q is not a position", w.EventID)
	}
	e := model.Event{Seq: seq, At: w.CreatedAt.ms(), Type: w.EventType, ID: w.CorrelationID, Resume: w.ResumeID}
	d := w.EventData
	if d == nil {
		return e, nil
	}
	e.Deployment, e.Workflow, e.Name, e.ErrorCode = d.DeploymentID, d.WorkflowName, d.StepName, d.ErrorCode
	e.Token, e.Holder, e.Webhook, e.Retain = d.Token, d.ConflictingRunID, d.IsWebhook, d.RetainUntil.ms()
	e.Force, e.From, e.By, e.Kept, e.Attempt = d.Force, d.From.text(), d.By.text(), d.Kept, d.Attempt
	e.Mark = d.VercelID
	e.Due, e.Attributes = d.ResumeAt.ms()+d.RetryAfter.ms(), d.Attributes // at most one of the two is set
	for _, c := range d.Changes {
		change := model.Change{Key: c.Key, Delete: c.Value == nil}
		if c.Value != nil {
			change.Value = *c.Value
		}
		e.Changes = append(e.Changes, change)
	}
	for _, payload := range [][]byte{d.Input, d.Output, d.Error, d.Result, d.Metadata, d.Payload} {
		e.Body += string(payload) // at most one is set
	}
	return e, nil
}

type wireResult struct {
	Status     int        `cbor:"status"` // only in batches
	Error      string     `cbor:"error"`
	Message    string     `cbor:"message"`
	RetryAfter int        `cbor:"retryAfter"` // seconds, only in batches
	Event      *wireEvent `cbor:"event"`
	Run        *struct {
		RunID        string            `cbor:"runId"`
		Status       string            `cbor:"status"`
		DeploymentID string            `cbor:"deploymentId"`
		WorkflowName string            `cbor:"workflowName"`
		SpecVersion  int               `cbor:"specVersion"`
		Attributes   map[string]string `cbor:"attributes"`
		Input        []byte            `cbor:"input"`
		Output       []byte            `cbor:"output"`
		Error        []byte            `cbor:"error"`
		ErrorCode    string            `cbor:"errorCode"`
		CreatedAt    instant           `cbor:"createdAt"`
		UpdatedAt    instant           `cbor:"updatedAt"`
		StartedAt    instant           `cbor:"startedAt"`
		CompletedAt  instant           `cbor:"completedAt"`
	} `cbor:"run"`
	Step *struct {
		StepID      string  `cbor:"stepId"`
		StepName    string  `cbor:"stepName"`
		Status      string  `cbor:"status"`
		Attempt     int     `cbor:"attempt"`
		Input       []byte  `cbor:"input"`
		Output      []byte  `cbor:"output"`
		Error       []byte  `cbor:"error"`
		CreatedAt   instant `cbor:"createdAt"`
		UpdatedAt   instant `cbor:"updatedAt"`
		StartedAt   instant `cbor:"startedAt"`
		CompletedAt instant `cbor:"completedAt"`
		RetryAfter  instant `cbor:"retryAfter"`
	} `cbor:"step"`
	Hook *wireHook `cbor:"hook"`
	Wait *struct {
		WaitID      string  `cbor:"waitId"`
		RunID       string  `cbor:"runId"`
		Status      string  `cbor:"status"`
		ResumeAt    instant `cbor:"resumeAt"`
		CreatedAt   instant `cbor:"createdAt"`
		UpdatedAt   instant `cbor:"updatedAt"`
		CompletedAt instant `cbor:"completedAt"`
	} `cbor:"wait"`
	StepCreated bool        `cbor:"stepCreated"`
	Allocated   int         `cbor:"allocated"`
	Events      []wireEvent `cbor:"events"`
}

type wireHook struct {
	RunID       string  `cbor:"runId"`
	HookID      string  `cbor:"hookId"`
	Token       string  `cbor:"token"`
	IsWebhook   bool    `cbor:"isWebhook"`
	From        wireRef `cbor:"claimedFrom"`
	Metadata    []byte  `cbor:"metadata"`
	CreatedAt   instant `cbor:"createdAt"`
	RetainUntil instant `cbor:"tokenRetentionUntil"`
}

// wireRef names a hook of a run.
type wireRef struct {
	RunID  string `cbor:"runId"`
	HookID string `cbor:"hookId"`
}

func (w wireRef) text() string {
	if w == (wireRef{}) {
		return ""
	}
	return w.RunID + "/" + w.HookID
}

func (w wireHook) hook() *model.Hook {
	return &model.Hook{
		Run: w.RunID, ID: w.HookID, Token: w.Token, Metadata: string(w.Metadata), Webhook: w.IsWebhook,
		From: w.From.text(), Created: w.CreatedAt.ms(), Retain: w.RetainUntil.ms(),
	}
}

// answer copies the result into the answer.
func (w wireResult) answer(a *model.Answer) error {
	if w.Event == nil {
		return errors.New("no event in the answer")
	}
	e, err := w.Event.event()
	if err != nil {
		return err
	}
	a.Event, a.StepCreated, a.Allocated = &e, w.StepCreated, w.Allocated
	if r := w.Run; r != nil {
		a.Run = &model.Run{
			ID: r.RunID, Status: r.Status, Deployment: r.DeploymentID, Workflow: r.WorkflowName, Spec: r.SpecVersion,
			Input: string(r.Input), Output: string(r.Output) + string(r.Error), ErrorCode: r.ErrorCode,
			Attributes: r.Attributes,
			Created:    r.CreatedAt.ms(), Updated: r.UpdatedAt.ms(), Started: r.StartedAt.ms(), Ended: r.CompletedAt.ms(),
		}
	}
	if s := w.Step; s != nil {
		a.Step = &model.Step{
			ID: s.StepID, Name: s.StepName, Status: s.Status, Attempt: s.Attempt,
			Input: string(s.Input), Output: string(s.Output) + string(s.Error), RetryAfter: s.RetryAfter.ms(),
			Created: s.CreatedAt.ms(), Updated: s.UpdatedAt.ms(), Started: s.StartedAt.ms(), Ended: s.CompletedAt.ms(),
		}
	}
	if w.Hook != nil {
		a.Hook = w.Hook.hook()
	}
	if v := w.Wait; v != nil {
		a.Wait = &model.Wait{
			ID: strings.TrimPrefix(v.WaitID, v.RunID+"-"), Status: v.Status, Due: v.ResumeAt.ms(),
			Created: v.CreatedAt.ms(), Updated: v.UpdatedAt.ms(), Ended: v.CompletedAt.ms(),
		}
	}
	for _, w := range w.Events {
		e, err := w.event()
		if err != nil {
			return err
		}
		a.Events = append(a.Events, e)
	}
	return nil
}

func decodeResult(data []byte, a *model.Answer) error {
	var w wireResult
	if err := decode(data, &w); err != nil {
		return err
	}
	return w.answer(a)
}

func decodeBatch(data []byte, a *model.Answer) error {
	var w struct {
		Results   []wireResult `cbor:"results"`
		Allocated int          `cbor:"allocated"`
	}
	if err := decode(data, &w); err != nil {
		return err
	}
	a.Allocated = w.Allocated
	for _, r := range w.Results {
		item := model.Answer{Status: r.Status, Code: r.Error, RetryAfter: r.RetryAfter}
		if r.Status == 200 {
			if err := r.answer(&item); err != nil {
				return err
			}
		} else if r.Error == "" || r.Message == "" {
			return fmt.Errorf("a refusal with status %d has no error or message", r.Status)
		}
		a.Items = append(a.Items, item)
	}
	return nil
}

func decodeHook(data []byte, a *model.Answer) error {
	var w wireHook
	err := decode(data, &w)
	a.Hook = w.hook()
	return err
}

func decodeChunks(data []byte, a *model.Answer) error {
	var w struct {
		Data []struct {
			Index int    `cbor:"index"`
			Data  []byte `cbor:"data"`
		} `cbor:"data"`
		Cursor *string `cbor:"cursor"`
		Done   bool    `cbor:"done"`
	}
	if err := decode(data, &w); err != nil {
		return err
	}
	for i, c := range w.Data {
		if c.Index != i {
			return fmt.Errorf("got chunk %d, want %d", c.Index, i)
		}
		a.Chunks = append(a.Chunks, string(c.Data))
	}
	a.Done = w.Done
	if w.Cursor != nil {
		return fmt.Errorf("unexpected next page at %s", *w.Cursor)
	}
	return nil
}

// sentinel is the last frame of a list.
type sentinel struct {
	End     int    `cbor:"_end"`
	Next    string `cbor:"next"`
	HasMore bool   `cbor:"hasMore"`

	Snapshot *struct {
		Seq    int `cbor:"seq"`
		InBand int `cbor:"seqInBand"`
	} `cbor:"snapshot"`
}

// decodeFrame decodes an event or the sentinel.
func decodeFrame(meta, body []byte) (model.Event, *sentinel, error) {
	var end sentinel
	if err := decode(meta, &end); err != nil {
		return model.Event{}, nil, err
	}
	if end.End == 1 {
		return model.Event{}, &end, nil
	}
	var w wireEvent
	if err := decode(meta, &w); err != nil {
		return model.Event{}, nil, err
	}
	e, err := w.event()
	e.Body += string(body)
	return e, nil, err
}
