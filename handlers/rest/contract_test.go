package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// contract is openapi.yaml. Tests check requests and responses against it.
type contract struct {
	doc map[string]any

	mu      sync.Mutex
	schemas *jsonschema.Compiler
}

// openAPI returns the contract, which all tests share.
var openAPI = sync.OnceValue(func() *contract {
	data, err := os.ReadFile("openapi.yaml")
	if err != nil {
		panic(err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	plain, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("openapi.json", parsed); err != nil {
		panic(err)
	}
	return &contract{doc: parsed.(map[string]any), schemas: c}
})

// location is a value in the document and its JSON pointer.
type location struct {
	pointer string
	value   any
}

func (c *contract) root() location { return location{"#", c.doc} }

// at returns the value under the keys. It resolves references.
func (c *contract) at(p location, keys ...string) (location, bool) {
	for _, key := range keys {
		p = c.resolved(p)
		m, _ := p.value.(map[string]any)
		v, ok := m[key]
		if !ok {
			return location{}, false
		}
		p = location{p.pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key), v}
	}
	return c.resolved(p), true
}

func (c *contract) resolved(p location) location {
	m, _ := p.value.(map[string]any)
	ref, ok := m["$ref"].(string)
	if !ok || strings.Contains(p.pointer, "/schemas/") {
		return p
	}
	target, ok := c.at(c.root(), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	if !ok {
		panic("openapi.yaml: unresolved reference " + ref)
	}
	return target
}

// check validates a value against a schema.
func (c *contract) check(schema location, value any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.schemas.Compile("openapi.json" + schema.pointer)
	if err != nil {
		return err
	}
	return s.Validate(value)
}

// operation is the operation of a request.
type operation struct {
	*contract
	location

	path   string
	params map[string]string // path parameters
}

// find returns the operation of a request.
func (c *contract) find(method, path string) (operation, bool) {
	paths, _ := c.at(c.root(), "paths")
	var found operation
	for _, template := range slices.Sorted(maps.Keys(paths.value.(map[string]any))) {
		params, ok := match(template, path)
		if !ok || found.path != "" && len(params) >= len(found.params) {
			continue
		}
		if op, ok := c.at(paths, template, strings.ToLower(method)); ok {
			found = operation{c, op, template, params}
		}
	}
	return found, found.path != ""
}

func match(template, path string) (map[string]string, bool) {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	params := map[string]string{}
	for i, segment := range want {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			params[strings.TrimSuffix(name, "}")] = got[i]
		} else if segment != got[i] {
			return nil, false
		}
	}
	return params, true
}

// parameters returns the parameters of the operation and of its path.
func (o operation) parameters() []location {
	var list []location
	item, _ := o.at(o.root(), "paths", o.path)
	for _, of := range []location{item, o.location} {
		all, _ := o.at(of, "parameters")
		entries, _ := all.value.([]any)
		for i, entry := range entries {
			list = append(list, o.resolved(location{fmt.Sprintf("%s/%d", all.pointer, i), entry}))
		}
	}
	return list
}

func (p location) text(key string) string {
	m, _ := p.value.(map[string]any)
	s, _ := m[key].(string)
	return s
}

// checkRequest validates a request.
func (o operation) checkRequest(r *http.Request, body []byte) error {
	query := r.URL.Query()
	for _, p := range o.parameters() {
		name, prefix := p.text("name"), p.text("x-prefix")
		for key, values := range query {
			if p.text("in") != "query" || key != name && (prefix == "" || !strings.HasPrefix(key, prefix)) {
				continue
			}
			delete(query, key)
			if prefix != "" {
				continue
			}
			if err := o.checkParameter(p, values); err != nil {
				return fmt.Errorf("query parameter %s: %w", key, err)
			}
		}
	}
	for key := range query {
		return fmt.Errorf("query parameter %s is not in the document", key)
	}
	return o.checkBody(r, body)
}

func (o operation) checkParameter(p location, values []string) error {
	schema, ok := o.at(p, "schema")
	if !ok {
		return fmt.Errorf("the document has no schema for it")
	}
	kind := schema.text("type")
	if kind == "array" {
		return o.check(schema, anys(values))
	}
	return o.check(schema, scalar(kind, values[0]))
}

func anys(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

func scalar(kind, value string) any {
	switch kind {
	case "integer":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return n
		}
	case "boolean":
		if b, err := strconv.ParseBool(value); err == nil {
			return b
		}
	}
	return value
}

func (o operation) checkBody(r *http.Request, body []byte) error {
	described, ok := o.at(o.location, "requestBody")
	if !ok {
		if len(body) > 0 {
			return fmt.Errorf("the document has no request body")
		}
		return nil
	}
	if len(bytes.TrimSpace(body)) == 0 {
		if required, _ := described.value.(map[string]any)["required"].(bool); required {
			return fmt.Errorf("the body is missing")
		}
		return nil
	}
	return o.checkContent(described, r.Header.Get("Content-Type"), body)
}

// checkContent validates the body of a request or a response.
func (o operation) checkContent(of location, contentType string, body []byte) error {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("content type %q: %w", contentType, err)
	}
	media, ok := o.at(of, "content", kind)
	if !ok {
		return fmt.Errorf("the document has no %s here", kind)
	}
	if schema, ok := o.at(media, "x-event-schema"); ok {
		return o.checkEvents(schema, body)
	}
	if kind != "application/json" {
		return nil
	}
	schema, ok := o.at(media, "schema")
	if !ok {
		return fmt.Errorf("the document has no schema for %s", kind)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return o.check(schema, value)
}

// checkEvents validates the data of the complete events of a stream.
func (o operation) checkEvents(schema location, body []byte) error {
	complete := body[:bytes.LastIndex(body, []byte("\n\n"))+1]
	for line := range strings.Lines(string(complete)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:")
		if !ok {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
		if err != nil {
			return fmt.Errorf("event %q: %w", data, err)
		}
		if err := o.check(schema, value); err != nil {
			return fmt.Errorf("event %q: %w", data, err)
		}
	}
	return nil
}

// checkResponse validates a response.
func (o operation) checkResponse(status int, header http.Header, body []byte) error {
	described, ok := o.at(o.location, "responses", strconv.Itoa(status))
	if !ok && status < 400 {
		return fmt.Errorf("status %d is not in the document", status)
	}
	if !ok {
		described, _ = o.at(o.location, "responses", "default")
		if err := o.checkError(status, body); err != nil {
			return err
		}
	}
	if _, ok := o.at(described, "content"); !ok {
		if len(body) > 0 {
			return fmt.Errorf("the document has no body for status %d", status)
		}
		return nil
	}
	return o.checkContent(described, header.Get("Content-Type"), body)
}

// checkError validates an error, whose code must be common or one of the operation's.
func (o operation) checkError(status int, body []byte) error {
	code := codeOf(body)
	entry, ok := o.at(o.root(), "x-error-codes", code)
	if !ok {
		return fmt.Errorf("the document has no error %q", code)
	}
	described := entry.value.(map[string]any)
	if fmt.Sprint(described["status"]) != strconv.Itoa(status) {
		return fmt.Errorf("error %s came with status %d, want %v", code, status, described["status"])
	}
	own, _ := o.at(o.location, "x-errors")
	codes, _ := own.value.([]any)
	if described["common"] != true && !slices.Contains(codes, any(code)) {
		return fmt.Errorf("the operation's x-errors lack %s", code)
	}
	return nil
}

func codeOf(body []byte) string {
	var response struct{ Error struct{ Code string } }
	_ = json.Unmarshal(body, &response) // the schema check reports invalid bodies
	return response.Error.Code
}

// checkContract returns a handler that checks requests and responses against the contract. The server must reject
// requests that break it.
func checkContract(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, ok := openAPI().find(r.Method, r.URL.EscapedPath())
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		requestBody, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(requestBody))
		invalid := op.checkRequest(r, requestBody)
		tee := &teeWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { // even if the handler aborts the connection
			if w.Header().Get("Content-Encoding") == "gzip" {
				return // as what is not compressed
			}
			if err := op.checkResponse(tee.status, w.Header(), tee.body.Bytes()); err != nil {
				t.Errorf("%s %s: response %d %.500s breaks the contract: %v", r.Method, r.URL, tee.status, &tee.body, err)
			}
			if code := codeOf(tee.body.Bytes()); invalid != nil && !rejections[code] {
				t.Errorf("%s %s %.500s: got %d, but the request breaks the contract: %v",
					r.Method, r.URL, requestBody, tee.status, invalid)
			}
		}()
		next.ServeHTTP(tee, r)
	})
}

// rejections are the codes of requests that break the contract.
var rejections = map[string]bool{"invalid_request": true, "unsupported_media_type": true}

// teeWriter records the response.
type teeWriter struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

func (w *teeWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *teeWriter) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

func (w *teeWriter) Flush()                      { _ = http.NewResponseController(w.ResponseWriter).Flush() }
func (w *teeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
