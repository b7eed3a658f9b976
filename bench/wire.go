package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// This file implements the protocol of the Workflow SDK, with the same requests and bodies as the recorded traffic of
// its stable client (npm workflow 4.8.9).

const (
	specVersion = 3
	// stepName is the name of all steps.
	stepName      = "step//./bench/steps//work"
	workflowTopic = "__wkf_workflow_"
	stepTopic     = "__wkf_step_"
)

// Payloads of the size of small examples: the arguments [1,2] and results.
var (
	runInput   = []byte(`devl[[1,2],1,2]`)
	stepInput  = []byte(`devl[{"args":1,"closureVars":-1,"thisVal":-1},[2,3],1,2]`)
	stepResult = []byte(`devl[3]`)
)

// executionContext is the client's context when it creates a run.
var executionContext = map[string]any{
	"traceCarrier": map[string]any{}, "workflowCoreVersion": "4.8.9", "features": map[string]any{"encryption": false},
}

// eventMeta is the metadata of an event's frame.
type eventMeta struct {
	EventType         string         `cbor:"eventType"`
	SpecVersion       int            `cbor:"specVersion"`
	CorrelationID     string         `cbor:"correlationId,omitempty"`
	OccurredAt        time.Time      `cbor:"occurredAt"`
	RemoteRefBehavior string         `cbor:"remoteRefBehavior"`
	DeploymentID      string         `cbor:"deploymentId,omitempty"`
	WorkflowName      string         `cbor:"workflowName,omitempty"`
	StepName          string         `cbor:"stepName,omitempty"`
	ExecutionContext  map[string]any `cbor:"executionContext,omitempty"`

	body []byte
}

func newEvent(typ, correlationID string) eventMeta {
	m := eventMeta{
		EventType: typ, SpecVersion: specVersion, CorrelationID: correlationID, OccurredAt: time.Now(),
		RemoteRefBehavior: "lazy",
	}
	switch typ {
	case "run_created", "run_started", "step_started":
		m.RemoteRefBehavior = "resolve"
	}
	return m
}

// creation is a run_created, or a run_started that may create its run.
func creation(typ, workflow string) eventMeta {
	m := newEvent(typ, "")
	m.DeploymentID, m.WorkflowName, m.ExecutionContext, m.body = wireDeployment, workflow, executionContext, runInput
	return m
}

func stepCreated(workflow, id string) eventMeta {
	m := newEvent("step_created", id)
	m.WorkflowName, m.StepName, m.body = workflow, stepName, stepInput
	return m
}

func stepStarted(id string) eventMeta {
	m := newEvent("step_started", id)
	m.StepName = stepName
	return m
}

func stepCompleted(workflow, id string) eventMeta {
	m := newEvent("step_completed", id)
	m.WorkflowName, m.StepName, m.body = workflow, stepName, stepResult
	return m
}

// encode writes CBOR as the server's peers do: dates to the millisecond at least.
var encode = must(cbor.EncOptions{Time: cbor.TimeUnixMicro, TimeTag: cbor.EncTagRequired}.EncMode())

var decode = must(cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any]()}.DecMode())

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

// appendFrame adds the event's frame: u32be length | meta | u32be length | body.
func appendFrame(to []byte, m eventMeta) ([]byte, error) {
	meta, err := encode.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.EventType, err)
	}
	for _, block := range [][]byte{meta, m.body} {
		to = binary.BigEndian.AppendUint32(to, uint32(len(block)))
		to = append(to, block...)
	}
	return to, nil
}

// logEvent is what the bench needs to know of an event.
type logEvent struct {
	Type          string `cbor:"eventType" json:"type"`
	CorrelationID string `cbor:"correlationId" json:"correlationId"`
}

// logFrame is the meta of a frame of a list: an event, or the sentinel.
type logFrame struct {
	logEvent

	End     int    `cbor:"_end"`
	Next    string `cbor:"next"`
	HasMore bool   `cbor:"hasMore"`
}

var errCut = errors.New("a list of frames is cut short")

// readFrames reads a list of frames up to its sentinel.
func readFrames(data []byte) (events []logEvent, end logFrame, err error) {
	for {
		var meta []byte
		if meta, data, err = cutBlock(data); err != nil {
			return nil, end, err
		}
		if _, data, err = cutBlock(data); err != nil {
			return nil, end, err
		}
		end = logFrame{}
		if err := decode.Unmarshal(meta, &end); err != nil {
			return nil, end, fmt.Errorf("read frame: %w", err)
		}
		if end.End != 0 {
			return events, end, nil
		}
		events = append(events, end.logEvent)
	}
}

func cutBlock(data []byte) (block, rest []byte, err error) {
	if len(data) < 4 || len(data)-4 < int(binary.BigEndian.Uint32(data)) {
		return nil, nil, errCut
	}
	n := 4 + int(binary.BigEndian.Uint32(data))
	return data[4:n], data[n:], nil
}

// eventAnswer is what the answer to an event has.
type eventAnswer struct {
	Events  []logEvent `cbor:"events"`
	HasMore bool       `cbor:"hasMore"`
}

// post appends an event to a run.
func (c *client) post(ctx context.Context, run string, m eventMeta) (eventAnswer, error) {
	var a eventAnswer
	got, err := c.append(ctx, run, m)
	if err != nil {
		return a, err
	}
	if err := decode.Unmarshal(got, &a); err != nil {
		return a, fmt.Errorf("read answer to %s: %w", m.EventType, err)
	}
	return a, nil
}

