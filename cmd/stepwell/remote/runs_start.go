package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// document is JSON as users give it: itself, @FILE, or - for standard input.
type document string

// read is the JSON; nil when none was given.
func (d document) read(s *Session, flag string) (json.RawMessage, error) {
	data := []byte(d)
	var err error
	switch name, isFile := strings.CutPrefix(string(d), "@"); {
	case d == "":
		return nil, nil
	case d == "-":
		data, err = io.ReadAll(s.Stdin)
	case isFile:
		data, err = os.ReadFile(name) //nolint:gosec // the user names it
	}
	if err != nil {
		return nil, usage("%s: %w", flag, err)
	}
	var any json.RawMessage
	if err := json.Unmarshal(data, &any); err != nil {
		return nil, usage(`%s is not JSON: %w; a text is '"like this"', @FILE reads a file, - standard input`, flag, err)
	}
	return bytes.TrimSpace(data), nil
}

// options are the fields of a body, of which empty ones are left out.
type options map[string]any

func (o options) text(name, value string) options {
	if value != "" {
		o[name] = value
	}
	return o
}

func (o options) json(name string, value json.RawMessage) options {
	if value != nil {
		o[name] = value
	}
	return o
}

// ending says whether to wait for the end of a run that was just started.
type ending struct {
	Wait        bool          `help:"Wait for its end, as runs wait does."`
	WaitTimeout time.Duration `placeholder:"TIME" help:"Wait no longer than this, such as 5m."`
}

// started tells of a new run, and waits for its end if that is wanted.
func (e ending) started(ctx context.Context, s *Session, raw json.RawMessage) error {
	var r run
	if err := s.client.decode(raw, &r); err != nil {
		return err
	}
	if !e.Wait && e.WaitTimeout == 0 {
		return s.say(raw, "%s", r.ID)
	}
	s.note("%s", r.ID)
	return waitRunCmd{ID: r.ID, Timeout: e.WaitTimeout}.Run(ctx, s)
}

type startRunCmd struct {
	Workflow       string            `arg:"" help:"The name of the workflow."`
	Deployment     string            `short:"d" placeholder:"ID" help:"${target}"`
	Input          document          `short:"i" placeholder:"JSON" help:"What the function gets: ${json}."`
	Key            string            `placeholder:"KEY" help:"No two live runs of the workflow have the same key."`
	OnConflict     string            `enum:"${conflicts}" default:"" placeholder:"HOW" help:"${conflict}"`
	IdempotencyKey string            `placeholder:"KEY" help:"Safe to repeat: it starts one run, however often."`
	Attr           map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"A label to find the run by."`
	Delay          string            `placeholder:"TIME" help:"How long until it begins, such as 30s."`
	StartAt        string            `placeholder:"TIME" help:"When it begins, in RFC 3339."`
	Timeout        string            `placeholder:"TIME" help:"How long it may take before it fails, such as 24h."`
	Parent         string            `placeholder:"ID" help:"The run that starts it, with whose end it is cancelled."`
	ending
}

// Run starts the run.
func (c startRunCmd) Run(ctx context.Context, s *Session) error {
	input, err := c.Input.read(s, "--input")
	if err != nil {
		return err
	}
	body := options{"workflow": c.Workflow}.
		text("deployment", c.Deployment).json("input", input).
		text("key", c.Key).text("onConflict", c.OnConflict).text("idempotencyKey", c.IdempotencyKey).
		text("delay", c.Delay).text("startAt", c.StartAt).text("timeout", c.Timeout).text("parent", c.Parent)
	if len(c.Attr) > 0 {
		body["attributes"] = c.Attr
	}
	raw, err := s.client.do(ctx, http.MethodPost, path("runs"), body)
	if err != nil {
		return err
	}
	return c.started(ctx, s, raw)
}

type rerunCmd struct {
	ID             string `arg:"" help:"The ID of the run that it shall be like."`
	Deployment     string `short:"d" placeholder:"ID" help:"Another deployment, or latest."`
	IdempotencyKey string `placeholder:"KEY" help:"Makes the command safe to repeat."`
	ending
}

// Run starts the run.
func (c rerunCmd) Run(ctx context.Context, s *Session) error {
	body := options{}.text("deployment", c.Deployment).text("idempotencyKey", c.IdempotencyKey)
	raw, err := s.client.do(ctx, http.MethodPost, path("runs", c.ID, "rerun"), body)
	if err != nil {
		return err
	}
	return c.started(ctx, s, raw)
}

type waitRunCmd struct {
	ID      string        `arg:"" help:"The run's ID."`
	Timeout time.Duration `placeholder:"TIME" help:"Wait no longer than this, such as 5m; for ever when not given."`
}

// longPoll is how long one request waits for the end of a run.
const longPoll = 30 * time.Second

// Run prints the run when it has ended, and fails unless it has completed.
func (c waitRunCmd) Run(ctx context.Context, s *Session) error {
	r, raw, err := s.await(ctx, c.ID, c.Timeout)
	if err != nil {
		return err
	}
	if s.json {
		err = s.printJSON(raw)
	} else {
		err = s.showRun(r)
	}
	if err != nil {
		return err
	}
	switch r.Status {
	case "completed":
		return nil
	case "failed":
		return exitError{ExitFailed, fmt.Errorf("run %s has failed", r.ID)}
	case "cancelled":
		return exitError{ExitCancelled, fmt.Errorf("run %s was cancelled", r.ID)}
	default:
		return exitError{ExitTimeout, fmt.Errorf("run %s is %s after %s", r.ID, r.Status, c.Timeout)}
	}
}

// await returns the run when it has ended, or as it is when the time is over. The server may be away meanwhile.
func (s *Session) await(ctx context.Context, id string, timeout time.Duration) (r run, raw json.RawMessage, err error) {
	until := s.Now().Add(timeout)
	again := s.newRetry()
	for {
		poll := longPoll
		if timeout > 0 {
			poll = max(min(poll, until.Sub(s.Now())), time.Millisecond)
		}
		asked := s.Now()
		raw, err = s.client.get(ctx, path("runs", id, "wait"), map[string][]string{"timeout": {poll.String()}}, &r)
		over := timeout > 0 && !s.Now().Before(until)
		switch {
		case err == nil && (r.CompletedAt.IsZero() && !over):
			again.contact()
			if s.Now().Sub(asked) < poll/2 { // a server that stops says so at once
				err = s.sleep(ctx)
			}
		case err == nil:
			return r, raw, nil
		default:
			err = again.wait(ctx, err)
		}
		if err != nil {
			return r, raw, err
		}
	}
}
