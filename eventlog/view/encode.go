package view

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
)

// Encoder encodes the events of a list, byte for byte as encoding/json does without escaping HTML, but without
// reflection. Data that events share is encoded once, so it must not change meanwhile. The zero Encoder is ready to
// use.
type Encoder struct {
	data map[*entities.EventData][]byte
}

// maxKnown is how many different data an encoder remembers.
const maxKnown = 64

// Append appends the JSON of an event.
func (w *Encoder) Append(dst []byte, e *Event) (_ []byte, err error) {
	dst = appendText(append(dst, `{"runId":`...), string(e.RunID))
	dst = strconv.AppendInt(append(dst, `,"seq":`...), e.Seq, 10)
	dst = e.ID.appendTo(append(dst, `,"id":`...))
	dst = appendText(append(dst, `,"type":`...), string(e.Type))
	if e.CorrelationID != "" {
		dst = appendText(append(dst, `,"correlationId":`...), e.CorrelationID)
	}
	dst = e.CreatedAt.appendTo(append(dst, `,"createdAt":`...))
	if dst, err = w.appendData(append(dst, `,"data":`...), e.Data); err != nil {
		return dst, err
	}
	if len(e.Payload) > 0 {
		dst = appendPayload(append(dst, `,"payload":`...), e)
	}
	if e.Encoding != "" {
		dst = appendText(append(dst, `,"encoding":`...), e.Encoding)
	}
	if e.Truncated {
		dst = append(dst, `,"truncated":true`...)
	}
	return append(dst, '}'), nil
}

func (w *Encoder) appendData(dst []byte, data *entities.EventData) ([]byte, error) {
	if known, ok := w.data[data]; ok {
		return append(dst, known...), nil
	}
	start := len(dst)
	dst, err := appendJSON(dst, data)
	if err == nil && len(w.data) < maxKnown {
		if w.data == nil {
			w.data = map[*entities.EventData][]byte{}
		}
		w.data[data] = slices.Clone(dst[start:])
	}
	return dst, err
}

// appendPayload appends the payload without white space. Only what was stored as JSON can have any.
func appendPayload(dst []byte, e *Event) []byte {
	if e.Encoding != payload.EncodingJSON {
		return append(dst, e.Payload...)
	}
	return appendCompact(dst, e.Payload)
}

// appendCompact appends JSON without white space. It must be valid, as a decoded payload is: [json.Compact] takes
// longer, because it checks that again.
func appendCompact(dst, valid []byte) []byte {
	quoted := false
	for i := 0; i < len(valid); i++ {
		c := valid[i]
		switch {
		case quoted && c == '\\':
			dst = append(dst, c)
			i++
			c = valid[i]
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t' || c == '\r' || c == '\n'):
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// appendText appends a text as JSON.
func appendText(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			dst, _ = appendJSON(dst, text) // cannot fail on a text
			return dst
		}
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"')
}

func appendJSON(dst []byte, v any) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// appendTo appends the JSON of the ID, which needs no escapes.
func (id ID) appendTo(dst []byte) []byte {
	return append(entities.AppendEventID(append(dst, '"'), int64(id)), '"')
}

// appendTo appends the JSON of the time. Of all layouts, RFC 3339 is formatted the fastest.
func (t Time) appendTo(dst []byte) []byte {
	dst = t.UTC().AppendFormat(append(dst, '"'), time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(dst[:len(dst)-1], '.', digit(ms/100), digit(ms/10), digit(ms), 'Z', '"')
}

func digit(n int) byte { return byte('0' + n%10) }