// append is post without decoding the answer.
func (c *client) append(ctx context.Context, run string, m eventMeta) (answer []byte, err error) {
	frame, err := appendFrame(nil, m)
	if err != nil {
		return nil, err
	}
	return c.call(ctx, http.MethodPost, "/sdk/v4/runs/"+run+"/events/"+m.EventType,
		http.Header{"Content-Type": {"application/octet-stream"}}, frame)
}

// log reads the whole log of a run page by page, like a client before a replay.
func (c *client) log(ctx context.Context, run string) ([]logEvent, error) {
	var all []logEvent
	path := "/sdk/v4/runs/" + run + "/events?sortOrder=asc&remoteRefBehavior=resolve"
	for cursor := ""; ; {
		got, err := c.call(ctx, http.MethodGet, path+cursor, nil, nil)
		if err != nil {
			return nil, err
		}
		page, end, err := readFrames(got)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if !end.HasMore {
			return all, nil
		}
		cursor = "&cursor=" + url.QueryEscape(end.Next)
	}
}

// topicOf returns the topic of a queue: its name with all invalid characters replaced.
func topicOf(queue string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, queue)
}

// message is the body of a message.
type message struct {
	Payload   payload `cbor:"payload"`
	QueueName string  `cbor:"queueName"`
}

// payload is the payload of a message: for a run or for a step.
type payload struct {
	RunID        string         `cbor:"runId,omitempty"`
	TraceCarrier map[string]any `cbor:"traceCarrier"`
	RequestedAt  time.Time      `cbor:"requestedAt"`
	RunInput     *runCreation   `cbor:"runInput,omitempty"`

	WorkflowName      string  `cbor:"workflowName,omitempty"`
	WorkflowRunID     string  `cbor:"workflowRunId,omitempty"`
	WorkflowStartedAt float64 `cbor:"workflowStartedAt,omitempty"`
	StepID            string  `cbor:"stepId,omitempty"`
}

// runCreation is the part of a run's first message from which its receiver can create the run.
type runCreation struct {
	Input            []byte         `cbor:"input"`
	DeploymentID     string         `cbor:"deploymentId"`
	WorkflowName     string         `cbor:"workflowName"`
	SpecVersion      int            `cbor:"specVersion"`
	ExecutionContext map[string]any `cbor:"executionContext"`
}

// send sends a message, with an idempotency key if key is set.
func (c *client) send(ctx context.Context, run, key string, m message) error {
	body, err := encode.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	h := http.Header{
		"Content-Type": {"application/cbor"}, "Vqs-Deployment-Id": {wireDeployment},
		"Vqs-Client-Ts": {time.Now().UTC().Format(time.RFC3339Nano)},
	}
	if run != "" {
		h.Set("X-Vercel-Workflow-Run-Id", run)
	}
	if key != "" {
		h.Set("Vqs-Idempotency-Key", key)
	}
	_, err = c.call(ctx, http.MethodPost, "/sdk/queues-proxy/api/v3/topic/"+topicOf(m.QueueName), h, body)
	return err
}

// sendFlow sends a message that continues a run.
func (c *client) sendFlow(ctx context.Context, workflow, run string, input *runCreation) error {
	return c.send(ctx, run, "", message{
		payload{RunID: run, TraceCarrier: map[string]any{}, RequestedAt: time.Now(), RunInput: input},
		workflowTopic + workflow,
	})
}

// sendStep sends a message that executes a step.
func (c *client) sendStep(ctx context.Context, workflow, run, step string) error {
	return c.send(ctx, run, step, message{
		payload{
			WorkflowName: workflow, WorkflowRunID: run, StepID: step, TraceCarrier: map[string]any{},
			WorkflowStartedAt: float64(time.Now().UnixMilli()), RequestedAt: time.Now(),
		},
		stepTopic + stepName,
	})
}

// acknowledge acknowledges a delivered message.
func (c *client) acknowledge(ctx context.Context, topic, receipt string) error {
	_, err := c.call(ctx, http.MethodDelete, "/sdk/queues-proxy/api/v3/topic/"+topic+"/consumer/default/lease/"+receipt,
		http.Header{"Vqs-Deployment-Id": {wireDeployment}}, nil)
	return err
}

// start starts a run like the SDK: it sends the event and the message, which also contains the run's input,
// concurrently.
func (c *client) start(ctx context.Context, workflow, run string) error {
	created := make(chan error, 1)
	go func() {
		_, err := c.post(ctx, run, creation("run_created", workflow))
		if refused(err, http.StatusConflict, http.StatusTooManyRequests) {
			err = nil // the message was faster, or creates the run
		}
		created <- err
	}()
	err := c.sendFlow(ctx, workflow, run, &runCreation{
		Input: runInput, DeploymentID: wireDeployment, WorkflowName: workflow, SpecVersion: specVersion,
		ExecutionContext: executionContext,
	})
	return errors.Join(err, <-created)
}

// refused reports whether the error is an answer with one of the statuses.
func refused(err error, statuses ...int) bool {
	var e *statusError
	return errors.As(err, &e) && slices.Contains(statuses, e.status)
}

// stepID returns the deterministic, globally unique ID of a run's nth step.
func stepID(run string, n int) string {
	const random = 16 // random characters at the end of a ULID
	number := strconv.Itoa(n)
	tail := run[len(run)-random:]
	return "step_" + run[len("wrun_"):len(run)-random] + tail[:random-6] + strings.Repeat("0", 6-len(number)) + number
}
