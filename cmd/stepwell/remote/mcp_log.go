package remote

import (
	"bytes"
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

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// addLogs adds the tools that read what a run did.
func (t *toolSet) addLogs() {
	addTool(t, readsOnly, "run_timeline", timelineTool,
		"Lists what a run did and when: its steps with their attempts, hooks and waits. A short view of its log.")
	addTool(t, readsOnly, "run_log", runLogTool,
		"Lists the events of a run's log, without payloads unless you ask for them. Of a long log, select by "+
			"type, or begin at its end with order desc.")
	addTool(t, readsOnly, "read_payload", readPayloadTool,
		"Reads the payload of one event, which lists shorten: up to 8000 bytes from an offset.")
}

// listOrder is asc for the oldest first, or desc.
type listOrder string

//nolint:lll // tags cannot be broken
type timelineInput struct {
	runInput
	Name   string   `json:"name,omitempty" jsonschema:"Only steps with this name."`
	Status []string `json:"status,omitempty" jsonschema:"Only steps that are pending, running, completed, failed or cancelled."`
	toolPage
}

func timelineTool(ctx context.Context, s *Session, in timelineInput) (answer, error) {
	query := nonEmpty(url.Values{"name": {in.Name}, "status": in.Status})
	return listAnswer(ctx, s, path("runs", in.Run, "timeline"), query, in.toolPage, rows(timelineColumns))
}

//nolint:lll // tags cannot be broken
type runLogInput struct {
	runInput
	Payloads bool      `json:"payloads,omitempty" jsonschema:"Add the payloads: inputs, outputs, errors. Long ones are shortened."`
	Types    []string  `json:"types,omitempty" jsonschema:"Only events of these types, such as step_failed or run_completed."`
	About    string    `json:"about,omitempty" jsonschema:"Only events of the step, hook or wait with this ID."`
	After    int64     `json:"after,omitempty" jsonschema:"Only events after this position in the log."`
	Order    listOrder `json:"order,omitempty" jsonschema:"desc begins with the newest: default asc."`
	toolPage
}

func runLogTool(ctx context.Context, s *Session, in runLogInput) (answer, error) {
	query := nonEmpty(url.Values{
		"payloads": {strconv.FormatBool(in.Payloads)}, "type": in.Types, "correlationId": {in.About},
		"after": {strconv.FormatInt(in.After, 10)}, "order": {string(in.Order)},
	})
	return listAnswer(ctx, s, path("runs", in.Run, "events"), query, in.toolPage, logText)
}

// loggedEvent is an event in an answer.
type loggedEvent struct {
	api.Event

	Shortened bool `json:"shortened"`
}

// logText prints each event on a line, and what there is of its payload on another.
func logText(_ *Session, events []loggedEvent) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(strings.TrimLeft(eventLine(e.Event), " "))
		switch whole := fmt.Sprintf("read_payload seq %d has the whole", e.Seq); {
		case e.Truncated:
			b.WriteString("  (too large: " + whole + ")\n")
		case e.Shortened:
			b.WriteString("  " + string(e.Payload) + " (shortened: " + whole + ")\n")
		case len(e.Payload) > 0:
			b.WriteString("  " + string(e.Payload) + "\n")
		}
	}
	return b.String()
}

type readPayloadInput struct {
	runInput
	Seq    int64 `json:"seq" jsonschema:"The event's position in the log."`
	Offset int64 `json:"offset,omitempty" jsonschema:"Where to go on, in bytes: the next of an earlier answer."`
}

// payloadPiece is a part of a payload.
type payloadPiece struct {
	Text string `json:"text"`
	// Next is where the next piece begins; 0 if there is none.
	Next int64 `json:"next,omitempty"`
}

// maxPiece is how many bytes of a payload an answer has.
const maxPiece = 8000

func readPayloadTool(ctx context.Context, s *Session, in readPayloadInput) (answer, error) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := s.client.send(limited, http.MethodGet, payloadPath(in.Run, in.Seq), nil, nil)
	if err != nil {
		return answer{}, orInterrupted(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err = io.CopyN(io.Discard, resp.Body, max(0, in.Offset)); err != nil && !errors.Is(err, io.EOF) {
		return answer{}, s.client.unreachable(limited, err)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxPiece+1))
	if err != nil {
		return answer{}, s.client.unreachable(limited, err)
	}
	piece, err := pieceOf(data, max(0, in.Offset))
	if err != nil {
		return answer{}, err
	}
	text, more := piece.Text, ""
	if text == "" {
		text = "(nothing here)"
	}
	if piece.Next > 0 {
		more = fmt.Sprintf("(more: call again with offset %d)", piece.Next)
	}
	return answer{text: joinLines(text, more), data: piece}, nil
}

// pieceOf returns the beginning of data as a piece that is text, and takes no more than maxAnswer in JSON.
func pieceOf(data []byte, offset int64) (p payloadPiece, err error) {
	n := min(len(data), maxPiece)
	for n < len(data) && n > 0 && !utf8.RuneStart(data[n]) {
		n--
	}
	if !utf8.Valid(data[:n]) || bytes.IndexByte(data[:n], 0) >= 0 {
		return p, errors.New("the payload is not text: get_run and run_log show what the server can decode of it")
	}
	for {
		p.Text = string(data[:n])
		if n < len(data) {
			p.Next = offset + int64(n)
		}
		if encoded, err := json.Marshal(p); err != nil || len(encoded) <= maxAnswer {
			return p, err
		}
		for n /= 2; n > 0 && !utf8.RuneStart(data[n]); n-- {
		}
	}
}
