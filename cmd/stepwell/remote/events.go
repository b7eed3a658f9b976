package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// eventFlags select events and how to print them.
type eventFlags struct {
	Type     []string `placeholder:"TYPE" help:"Print events of these types, such as step_failed, separated by commas."`
	About    string   `field:"correlationId" placeholder:"ID" help:"Print events of the step, hook or wait with this ID."`
	From     timeFlag `placeholder:"TIME" help:"Print events since ${time}."`
	To       timeFlag `placeholder:"TIME" help:"Print events up to this time."`
	Payloads bool     `field:"-" help:"Print the payloads."`
	Follow   bool     `field:"-" short:"f" help:"Keep printing new events as they are written."`
	paging
}

type runEventsCmd struct {
	ID    string `arg:"" help:"The run's ID."`
	After int64  `placeholder:"SEQ" help:"Print events after this position in the log."`
	eventFlags
}

// Run prints the run's log, or follows it until the run has ended.
func (c runEventsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	return s.printEvents(ctx, k, c.eventFlags, eventLine)
}

type eventsCmd struct {
	List listEventsCmd `cmd:"" at:"events" help:"Print the events of all runs in a stable order."`
}

type listEventsCmd struct {
	RunID string `name:"run" field:"runId" placeholder:"ID" help:"Print the events of this run."`
	After string `placeholder:"ID" help:"${place}"`
	eventFlags
}

// Run prints the events, or follows them until it is interrupted.
func (c listEventsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	if c.After != "" && !c.Follow {
		return usageErrorf("--after requires --follow; continue a list with --cursor")
	}
	return s.printEvents(ctx, k, c.eventFlags, func(e api.Event) string { return e.RunID + " " + eventLine(e) })
}

// printEvents prints a list of events, or follows them.
func (s *Session) printEvents(ctx context.Context, k *kong.Context, f eventFlags, line func(api.Event) string) error {
	r, err := s.request(k)
	switch {
	case err != nil:
		return err
	case f.Follow && f.paging != (paging{}):
		return usageErrorf("--follow starts at --after; it takes no --limit, --all, --cursor or --order")
	}
	r.params["payloads"] = f.Payloads
	print := entryPrinter(s, func(e api.Event) error {
		s.addVote(ctx, e)
		_, err := io.WriteString(s.Stdout, line(e)+s.payloadLines(e))
		return err
	})
	if f.Follow {
		return s.follow(ctx, r.path()+"/stream", r.query(), print)
	}
	return s.entries(ctx, r.path(), r.query(), f.paging, print)
}

// eventLine formats an event without its payload, but with the scalar fields of its data, and workflows and steps by
// their titles.
func eventLine(e api.Event) string {
	cells := fmt.Sprintf("%6d  %s  %-14s  %s", e.Seq, timestamp(e.CreatedAt.Time), e.Type, escape(e.CorrelationID))
	attributes := make(map[string]string, len(e.Data))
	for key, value := range e.Data {
		if len(value) > 0 && value[0] != '{' && value[0] != '[' {
			attributes[key] = unquote(value)
		}
		if key == "workflowName" || key == "stepName" {
			attributes[key] = entities.Title(attributes[key])
		}
	}
	return strings.TrimRight(cells+"  "+escape(keyValues(attributes)), " ") + "\n"
}

// addVote adds to the data of an event that is a vote who has voted how, which its payload says. It reads the payload
// unless the event has it. Without the right to see payloads, nothing is added.
func (s *Session) addVote(ctx context.Context, e api.Event) {
	if string(e.Data["verified"]) != `"vote"` {
		return
	}
	if e.Payload == nil {
		e.Payload, _ = s.client.do(ctx, http.MethodGet, payloadPath(e.RunID, e.Seq), nil)
	}
	var vote map[string]json.RawMessage
	if json.Unmarshal(e.Payload, &vote) == nil && vote["decision"] != nil {
		e.Data["decision"], e.Data["by"] = vote["decision"], vote["by"]
	}
}

