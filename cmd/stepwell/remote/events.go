package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// eventFilter is which events are meant, and how they are read.
type eventFilter struct {
	Type     []string `placeholder:"TYPE" help:"Those of this type, such as step_failed; several are separated by commas."`
	About    string   `placeholder:"ID" help:"Those about the step, hook or wait of this ID."`
	From     moment   `placeholder:"TIME" help:"Those of this time and later: RFC 3339, or an age such as 2h."`
	To       moment   `placeholder:"TIME" help:"Those of this time and earlier."`
	Payloads bool     `help:"With their payloads."`
	Follow   bool     `short:"f" help:"Go on with new ones as they are written."`
	paging
	ordering
}

func (f eventFilter) query(s *Session) (url.Values, error) {
	query := url.Values{"payloads": {strconv.FormatBool(f.Payloads)}}
	from, err := f.From.of(s.Now())
	if err != nil {
		return nil, err
	}
	to, err := f.To.of(s.Now())
	if err != nil {
		return nil, err
	}
	set(query, "from", from)
	set(query, "to", to)
	set(query, "correlationId", f.About)
	for _, t := range f.Type {
		query.Add("type", t)
	}
	if f.Follow && (f.paging != paging{} || f.Order != "") {
		return nil, usage("--follow begins at --after and goes on; it takes no --limit, --all, --cursor and --order")
	}
	f.into(query)
	return query, nil
}

type runEventsCmd struct {
	ID    string `arg:"" help:"The run's ID."`
	After int64  `placeholder:"SEQ" help:"Those behind this position in the log."`
	eventFilter
}

// Run prints the run's log, or follows it until the run has ended.
func (c runEventsCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	if c.After != 0 {
		query.Set("after", strconv.FormatInt(c.After, 10))
	}
	return s.printEvents(ctx, path("runs", c.ID, "events"), query, c.eventFilter, eventLine)
}

type eventsCmd struct {
	List eventsListCmd `cmd:"" help:"Print the events of all runs, in an order that never changes."`
}

type eventsListCmd struct {
	RunID string `name:"run" placeholder:"ID" help:"Those of this run."`
	After string `placeholder:"ID" help:"${place}"`
	eventFilter
}

// Run prints the events, or follows them for ever.
func (c eventsListCmd) Run(ctx context.Context, s *Session) error {
	query, err := c.query(s)
	if err != nil {
		return err
	}
	set(query, "runId", c.RunID)
	if c.After != "" && !c.Follow {
		return usage("--after is for --follow; a list goes on from --cursor")
	}
	set(query, "after", c.After)
	return s.printEvents(ctx, path("events"), query, c.eventFilter, func(e event) string {
		return e.RunID + " " + eventLine(e)
	})
}

// printEvents prints events as they come, on lines that need not be aligned with those to come.
func (s *Session) printEvents(
	ctx context.Context, path string, query url.Values, f eventFilter, line func(event) string,
) error {
	print := func(raw json.RawMessage) error {
		if s.json {
			return s.printJSON(raw)
		}
		var e event
		if err := s.client.decode(raw, &e); err != nil {
			return err
		}
		_, err := io.WriteString(s.Stdout, line(e)+s.payloadLines(e))
		return err
	}
	if f.Follow {
		return s.follow(ctx, path+"/stream", query, func(data string) error { return print(json.RawMessage(data)) })
	}
	return s.pages(ctx, path, query, f.paging, func(entries []json.RawMessage) error {
		for _, e := range entries {
			if err := print(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// eventLine is an event without its payload.
func eventLine(e event) string {
	cells := fmt.Sprintf("%6d  %s  %-14s  %s", e.Seq, stamp(e.CreatedAt), e.Type, clean(e.CorrelationID))
	facts := make([]string, 0, len(e.Data))
	for _, key := range sortedKeys(e.Data) {
		if fact := e.Data[key]; len(fact) > 0 && fact[0] != '{' && fact[0] != '[' {
			facts = append(facts, key+"="+scalar(fact))
		}
	}
	return strings.TrimRight(cells+"  "+clean(strings.Join(facts, " ")), " ") + "\n"
}

// scalar shows a text without its quotes if it can do without.
func scalar(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" && !strings.ContainsAny(text, " \"") {
		return text
	}
	return string(raw)
}

// payloadLines is an event's payload on lines of its own, further in.
func (s *Session) payloadLines(e event) string {
	text := value(e.Payload, e.Encoding)
	if e.Truncated {
		text = "(left out for its size: stepwell runs payload " + e.RunID + " " + strconv.FormatInt(e.Seq, 10) + ")"
	}
	if text == "" {
		return ""
	}
	return "        " + strings.ReplaceAll(text, "\n", "\n        ") + "\n"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type payloadCmd struct {
	ID  string `arg:"" help:"The run's ID."`
	Seq int64  `arg:"" help:"The event's position in the log."`
}

// Run copies the payload to standard output.
func (c payloadCmd) Run(ctx context.Context, s *Session) error {
	resp, err := s.client.send(ctx, http.MethodGet,
		path("runs", c.ID, "events", strconv.FormatInt(c.Seq, 10), "payload"), nil, nil)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(s.Stdout, resp.Body)
	return interrupted(ctx, err)
}
