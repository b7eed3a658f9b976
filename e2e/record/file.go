package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// head is the first object of a file.
type head struct {
	Client string `json:"client"`
	Case   string `json:"case"`
	// Header holds the default headers of the requests.
	Header map[string]string `json:"header"`
}

// line is an exchange as stored in a file. The request's body is stored as text if it is printable.
type line struct {
	Number       int               `json:"n"`
	Clock        time.Time         `json:"clock"`
	Delivery     *Delivery         `json:"delivery,omitempty"`
	Method       string            `json:"method,omitempty"`
	Path         string            `json:"path,omitempty"`
	Header       map[string]string `json:"header,omitempty"`
	Text         string            `json:"text,omitempty"`
	Bytes        []byte            `json:"bytes,omitempty"`
	Says         any               `json:"says,omitempty"`
	Status       int               `json:"status,omitempty"`
	Cut          bool              `json:"cut,omitempty"`
	AnswerHeader map[string]string `json:"answerHeader,omitempty"`
	Answer       any               `json:"answer,omitempty"`
}

// breaks are the fields that start a new line of the file.
var breaks = []string{"header", "text", "bytes", "says", "status", "answer"}

// Write writes the recording in the file format.
func (r Recording) Write(w io.Writer) error {
	var out bytes.Buffer
	common := r.commonHeader()
	first, err := marshal(head{r.Client, r.Case, common})
	if err != nil {
		return err
	}
	out.Write(first)
	known := newGlossary()
	for i, e := range r.Exchanges {
		l := e.line(i+1, common)
		at := fmt.Sprintf("%d ", l.Number)
		l.Says = known.shorten(at+"says", l.Says)
		l.Answer = known.shorten(at+"answer", l.Answer)
		if err := l.write(&out); err != nil {
			return err
		}
	}
	out.WriteByte('\n')
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

// commonHeader returns the most frequent value of each header that all requests have.
func (r Recording) commonHeader() map[string]string {
	requests, values := 0, map[string]map[string]int{}
	for _, e := range r.Exchanges {
		if e.Delivery != nil {
			continue
		}
		requests++
		for name, value := range e.Request.Header {
			if values[name] == nil {
				values[name] = map[string]int{}
			}
			values[name][value]++
		}
	}
	common := map[string]string{}
	for name, counts := range values {
		all, most := 0, 0
		for _, value := range slices.Sorted(maps.Keys(counts)) {
			all += counts[value]
			if counts[value] > most {
				most, common[name] = counts[value], value
			}
		}
		if all < requests {
			delete(common, name)
		}
	}
	return common
}

func (e Exchange) line(number int, common map[string]string) line {
	l := line{
		Number: number, Clock: e.Clock, Delivery: e.Delivery,
		Method: e.Request.Method, Path: e.Request.Path, Header: maps.Clone(e.Request.Header),
		Status: e.Answer.Status, Cut: e.Answer.Cut, AnswerHeader: e.Answer.Header, Answer: e.Answer.Body,
	}
	maps.DeleteFunc(l.Header, func(name, value string) bool { return common[name] == value })
	if printable(e.Request.Body) {
		l.Text = string(e.Request.Body)
	} else {
		l.Bytes, l.Says = e.Request.Body, e.Request.Says()
	}
	return l
}

// write writes the line field by field, to keep the order of fields and insert line breaks.
func (l line) write(out *bytes.Buffer) error {
	whole, err := marshal(l)
	if err != nil {
		return err
	}
	fields := json.NewDecoder(bytes.NewReader(whole))
	if _, err := fields.Token(); err != nil { // the brace
		return fmt.Errorf("write exchange: %w", err)
	}
	for separator := "\n{"; fields.More(); separator = ", " {
		name, err := fields.Token()
		if err != nil {
			return fmt.Errorf("write exchange: %w", err)
		}
		var value json.RawMessage
		if err := fields.Decode(&value); err != nil {
			return fmt.Errorf("write exchange: %w", err)
		}
		if slices.Contains(breaks, fmt.Sprint(name)) {
			separator = ",\n "
		}
		fmt.Fprintf(out, "%s%q: %s", separator, name, value)
	}
	out.WriteByte('}')
	return nil
}

// marshal encodes JSON without HTML escapes.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write recording: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Read reads the file format. It fails if the decoded form of a request does not match its bytes.
func Read(from io.Reader) (Recording, error) {
	objects := json.NewDecoder(from)
	objects.UseNumber()
	objects.DisallowUnknownFields()
	var first head
	if err := objects.Decode(&first); err != nil {
		return Recording{}, fmt.Errorf("read recording: %w", err)
	}
	r := Recording{Client: first.Client, Case: first.Case}
	for known := newGlossary(); ; {
		var l line
		err := objects.Decode(&l)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err == nil {
			err = l.restore(first.Header, known)
		}
		if err != nil {
			return r, fmt.Errorf("read recording: exchange %d: %w", len(r.Exchanges)+1, err)
		}
		r.Exchanges = append(r.Exchanges, l.exchange())
	}
}

// restore undoes the abbreviations of the file format.
func (l *line) restore(common map[string]string, known *glossary) (err error) {
	if l.Delivery == nil {
		header := maps.Clone(common)
		maps.Copy(header, l.Header)
		l.Header = header
	}
	at := fmt.Sprintf("%d ", l.Number)
	if l.Says, err = known.restore(at+"says", l.Says); err != nil {
		return err
	}
	if l.Answer, err = known.restore(at+"answer", l.Answer); err != nil {
		return err
	}
	if l.Bytes == nil {
		return nil
	}
	if wrong := Diff("says", l.Says, l.exchange().Request.Says()); len(wrong) > 0 {
		return fmt.Errorf("the decoded form differs from the bytes: %s", wrong[0])
	}
	return nil
}

func (l *line) exchange() Exchange {
	body := l.Bytes
	if l.Text != "" {
		body = []byte(l.Text)
	}
	return Exchange{
		Clock: l.Clock, Delivery: l.Delivery,
		Request: Request{Method: l.Method, Path: l.Path, Header: l.Header, Body: body},
		Answer:  Answer{Status: l.Status, Header: l.AnswerHeader, Body: l.Answer, Cut: l.Cut},
	}
}
