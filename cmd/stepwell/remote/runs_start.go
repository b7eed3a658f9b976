package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"
)

// jsonFlag is a JSON value, @FILE, or - for standard input.
type jsonFlag string

// read returns the JSON value, or nil if the flag is not set.
func (f jsonFlag) read(s *Session, flag string) (json.RawMessage, error) {
	data := []byte(f)
	var err error
	switch name, isFile := strings.CutPrefix(string(f), "@"); {
	case f == "":
		return nil, nil
	case f == "-":
		data, err = io.ReadAll(s.Stdin)
	case isFile:
		data, err = os.ReadFile(name) //nolint:gosec // the user names it
	}
	if err != nil {
		return nil, usageErrorf("%s: %w", flag, err)
	}
	var value json.RawMessage
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, usageErrorf(`%s is not JSON: %w; write a string as '"text"', a file as @FILE, standard input as -`,
			flag, err)
	}
	return bytes.TrimSpace(data), nil
}

// jsonBody is the body of a request.
type jsonBody map[string]any

// omitZero removes the fields with zero values, those of flags that are not set.
func (b jsonBody) omitZero() jsonBody {
	maps.DeleteFunc(b, func(_ string, value any) bool { return reflect.ValueOf(value).IsZero() })
	return b
}

// waitFlags are the flags that make a command wait for the run it starts.
type waitFlags struct {
	Wait        bool          `help:"Wait until the run has ended, as runs wait does."`
	WaitTimeout time.Duration `placeholder:"TIME" help:"Wait at most this long, such as 5m."`
}

// start starts a run, prints its ID and, if the flags say so, waits for the run.
func (f waitFlags) start(ctx context.Context, s *Session, path string, body jsonBody) error {
	var r run
	raw, err := s.client.call(ctx, http.MethodPost, path, body, &r)
	if err != nil {
		return err
	}
	if !f.Wait && f.WaitTimeout == 0 {
		return s.printResult(raw, "%s", r.ID)
	}
	s.note("%s", r.ID)
	return waitRunCmd{ID: r.ID, Timeout: f.WaitTimeout}.Run(ctx, s)
}

type startRunCmd struct {
	Workflow       string            `arg:"" help:"The name of the workflow."`
	Deployment     string            `short:"d" placeholder:"ID" help:"${target}"`
	Input          jsonFlag          `short:"i" placeholder:"JSON" help:"The workflow's input: ${json}."`
	Key            string            `placeholder:"KEY" help:"A key that is unique among the workflow's active runs."`
	OnConflict     string            `enum:"${conflicts}" default:"" placeholder:"HOW" help:"${conflict}"`
	IdempotencyKey string            `placeholder:"KEY" help:"Makes the command idempotent: repeats return the same run."`
	Attr           map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"An attribute; may be repeated."`
	Inbox          []string          `sep:"none" placeholder:"NAME" help:"Open this inbox with the run; may be repeated."`
	Delay          string            `placeholder:"TIME" help:"Start the run after this delay, such as 30s."`
	StartAt        string            `placeholder:"TIME" help:"Start the run at this time, in RFC 3339."`
	Timeout        string            `placeholder:"TIME" help:"Fail the run after this time, such as 24h."`
	TimeoutGrace   string            `placeholder:"TIME" help:"Let the run end by itself for this long after it."`
	Parent         string            `placeholder:"ID" help:"The parent run; when it ends, the run is cancelled."`
	limitFlags
	collectFlags
	waitFlags
}

// Run starts the run.
func (c startRunCmd) Run(ctx context.Context, s *Session) error {
	input, err := c.Input.read(s, "--input")
	if err != nil {
		return err
	}
	return c.start(ctx, s, path("runs"), c.addTo(c.addLimits(jsonBody{
		"workflow": c.Workflow, "deployment": c.Deployment, "input": input,
		"key": c.Key, "onConflict": c.OnConflict, "idempotencyKey": c.IdempotencyKey,
		"attributes": c.Attr, "inbox": c.Inbox, "parent": c.Parent,
		"delay": c.Delay, "startAt": c.StartAt, "timeout": c.Timeout, "timeoutGrace": c.TimeoutGrace,
	}.omitZero())))
}

type waitRunCmd struct {
	ID      string        `arg:"" help:"The run's ID."`
	Timeout time.Duration `placeholder:"TIME" help:"Wait at most this long, such as 5m; default is no limit."`
}

// longPoll is how long the server may hold one request that waits for a run.
const longPoll = 30 * time.Second

// Run prints the run once it has ended. It fails unless the run completed.
func (c waitRunCmd) Run(ctx context.Context, s *Session) error {
	r, raw, err := s.await(ctx, c.ID, c.Timeout)
	if err != nil {
		return err
	}
	if s.json {
		err = s.printJSON(raw)
	} else {
		err = s.printRun(r)
	}
	if err != nil {
		return err
	}
	switch r.Status {
	case "completed":
		return nil
	case "failed":
		return exitError{ExitFailed, fmt.Errorf("run %s failed", r.ID)}
	case "cancelled":
		return exitError{ExitCancelled, fmt.Errorf("run %s was cancelled", r.ID)}
	default:
		return exitError{ExitTimeout, fmt.Errorf("run %s is still %s after %s", r.ID, r.Status, c.Timeout)}
	}
}

// await returns the run once it has ended, or its current state after the timeout. It survives server restarts.
func (s *Session) await(ctx context.Context, id string, timeout time.Duration) (r run, raw json.RawMessage, err error) {
	until := s.Now().Add(timeout)
	retry := retrier{s: s}
	for {
		poll := longPoll
		if timeout > 0 {
			poll = max(min(poll, until.Sub(s.Now())), time.Millisecond)
		}
		asked := s.Now()
		raw, err = s.client.get(ctx, path("runs", id, "wait"), url.Values{"timeout": {poll.String()}}, &r)
		timedOut := timeout > 0 && !s.Now().Before(until)
		switch {
		case err != nil:
			err = retry.wait(ctx, err)
		case !r.CompletedAt.IsZero() || timedOut:
			return r, raw, nil
		default:
			retry.connected()
			if s.Now().Sub(asked) < poll/2 { // a stopping server answers long polls at once
				err = s.sleep(ctx)
			}
		}
		if err != nil {
			return r, raw, err
		}
	}
}