func payloadPath(run string, seq int64) string {
	return path("runs", run, "events", strconv.FormatInt(seq, 10), "payload")
}

// unquote removes the quotes of a JSON string unless it needs them.
func unquote(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" && !strings.ContainsAny(text, " \"") {
		return text
	}
	return string(raw)
}

// payloadLines formats an event's payload on indented lines.
func (s *Session) payloadLines(e api.Event) string {
	text := s.cut(string(payloadText(e.Payload, e.Encoding)))
	if e.Truncated {
		text = "(omitted: too large; see stepwell runs payload " + e.RunID + " " + strconv.FormatInt(e.Seq, 10) + ")"
	}
	if text == "" {
		return ""
	}
	return "        " + strings.ReplaceAll(text, "\n", "\n        ") + "\n"
}

type payloadCmd struct {
	ID  string `arg:"" help:"The run's ID."`
	Seq int64  `arg:"" help:"The event's position in the log."`

	Offset int64 `placeholder:"BYTES" help:"Begin at this byte."`
	Length int64 `placeholder:"BYTES" help:"Print at most so many bytes, and no part of a character."`
}

// Run copies the payload to standard output, or a piece of it.
func (c payloadCmd) Run(ctx context.Context, s *Session) error {
	resp, err := s.client.send(ctx, http.MethodGet, payloadPath(c.ID, c.Seq), nil, nil)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err = io.CopyN(io.Discard, resp.Body, c.Offset); err != nil && !errors.Is(err, io.EOF) {
		return orInterrupted(ctx, err)
	}
	if c.Length > 0 {
		return c.printPiece(s, resp.Body)
	}
	_, err = io.Copy(s.Stdout, resp.Body)
	return orInterrupted(ctx, err)
}

// printPiece prints the beginning of body, and notes where the next piece begins.
func (c payloadCmd) printPiece(s *Session, body io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(body, c.Length+1))
	if n := c.Length; err == nil && int64(len(data)) > n {
		for n > 1 && !utf8.RuneStart(data[n]) {
			n--
		}
		data = data[:n]
		s.note("more: use --offset %d", c.Offset+n)
	}
	_, writeErr := s.Stdout.Write(data)
	return errors.Join(err, writeErr)
}

type exportRunsCmd struct {
	IDs []string `arg:"" name:"id" help:"The runs' IDs."`
}

// Run prints each run with its log on one line.
func (c exportRunsCmd) Run(ctx context.Context, s *Session) error {
	return forEach(c.IDs, func(id string) error {
		l, err := s.runLog(ctx, id)
		if err != nil {
			return err
		}
		return json.NewEncoder(s.Stdout).Encode(l)
	})
}

// runLog is a run with its log, as the Go SDK's RunLog reads it.
type runLog struct {
	Run    json.RawMessage   `json:"run"`
	Events []json.RawMessage `json:"events"`
}

func (s *Session) runLog(ctx context.Context, id string) (l runLog, err error) {
	if l.Run, err = s.client.get(ctx, path("runs", id), nil, new(api.Run)); err != nil {
		return l, err
	}
	query := url.Values{"payloads": {"true"}}
	err = s.entries(ctx, path("runs", id, "events"), query, paging{All: true}, func(raw json.RawMessage) error {
		var e api.Event
		if err := s.client.decode(raw, &e); err != nil {
			return err
		}
		if e.Truncated {
			if raw, err = s.wholeEvent(ctx, raw, id, e.Seq); err != nil {
				return err
			}
		}
		l.Events = append(l.Events, raw)
		return nil
	})
	return l, err
}

// wholeEvent returns an event with its payload, which the list has omitted because of its size.
func (s *Session) wholeEvent(ctx context.Context, raw json.RawMessage, id string, seq int64) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := s.client.decode(raw, &fields); err != nil {
		return nil, err
	}
	payload, err := s.client.do(ctx, http.MethodGet, payloadPath(id, seq), nil)
	if err != nil {
		return nil, err
	}
	fields["payload"] = payload
	delete(fields, "truncated")
	return json.Marshal(fields)
}
