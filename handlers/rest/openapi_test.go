package rest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestRoutesAreThoseOfTheDocument: neither has one that the other does not know.
func TestRoutesAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var got, want []string
	for _, r := range a.routes {
		if strings.HasPrefix(r.Path, "/v1/") && r.Method != "echo_route_not_found" {
			got = append(got, r.Method+" "+r.Path)
		}
	}
	for path, item := range theContract().doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				want = append(want, strings.ToUpper(method)+" "+strings.NewReplacer("{", ":", "}", "").Replace(path))
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("routes\n%s\nand those of the document\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDocument: everything there is is said of each operation, examples are what they are examples of, and error
// codes exist.
func TestDocument(t *testing.T) {
	t.Parallel()
	c := theContract()
	seen := map[string]bool{}
	for path, item := range c.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			op, ok := c.find(method, path)
			if !ok || op.path != path {
				t.Fatalf("%s %s cannot be found", method, path)
			}
			id := op.text("operationId")
			if id == "" || op.text("summary") == "" || seen[id] {
				t.Errorf("%s %s: operationId %q and summary must be there, and the ID be its own", method, path, id)
			}
			seen[id] = true
			op.wholly(t)
		}
	}
}

// wholly checks what the document says of an operation.
func (o operation) wholly(t *testing.T) {
	t.Helper()
	codes, ok := o.at(o.place, "x-errors")
	if !ok {
		t.Errorf("%s: x-errors is missing", o.pointer)
	}
	list, _ := codes.value.([]any)
	for _, code := range list {
		if _, ok := o.at(o.root(), "x-error-codes", code.(string)); !ok {
			t.Errorf("%s: there is no error %v", o.pointer, code)
		}
	}
	if _, ok := o.at(o.place, "responses", "default"); !ok {
		t.Errorf("%s: the answer for errors is missing", o.pointer)
	}
	for _, p := range o.parameters() {
		if p.text("description") == "" {
			t.Errorf("%s: a description is missing", p.pointer)
		}
	}
	responses, _ := o.at(o.place, "responses")
	for status := range responses.value.(map[string]any) {
		answer, _ := o.at(responses, status)
		o.examples(t, answer)
	}
	if body, ok := o.at(o.place, "requestBody"); ok {
		o.examples(t, body)
	}
}

// examples checks that what a body is has an example that is one.
func (o operation) examples(t *testing.T, of place) {
	t.Helper()
	content, ok := o.at(of, "content")
	if !ok {
		return
	}
	for kind := range content.value.(map[string]any) {
		media, _ := o.at(content, kind)
		example, ok := o.at(media, "example")
		if !ok {
			t.Errorf("%s: an example is missing", media.pointer)
			continue
		}
		if kind != "application/json" {
			continue
		}
		schema, _ := o.at(media, "schema")
		if err := o.check(schema, example.value); err != nil {
			t.Errorf("%s: the example is none: %v", media.pointer, err)
		}
	}
}

// TestDocumentIsServed to anyone, and is the one in the file.
func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	status, got := a.do(t, http.MethodGet, "/v1/openapi.json", "")
	want, err := json.Marshal(theContract().doc)
	if err != nil {
		t.Fatal(err)
	}
	have, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if status != http.StatusOK || !bytes.Equal(have, want) {
		t.Errorf("got %d %.200s, want %.200s", status, have, want)
	}
}
