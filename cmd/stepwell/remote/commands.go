package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// A command that is one request is declared where its group lists it, with tags of its own:
//
//   - at: the path below /v1 with a star for each argument, a method before it if that is not GET, and a parameter that
//     never changes after a question mark.
//   - says: what is printed once something has changed. $1 is the first argument, $name the field of the answer.
//
// Flags become fields of the request's body, or parameters of the query of GET and DELETE. Their names are in camel
// case, or what the tag field says; "-" leaves one out. So do arguments that have the tag.

// row is a type of the API with what lists print of it.
type row interface{ columns() []field }

// detailed is a row of which there is more to show.
type detailed interface {
	row
	details() []field
}

// Arguments of commands. The variable of is what the commands of a group are about.
type (
	named struct {
		Name string `arg:"" help:"The ${of}'s name."`
	}
	identified struct {
		ID string `arg:"" help:"The ${of}'s ID."`
	}
	inRun struct {
		RunID string `arg:"" name:"run" help:"The run's ID."`
	}
	names struct {
		Names []string `arg:"" name:"name" help:"The ${of}'s name; may be repeated."`
	}
	ids struct {
		IDs []string `arg:"" name:"id" help:"The ${of}'s ID; may be repeated."`
	}
	note struct {
		Note string `placeholder:"TEXT" help:"The reason, shown with it."`
	}
	none struct{}
)

// request is what a command asks for.
type request struct {
	method, at string
	args       []string // in place of the stars
	params     jsonBody
}

// request returns the request of the selected command.
func (s *Session) request(k *kong.Context) (r request, err error) {
	node := k.Selected()
	method, at, found := strings.Cut(node.Tag.Get("at"), " ")
	if !found {
		method, at = http.MethodGet, method
	}
	at, always, _ := strings.Cut(at, "?")
	r = request{method: method, at: at, params: jsonBody{}}
	if name, value, ok := strings.Cut(always, "="); ok {
		r.params[name] = constant(value)
	}
	values := slices.Clone(node.Positional)
	for _, f := range node.Flags {
		values = append(values, f.Value)
	}
	for _, v := range values {
		name := v.Tag.Get("field")
		switch {
		case v.Flag == nil && name == "":
			r.args = append(r.args, texts(v.Target)...)
			continue
		case name == "-" || v.Name == "help" || v.Target.IsZero():
			continue
		case name == "":
			name = camelCase(v.Name)
		}
		if r.params[name], err = s.parameter(v); err != nil {
			return r, err
		}
	}
	return r, nil
}

// constant returns a parameter that never changes: a boolean, or a text.
func constant(text string) any {
	if truth, err := strconv.ParseBool(text); err == nil {
		return truth
	}
	return text
}

// parameter returns the value of a flag as JSON has it.
func (s *Session) parameter(v *kong.Value) (any, error) {
	switch value := v.Target.Interface().(type) {
	case jsonFlag:
		return value.read(s, "--"+v.Name)
	case timeFlag:
		return value.resolve(s.Now())
	default:
		return value, nil
	}
}

// texts returns what an argument has: one text, or several.
func texts(v reflect.Value) []string {
	if list, ok := v.Interface().([]string); ok {
		return list
	}
	return []string{fmt.Sprint(v.Interface())}
}

func camelCase(flag string) string {
	words := strings.Split(flag, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// path returns the path with the arguments.
func (r request) path() string {
	var segments []string
	args := r.args
	for segment := range strings.SplitSeq(r.at, "/") {
		if segment == "*" {
			segment, args = args[0], args[1:]
		}
		segments = append(segments, segment)
	}
	return path(segments...)
}

// query returns the parameters as those of a query.
func (r request) query() url.Values {
	query := url.Values{}
	for name, value := range r.params {
		if list, ok := value.([]string); ok {
			query[name] = list
		} else {
			query.Set(name, fmt.Sprint(value))
		}
	}
	return query
}

// send sends the request, and returns the answer's JSON.
func (s *Session) send(ctx context.Context, r request) (json.RawMessage, error) {
	if r.method == http.MethodGet || r.method == http.MethodDelete {
		return s.client.do(ctx, r.method, withQuery(r.path(), r.query()), nil)
	}
	if len(r.params) == 0 {
		return s.client.do(ctx, r.method, r.path(), nil)
	}
	return s.client.do(ctx, r.method, r.path(), r.params)
}

// sendFor sends the command's request and decodes the answer.
func sendFor[T any](ctx context.Context, k *kong.Context, s *Session) (answer T, raw json.RawMessage, err error) {
	r, err := s.request(k)
	if err != nil {
		return answer, nil, err
	}
	return answerOf[T](ctx, s, r)
}

// answerOf sends a request and decodes the answer.
func answerOf[T any](ctx context.Context, s *Session, r request) (answer T, raw json.RawMessage, err error) {
	if raw, err = s.send(ctx, r); err == nil {
		err = s.client.decode(raw, &answer)
	}
	return answer, raw, err
}

// listCmd lists rows page by page.
type listCmd[T row, Args any] struct {
	Args Args `embed:""`
	paging
}

// Run prints the list.
func (c listCmd[T, Args]) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	return list[T](ctx, s, r.path(), r.query(), c.paging)
}

// wholeListCmd lists rows that the API returns in one answer.
type wholeListCmd[T row, Args any] struct {
	Args Args `embed:""`
}

// Run prints the list.
func (wholeListCmd[T, Args]) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	data, _, err := s.page(ctx, r.path(), r.query())
	if err != nil {
		return err
	}
	return printTable(s, T.columns, data)
}

// objectCmd shows or changes an object.
type objectCmd[T row, Args any] struct {
	Args Args `embed:""`
}

// Run prints the object, as it is afterwards.
func (objectCmd[T, Args]) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	return printAnswer[T](ctx, s, r)
}

// printAnswer sends a request, and prints the object in the answer: as JSON, or its columns and details one below
// the other.
func printAnswer[T row](ctx context.Context, s *Session, r request) error {
	object, raw, err := answerOf[T](ctx, s, r)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	fields := object.columns()
	if more, ok := any(object).(detailed); ok {
		fields = append(fields, more.details()...)
	}
	return s.printFields(fields)
}

// changeCmd changes something, and prints what its tag says.
type changeCmd[Args any] struct {
	Args Args `embed:""`
}

// Run sends the request.
func (changeCmd[Args]) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	raw, err := s.send(ctx, r)
	if says := k.Selected().Tag.Get("says"); err == nil && says != "" {
		return s.printResult(raw, "%s", expand(says, r.args, raw))
	}
	return err
}

// expand returns a text with the arguments and the fields of an answer.
func expand(text string, args []string, raw json.RawMessage) string {
	var answer map[string]json.RawMessage
	_ = json.Unmarshal(raw, &answer) // an answer without content has no fields
	known := map[string]string{}
	for name, value := range answer {
		known[name] = unquote(value)
	}
	for i, arg := range args {
		known[fmt.Sprint(i+1)] = arg
	}
	return os.Expand(text, func(name string) string { return known[name] })
}

// removeCmd deletes all objects that its arguments name.
type removeCmd[Args any] struct {
	Args Args `embed:""`
}

// Run deletes them.
func (removeCmd[Args]) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	if err != nil {
		return err
	}
	return forEach(r.args, func(arg string) error {
		one := r
		one.args = []string{arg}
		_, err := s.send(ctx, one)
		return err
	})
}
