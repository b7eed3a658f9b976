package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/stepwell-dev/stepwell/entities/strictjson"
)

// template is a value of a document with expressions in its texts.
//
//   - A text that is one expression, "${input.amount}", has the value of the expression, of any type.
//   - A text with pieces, "Order ${input.id}", is a text.
//   - "$${" is a dollar sign and a brace. Names of fields have no expressions.
type template struct {
	fixed  json.RawMessage // of a value without expressions
	whole  *expression     // of a text that is one expression
	pieces []piece         // of a text with pieces
	items  []*template     // of a list, or the values of an object with the names
	names  []string
}

// piece is a part of a text: an expression, or text.
type piece struct {
	text string
	expr *expression
}

// newTemplate compiles a value, in which expressions know the names. It hands each expression to visit.
func newTemplate(n *node, faults *Faults, names lets, visit func(*node, *expression)) *template {
	switch n.kind {
	case kindText:
		return textTemplate(n, faults, names, visit)
	case kindList, kindObject:
	default:
		return &template{fixed: n.appendJSON(nil)}
	}
	t := &template{items: []*template{}}
	fixed := true
	for i, name := range n.names {
		text, err := fieldName(name)
		if err != nil {
			faults.add(n.items[i], CodeExpression, "%v", err)
		}
		t.names = append(t.names, text)
	}
	for _, item := range n.items {
		one := newTemplate(item, faults, names, visit)
		fixed = fixed && one.fixed != nil
		t.items = append(t.items, one)
	}
	if n.kind == kindObject && t.names == nil {
		t.names = []string{}
	}
	if fixed {
		return &template{fixed: t.join(func(one *template) json.RawMessage { return one.fixed })}
	}
	return t
}

func textTemplate(n *node, faults *Faults, names lets, visit func(*node, *expression)) *template {
	pieces, err := split(n.text)
	if err != nil {
		faults.add(n, CodeExpression, "%v", err)
		return &template{fixed: json.RawMessage("null")}
	}
	t, fixed := &template{}, ""
	for _, p := range pieces {
		if p.expr == nil {
			t.pieces, fixed = append(t.pieces, p), fixed+p.text
			continue
		}
		compiled, err := compile(p.text, names)
		if err != nil {
			faults.add(n, CodeExpression, "%v", err)
			continue
		}
		visit(n, compiled)
		t.pieces = append(t.pieces, piece{expr: compiled})
		t.whole = compiled
	}
	switch {
	case t.whole == nil:
		return &template{fixed: appendText(nil, fixed)}
	case len(pieces) > 1:
		t.whole = nil
	default:
		t.pieces = nil
	}
	return t
}

// fieldName returns the name of a field, in which "$${" is a dollar sign and a brace. It fails on an expression.
func fieldName(name string) (string, error) {
	if !strings.Contains(name, "${") {
		return name, nil
	}
	pieces, err := split(name)
	if err != nil || len(pieces) != 1 || pieces[0].expr != nil {
		return name, errors.New(`"${" is no expression in the name of a field; write "$${" if no expression is meant`)
	}
	return pieces[0].text, nil
}

// split splits a text into its pieces; those with an expression have an empty one, and its text.
func split(text string) (pieces []piece, err error) {
	literal := ""
	for text != "" {
		i := strings.Index(text, "${")
		if i < 0 {
			literal += text
			break
		}
		if i > 0 && text[i-1] == '$' {
			literal, text = literal+text[:i-1]+"${", text[i+2:]
			continue
		}
		if literal += text[:i]; literal != "" {
			pieces, literal = append(pieces, piece{text: literal}), ""
		}
		end := closing(text[i+2:])
		if end < 0 {
			return nil, fmt.Errorf(`"${" has no "}" after it; write "$${" if no expression is meant`)
		}
		pieces = append(pieces, piece{text: text[i+2 : i+2+end], expr: &expression{}})
		text = text[i+2+end+1:]
	}
	if literal != "" || len(pieces) == 0 {
		pieces = append(pieces, piece{text: literal})
	}
	return pieces, nil
}

// closing returns where the brace is that ends an expression: not inside of a text or of other braces. It returns -1 if
// there is none.
func closing(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// json evaluates the template.
func (t *template) json(s scope) (json.RawMessage, error) {
	value, err := t.value(s)
	switch {
	case err != nil || t.fixed != nil:
	case len(value) > MaxPayload: // its parts are not, but what it puts around them counts, too
		err = errTooMuch
	default:
		err = strictjson.Check(value)
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

func (t *template) value(s scope) (json.RawMessage, error) {
	switch {
	case t.fixed != nil:
		return t.fixed, s.spend(len(t.fixed))
	case t.whole != nil:
		return t.whole.json(s)
	case t.pieces != nil:
		return t.text(s)
	}
	var failed error
	value := t.join(func(one *template) json.RawMessage {
		if failed != nil {
			return nil
		}
		text, err := one.value(s)
		failed = err
		return text
	})
	return value, failed
}

func (t *template) text(s scope) (json.RawMessage, error) {
	var text strings.Builder
	for _, p := range t.pieces {
		if p.expr == nil {
			text.WriteString(p.text)
			if err := s.spend(len(p.text)); err != nil {
				return nil, err
			}
			continue
		}
		value, err := p.expr.json(s)
		if err != nil {
			return nil, err
		}
		text.WriteString(plain(value))
	}
	return appendText(nil, text.String()), nil
}

// join returns the list or object with the given values of its items.
func (t *template) join(value func(*template) json.RawMessage) json.RawMessage {
	open, end := byte('['), byte(']')
	if t.names != nil {
		open, end = '{', '}'
	}
	text := []byte{open}
	for i, item := range t.items {
		if i > 0 {
			text = append(text, ',')
		}
		if t.names != nil {
			text = append(appendText(text, t.names[i]), ':')
		}
		text = append(text, value(item)...)
	}
	return append(text, end)
}
