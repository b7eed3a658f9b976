// Package redact replaces the texts in the log of a run by others, so that the log can be replayed outside production.
//
// A text becomes one of the same length, in which each letter is replaced by a letter and each digit by a digit. Equal
// texts stay equal, also if only their case differs, and different ones different: a workflow that compares texts of
// its input takes the same branches. It also replaces the texts in IDs, names of steps and keys of maps that were made
// of them. Numbers, times, run IDs, error codes, and the names of fields, attributes, keys of the store, workflows and
// steps stay. So do a map's keys that look like names of fields, and words of lower-case letters in the names of steps.
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
	"regexp"
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

// New returns a redactor. Values of fields of payloads with one of the kept names stay.
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
	"deployment": true, "deploymentId": true, "driver": true, "status": true, "parentId": true, "stepName": true,
	"conflictingRunId": true, "forceRefusedReason": true, "at": true, "errorCode": true, "via": true, "verified": true,
	"signal": true, "build": true,
	"open": true, // IDs
}

// plainBelow are the plain fields below fields of an event's data.
var plainBelow = map[string]map[string]bool{
	"step":    {"childId": true, "deploymentId": true, "onParentEnd": true},
	"changes": {"key": true}, // of an attribute

	"forceClaimedFrom": {"runId": true, "hookId": true, "workflowName": true, "deploymentId": true},
	"forceClaimedBy":   {"runId": true, "hookId": true},
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
	for i, data := range events {
		if log[i], err = decode(data); err != nil {
			return nil, nil, fmt.Errorf("read event %d: %w", i+1, err)
		}
		r.event(log[i])
	}
	r.fields(fields)
	static := map[string]bool{}
	for _, event := range log {
		r.stepName(event, static)
	}
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

// event replaces the texts of an event, except its IDs and the name of its step.
func (r *Redactor) event(event map[string]any) {
	payload, ok := event["payload"]
	fields, isObject := payload.(map[string]any)
	switch eventType := event["type"]; {
	case !ok:
	case isObject && eventType == "store_set":
		for key, value := range fields {
			fields[key] = r.value(value)
		}
	case isObject && (eventType == "step_failed" || eventType == "step_retrying" || eventType == "run_failed"):
		code, hasCode := fields["code"]
		event["payload"] = r.value(payload)
		if hasCode {
			event["payload"].(map[string]any)["code"] = code
		}
	default:
		event["payload"] = r.value(payload)
	}
	if data, ok := event["data"].(map[string]any); ok {
		r.fields(data)
	}
}

// fields replaces the texts in the fields of a run or of an event's data.
func (r *Redactor) fields(of map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		switch v := of[name].(type) {
		case map[string]any: // the names of attributes stay as well
			r.below(v, plainBelow[name])
		case []any:
			if plain[name] {
				continue
			}
			for i := range v {
				if fields, ok := v[i].(map[string]any); ok {
					r.below(fields, plainBelow[name])
				} else {
					v[i] = r.value(v[i])
				}
			}
		default:
			if !plain[name] {
				of[name] = r.value(v)
			}
		}
	}
}

func (r *Redactor) below(fields map[string]any, plain map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !plain[name] {
			fields[name] = r.value(fields[name])
		}
	}
}

// value replaces the texts in a value, except those in fields that are kept.
func (r *Redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	case map[string]any:
		made := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value := v[name]
			if !r.keep[name] {
				value = r.value(value)
			}
			if !fieldName.MatchString(name) || manyDigits.MatchString(name) { // it is a key of a map
				name = r.text(name)
			}
			made[name] = value
		}
		return made
	}
	return v
}

// fieldName matches names of fields, and manyDigits those that are rather numbers or made of them.
var (
	fieldName  = regexp.MustCompile(`^[$_\pL][$_\pL\d-]*$`)
	manyDigits = regexp.MustCompile(`\d.*\d.*\d.*\d`)
)

// text returns the replacement of a text. Texts that differ only in their case have replacements that do.
func (r *Redactor) text(s string) string {
	if _, err := time.Parse(time.RFC3339, s); err == nil {
		return s
	}
	if made, ok := r.made[s]; ok {
		return made
	}
	lower := strings.ToLower(s)
	made, ok := r.made[lower]
	for attempt := byte(0); !ok && attempt < 100; attempt++ { // short texts can clash
		if made = r.scramble(lower, attempt); !r.used[made] {
			break
		}
	}
	r.used[made] = true
	for _, text := range []string{lower, strings.ToUpper(s), s} {
		r.made[text] = likeCase(text, made)
	}
	return r.made[s]
}

// likeCase returns a lower-case text with upper-case letters where the other text of the same length has them.
func likeCase(other, text string) string {
	letters := []rune(text)
	for i, c := range []rune(other) {
		if i < len(letters) && unicode.IsUpper(c) {
			letters[i] = unicode.ToUpper(letters[i])
		}
	}
	return string(letters)
}

// scramble replaces lower-case letters by letters and digits by digits. A text that can be hexadecimal stays so.
func (r *Redactor) scramble(s string, attempt byte) string {
	hash := hmac.New(sha256.New, r.key)
	hash.Write(append([]byte{attempt}, s...))
	random := rand.New(rand.NewChaCha8([32]byte(hash.Sum(nil)))) //nolint:gosec // the key makes it secret
	letters := int32(26)
	if strings.Trim(s, "0123456789abcdef-") == "" {
		letters = 6
	}
	return strings.Map(func(c rune) rune {
		switch {
		case c >= '0' && c <= '9':
			return '0' + random.Int32N(10)
		case c >= 'a' && c <= 'z':
			return 'a' + random.Int32N(letters)
		case c >= 0x80 && (unicode.IsLetter(c) || unicode.IsDigit(c)):
			return 'à' + random.Int32N(22)
		default:
			return c
		}
	}, s)
}

// stepName replaces the texts in the name of an event's step, and notes a name that has none.
func (r *Redactor) stepName(event map[string]any, static map[string]bool) {
	data, _ := event["data"].(map[string]any)
	name, ok := data["stepName"].(string)
	if !ok {
		return
	}
	for text := range r.made {
		if len(text) >= shortest && !isWord(text) && strings.Contains(name, text) {
			data["stepName"] = r.name(name)
			return
		}
	}
	static[name] = true
}

// isWord reports whether a text consists of lower-case letters, as words of names do. Such a text can be in the name of
// a step by accident.
func isWord(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsLower(c) })
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

// id replaces the texts in an ID, which consists of names, dots, and numbers after a #. IDs that no SDK has made can
// have texts that are not escaped.
func (r *Redactor) id(id string, static map[string]bool) string {
	var raw []string
	for text := range r.made {
		if len(text) >= shortest && strings.ContainsAny(text, ".#%") && strings.Contains(id, text) {
			raw = append(raw, text)
		}
	}
	slices.SortFunc(raw, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, text := range raw {
		id = strings.ReplaceAll(id, text, r.made[text])
	}
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
