// Package redact replaces the texts in the log of a run by others, so that the log can be replayed outside production.
//
// A text becomes one of the same length, in which each letter is replaced by a letter and each digit by a digit. Equal
// texts stay equal, and different ones different: a workflow that compares texts of its input takes the same branches.
// It also replaces the texts in IDs that were made of them. Numbers, names of fields, times, run IDs and error codes
// stay.
package redact

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Redactor redacts logs. Its texts cannot be restored without its key.
type Redactor struct {
	key  []byte
	keep map[string]bool
	made map[string]string // from texts to their replacements
	used map[string]bool   // replacements
}

// New returns a redactor. Texts in fields of payloads with one of the kept names stay, as do those below them.
func New(key []byte, keep []string) *Redactor {
	r := &Redactor{key, map[string]bool{}, map[string]string{}, map[string]bool{}}
	for _, name := range keep {
		r.keep[name] = true
	}
	return r
}

// plain are the fields of events and runs whose texts the server or the programmer made.
var plain = map[string]bool{
	"id": true, "runId": true, "type": true, "encoding": true, "workflow": true, "workflowName": true,
	"deployment": true, "deploymentId": true, "driver": true, "status": true, "parentId": true, "childId": true,
	"conflictingRunId": true, "stepName": true, "at": true, "errorCode": true, "via": true, "verified": true,
	"onParentEnd": true, "signal": true, "build": true, "code": true,
	"open": true, // IDs
}

// Run returns a run and its events, as the API returns them, with other texts.
func (r *Redactor) Run(run json.RawMessage, events []json.RawMessage) (json.RawMessage, []json.RawMessage, error) {
	fields, err := decode(run)
	if err != nil {
		return nil, nil, fmt.Errorf("read the run: %w", err)
	}
	for _, name := range []string{"input", "output", "error", "cancelReason", "held"} {
		delete(fields, name) // the log has them
	}
	log := make([]map[string]any, len(events))
	static := map[string]bool{}
	for i, data := range events {
		if log[i], err = decode(data); err != nil {
			return nil, nil, fmt.Errorf("read event %d: %w", i+1, err)
		}
		if data, ok := log[i]["data"].(map[string]any); ok {
			if name, ok := data["stepName"].(string); ok {
				static[name] = true
			}
		}
		r.event(log[i])
	}
	r.value(fields, plain)
	redacted := make([]json.RawMessage, len(log))
	for i, event := range log {
		if redacted[i], err = json.Marshal(r.ids(event, static)); err != nil {
			return nil, nil, err
		}
	}
	run, err = json.Marshal(fields)
	return run, redacted, err
}

func decode(data []byte) (fields map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return fields, d.Decode(&fields)
}

// event replaces the texts of an event, except its IDs.
func (r *Redactor) event(event map[string]any) {
	if payload, ok := event["payload"]; ok {
		keep := r.keep
		switch event["type"] {
		case "step_failed", "step_retrying", "run_failed":
			keep = maps.Clone(r.keep)
			keep["code"] = true
		}
		event["payload"] = r.value(payload, keep)
	}
	if data, ok := event["data"].(map[string]any); ok {
		r.value(data, plain)
	}
}

// value replaces the texts in a value, except those in fields that are kept.
func (r *Redactor) value(v any, keep map[string]bool) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i], keep)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !keep[name] {
				v[name] = r.value(v[name], keep)
			}
		}
	}
	return v
}

// text returns the replacement of a text.
func (r *Redactor) text(s string) string {
	if _, err := time.Parse(time.RFC3339, s); err == nil {
		return s
	}
	if made, ok := r.made[s]; ok {
		return made
	}
	var made string
	for attempt := range byte(100) { // short texts can clash
		if made = r.scramble(s, attempt); !r.used[made] {
			break
		}
	}
	r.made[s], r.used[made] = made, true
	return made
}

// scramble replaces letters by letters and digits by digits. A text that can be hexadecimal stays so.
func (r *Redactor) scramble(s string, attempt byte) string {
	hash := hmac.New(sha256.New, r.key)
	hash.Write(append([]byte{attempt}, s...))
	random := rand.New(rand.NewChaCha8([32]byte(hash.Sum(nil)))) //nolint:gosec // the key makes it secret
	letters := int32(26)
	if strings.Trim(strings.ToLower(s), "0123456789abcdef-") == "" {
		letters = 6
	}
	return strings.Map(func(c rune) rune {
		switch {
		case c >= '0' && c <= '9':
			return '0' + random.Int32N(10)
		case c >= 'a' && c <= 'z':
			return 'a' + random.Int32N(letters)
		case c >= 'A' && c <= 'Z':
			return 'A' + random.Int32N(letters)
		case c >= 0x80 && (unicode.IsLetter(c) || unicode.IsDigit(c)):
			return 'à' + random.Int32N(22)
		default:
			return c
		}
	}, s)
}

// ids replaces the texts in the IDs of an event.
func (r *Redactor) ids(event map[string]any, static map[string]bool) map[string]any {
	if id, ok := event["correlationId"].(string); ok {
		event["correlationId"] = r.id(id, static)
	}
	if data, ok := event["data"].(map[string]any); ok {
		if open, ok := data["open"].([]any); ok {
			for i := range open {
				if id, ok := open[i].(string); ok {
					open[i] = r.id(id, static)
				}
			}
		}
	}
	return event
}

// id replaces the texts in an ID, which consists of names, dots, and numbers after a #.
func (r *Redactor) id(id string, static map[string]bool) string {
	parts := strings.Split(id, ".")
	for i, part := range parts {
		name, number, numbered := strings.Cut(part, "#")
		name, err := url.PathUnescape(name)
		if err != nil || static[name] {
			continue
		}
		parts[i] = escape(r.name(name))
		if numbered {
			parts[i] += "#" + number
		}
	}
	return strings.Join(parts, ".")
}

// shortest is the length of the shortest text that is replaced within a name.
const shortest = 4

// name replaces the texts in a name: the whole name, or else the longest ones within it.
func (r *Redactor) name(name string) string {
	if made, ok := r.made[name]; ok {
		return made
	}
	longest := ""
	for text := range r.made {
		if len(text) >= shortest && strings.Contains(name, text) &&
			cmp.Or(cmp.Compare(len(text), len(longest)), cmp.Compare(text, longest)) > 0 {
			longest = text
		}
	}
	before, after, found := strings.Cut(name, longest)
	if longest == "" || !found {
		return name
	}
	return r.name(before) + r.made[longest] + r.name(after)
}

// escape percent-encodes a name as SDKs do it in IDs.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("/%#.", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
