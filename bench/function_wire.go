package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// success is the constant answer of the official queue client. Only the acknowledgement matters.
var success = []byte(`{"status":"success"}`)

func readMessage(r *http.Request) (message, error) {
	var m message
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = decode.Unmarshal(body, &m)
	}
	if err != nil {
		return m, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// acknowledgeDelivery acknowledges the message that the request delivers.
func (f *function) acknowledgeDelivery(r *http.Request) error {
	return f.server.acknowledge(r.Context(), r.Header.Get("Ce-Vqsqueuename"), r.Header.Get("Ce-Vqsreceipthandle"))
}

// flow is the route of workflows: replay the run, request its next events, acknowledge.
func (f *function) flow(r *http.Request) ([]byte, error) {
	m, err := readMessage(r)
	if err != nil {
		return nil, err
	}
	workflow := strings.TrimPrefix(m.QueueName, workflowTopic)
	s, err := shapeOf(workflow)
	if err != nil {
		return nil, err
	}
	if err := f.replay(r.Context(), s, workflow, m.Payload); err != nil {
		return nil, err
	}
	return success, f.acknowledgeDelivery(r)
}

// replay begins with run_started. The answer to the first one contains the log; otherwise replay reads it.
func (f *function) replay(ctx context.Context, s shape, workflow string, p payload) error {
	started := newEvent("run_started", "")
	if p.RunInput != nil {
		started = creation("run_started", workflow)
	}
	answer, err := f.server.post(ctx, p.RunID, started)
	if refused(err, http.StatusGone, http.StatusConflict) {
		return nil // the run has ended
	}
	if err != nil {
		return err
	}
	events := answer.Events
	if len(events) == 0 || answer.HasMore {
		if events, err = f.server.log(ctx, p.RunID); err != nil {
			return err
		}
	}
	log := map[logEvent]bool{}
	for _, e := range events {
		log[e] = true
	}
	return f.requestSteps(ctx, workflow, p.RunID, s.next(
		func(n int) bool { return log[logEvent{"step_created", stepID(p.RunID, n)}] },
		func(n int) bool { return log[logEvent{"step_completed", stepID(p.RunID, n)}] },
	))
}

// requestSteps creates the steps that the workflow needs next, or completes the run. Like the SDK's client, it sends
// the messages of pending steps again; their idempotency keys make them count once.
func (f *function) requestSteps(ctx context.Context, workflow, run string, t decision) error {
	if t.complete {
		return f.complete(ctx, run)
	}
	create := func(n int) error {
		_, err := f.server.post(ctx, run, stepCreated(workflow, stepID(run, n)))
		if refused(err, http.StatusConflict) {
			return nil // another replay was faster
		}
		return err
	}
	if err := each(t.create, create); err != nil {
		return err
	}
	return each(append(t.pending, t.create...), func(n int) error {
		return f.server.sendStep(ctx, workflow, run, stepID(run, n))
	})
}

func (f *function) complete(ctx context.Context, run string) error {
	m := newEvent("run_completed", "")
	m.body = stepResult
	_, err := f.server.post(ctx, run, m)
	if refused(err, http.StatusConflict) {
		return nil // another replay was faster and prints it
	}
	if err != nil {
		return err
	}
	return f.out.Encode(completion{run, time.Now().UnixNano()})
}

// step is the route of steps: start, do nothing, complete, send a message to the workflow, acknowledge.
func (f *function) step(r *http.Request) ([]byte, error) {
	m, err := readMessage(r)
	if err != nil {
		return nil, err
	}
	ctx, p := r.Context(), m.Payload
	if _, err := f.server.post(ctx, p.WorkflowRunID, stepStarted(p.StepID)); err != nil {
		return nil, err
	}
	if _, err := f.server.post(ctx, p.WorkflowRunID, stepCompleted(p.WorkflowName, p.StepID)); err != nil {
		return nil, err
	}
	if err := f.server.sendFlow(ctx, p.WorkflowName, p.WorkflowRunID, nil); err != nil {
		return nil, err
	}
	return success, f.acknowledgeDelivery(r)
}

// each calls do for all numbers concurrently and returns the first error.
func each(all []int, do func(int) error) error {
	if len(all) == 1 {
		return do(all[0])
	}
	errs := make(chan error, len(all))
	for _, n := range all {
		go func() { errs <- do(n) }()
	}
	var first error
	for range all {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
