package flow

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/condition"
)

// Values are those of an event that the expressions of a start can read, each as JSON; nil for what it does not have.
type Values struct{ Data, Signal, Run json.RawMessage }

// maxFilled limits the expressions of one value.
const maxFilled = 100

// Fill returns a JSON value with values of an event in place of the expressions in its texts, which are written as in
// documents: "${data.customer}". A value without expressions is returned byte for byte. Fill fails with
// [entities.ErrInvalid] if the event does not have the values.
func Fill(value json.RawMessage, v Values) (json.RawMessage, error) {
	t, err := parseFill(value)
	if t == nil || err != nil {
		return value, err
	}
	filled, err := t.json(&eventScope{Values: v})
	if err != nil {
		return nil, entities.Invalid("%v", err)
	}
	return filled, nil
}

// FillText is [Fill] for a text. A value that is no text becomes its JSON.
func FillText(text string, v Values) (string, error) {
	if !strings.Contains(text, "${") {
		return text, nil
	}
	value, err := Fill(appendText(nil, text), v)
	return plain(value), err
}

// CheckFill fails with [entities.ErrInvalid] on a value that [Fill] refuses whatever the event is.
func CheckFill(value json.RawMessage) error {
	_, err := parseFill(value)
	return err
}

// parseFill compiles a JSON value; nil if it has no expressions.
func parseFill(value json.RawMessage) (*template, error) {
	if !bytes.Contains(value, []byte("${")) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	p := fillParser{decoder: d}
	t, err := p.value()
	switch {
	case err != nil:
		return nil, entities.Invalid("it is not JSON: %v", err)
	case len(p.faults) > 0:
		return nil, entities.Invalid("%s", p.faults[0].Message)
	case p.expressions > maxFilled:
		return nil, entities.Invalid("it has %d expressions; the limit is %d", p.expressions, maxFilled)
	}
	return t, nil
}

// fillParser reads a JSON value as a template.
type fillParser struct {
	decoder     *json.Decoder
	faults      Faults
	expressions int
}

func (p *fillParser) value() (*template, error) {
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		return p.container(token)
	case string:
		return textTemplate(&node{kind: kindText, text: token}, &p.faults, p.visit), nil
	default:
		text, err := json.Marshal(token)
		return &template{fixed: text}, err
	}
}

func (p *fillParser) container(open json.Delim) (*template, error) {
	t := &template{items: []*template{}}
	if open == '{' {
		t.names = []string{}
	}
	for p.decoder.More() {
		if t.names != nil {
			token, err := p.decoder.Token()
			if err != nil {
				return nil, err
			}
			name, _ := token.(string) // the decoder has checked it
			t.names = append(t.names, name)
		}
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		t.items = append(t.items, item)
	}
	_, err := p.decoder.Token()
	return t, err
}

// visit checks that an expression reads what an event has.
func (p *fillParser) visit(n *node, e *expression) {
	p.expressions++
	for _, name := range e.vars {
		if !slices.Contains([]string{varData, varSignal, varRun}, name) {
			p.faults.add(n, CodeExpression, "the expression %q reads %s; known are data, signal and run", e.text, name)
		}
	}
}

// eventScope evaluates the expressions of one value.
type eventScope struct {
	Values

	made int
}

func (s *eventScope) value(name string, _ []string) json.RawMessage {
	return orNull(map[string]json.RawMessage{varData: s.Data, varSignal: s.Signal, varRun: s.Run}[name])
}

func (s *eventScope) decode(name string, _ []string) (any, error) {
	return condition.Decode(s.value(name, nil))
}

// now is not known: expressions that read it are refused.
func (s *eventScope) now() time.Time { return time.Time{} }

func (s *eventScope) left() int { return maxMade - s.made }

func (s *eventScope) spend(bytes int) error {
	if bytes > s.left() {
		return errTooMuch
	}
	s.made += bytes
	return nil
}
