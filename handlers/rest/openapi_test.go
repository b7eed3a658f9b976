package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestRoutesMatchTheDocument checks that the router and the document have the same operations.
func TestRoutesMatchTheDocument(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var got, want []string
	for _, r := range a.routes {
		if strings.HasPrefix(r.Path, "/v1/") && r.Method != "echo_route_not_found" {
			got = append(got, r.Method+" "+r.Path)
		}
	}
	for path, item := range openAPI().doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				want = append(want, strings.ToUpper(method)+" "+strings.NewReplacer("{", ":", "}", "").Replace(path))
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("routes\n%s\ndiffer from the document's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDocument checks that operations are described completely, that examples are valid, and that error codes exist.
func TestDocument(t *testing.T) {
	t.Parallel()
	c := openAPI()
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
				t.Errorf("%s %s: operationId %q or summary is missing, or the ID is not unique", method, path, id)
			}
			seen[id] = true
			op.checkDescription(t)
		}
	}
}

// checkDescription checks that an operation is described completely.
func (o operation) checkDescription(t *testing.T) {
	t.Helper()
	codes, ok := o.at(o.location, "x-errors")
	if !ok {
		t.Errorf("%s: x-errors is missing", o.pointer)
	}
	list, _ := codes.value.([]any)
	for _, code := range list {
		if _, ok := o.at(o.root(), "x-error-codes", code.(string)); !ok {
			t.Errorf("%s: unknown error code %v", o.pointer, code)
		}
	}
	if _, ok := o.at(o.location, "responses", "default"); !ok {
		t.Errorf("%s: the default response is missing", o.pointer)
	}
	for _, p := range o.parameters() {
		if p.text("description") == "" {
			t.Errorf("%s: a description is missing", p.pointer)
		}
	}
	responses, _ := o.at(o.location, "responses")
	for status := range responses.value.(map[string]any) {
		response, _ := o.at(responses, status)
		o.checkExamples(t, response)
	}
	if body, ok := o.at(o.location, "requestBody"); ok {
		o.checkExamples(t, body)
	}
}

// checkExamples checks that a body has a valid example.
func (o operation) checkExamples(t *testing.T, of location) {
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
			t.Errorf("%s: the example is invalid: %v", media.pointer, err)
		}
	}
}

// TestDocumentIsServed checks that the served document is that of the file.
func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	status, got := a.do(t, http.MethodGet, "/v1/openapi.json", "")
	want := check.Value(json.Marshal(openAPI().doc))(t)
	have := check.Value(json.Marshal(got))(t)
	if status != http.StatusOK || !bytes.Equal(have, want) {
		t.Errorf("got %d %.200s, want %.200s", status, have, want)
	}
}

// TestUnknownOperations checks that 405 lists the allowed methods, and that unknown paths are 404.
func TestUnknownOperations(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, tt := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{http.MethodPut, "/v1/runs", 405, "method_not_allowed", "GET, POST"},
		{http.MethodPut, "/v1/runs?limit=1", 405, "method_not_allowed", "GET, POST"},
		{http.MethodDelete, "/v1/runs/wrun_x", 405, "method_not_allowed", "GET"},
		{http.MethodPost, "/v1/deployments/a%2Fb", 405, "method_not_allowed", "DELETE, GET, PATCH, PUT"},
		{http.MethodGet, "/v1/runs/wrun_x/cancel", 405, "method_not_allowed", "POST"},
		{http.MethodPost, "/v1/openapi.json", 405, "method_not_allowed", "GET"},
		{http.MethodGet, "/v1/runs/", 404, "not_found", ""},
		{http.MethodGet, "/v1/nothing?x=1", 404, "not_found", ""},
		{http.MethodGet, "/v1/", 404, "not_found", ""},
	} {
		a.wantRejected(t, tt.method, tt.path, "", tt.status, tt.code)
		w := a.serve(tt.method, tt.path, "")
		check.Equal(t, fmt.Sprintf("%s %s: got Allow", tt.method, tt.path), w.Header().Get("Allow"), tt.allow)
	}
}
