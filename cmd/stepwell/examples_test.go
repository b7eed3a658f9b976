package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// apiDescription is the API's openapi.yaml.
type apiDescription struct {
	doc     map[string]any
	schemas *jsonschema.Compiler
}

func readDescription(t *testing.T) *apiDescription {
	t.Helper()
	data, err := os.ReadFile("../../handlers/rest/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	plain, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	d := &apiDescription{parsed.(map[string]any), jsonschema.NewCompiler()}
	d.schemas.DefaultDraft(jsonschema.Draft2020)
	if err := d.schemas.AddResource("openapi.json", parsed); err != nil {
		t.Fatal(err)
	}
	return d
}

// node is a value in the document and its JSON pointer.
type node struct {
	pointer string
	value   any
}

// at returns the value at a path of keys. It follows references.
func (d *apiDescription) at(n node, keys ...string) node {
	for _, key := range keys {
		m, _ := n.value.(map[string]any)
		n = node{n.pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key), m[key]}
		m, _ = n.value.(map[string]any)
		if ref, ok := m["$ref"].(string); ok {
			n = d.at(node{"#", d.doc}, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return n
}

// operation returns the operation of a request and its path template, which is "" if there is none.
func (d *apiDescription) operation(r *http.Request) (op node, path string) {
	paths := d.at(node{"#", d.doc}, "paths")
	got := strings.Split(r.URL.EscapedPath(), "/")
	for _, template := range slices.Backward(slices.Sorted(maps.Keys(paths.value.(map[string]any)))) { // names before {…}
		want := strings.Split(template, "/")
		same := len(want) == len(got)
		for i := 0; same && i < len(want); i++ {
			same = want[i] == got[i] || strings.HasPrefix(want[i], "{")
		}
		if op := d.at(paths, template, strings.ToLower(r.Method)); same && op.value != nil && op.value != any("") {
			if strings.Count(template, "{") < strings.Count(path, "{") || path == "" {
				path = template
			}
		}
	}
	return d.at(paths, path, strings.ToLower(r.Method)), path
}

// parameters returns the names of the query parameters, and the prefixes of open-ended names.
func (d *apiDescription) parameters(op node) (names, prefixes []string) {
	list, _ := op.value.(map[string]any)["parameters"].([]any)
	for _, entry := range list {
		p := d.at(node{"", map[string]any{"p": entry}}, "p").value.(map[string]any)
		if prefix, ok := p["x-prefix"].(string); ok {
			prefixes = append(prefixes, prefix)
		} else if p["in"] == "query" {
			names = append(names, p["name"].(string))
		}
	}
	return names, prefixes
}

// violation returns what in a request the document does not allow, or "".
func (d *apiDescription) violation(r *http.Request, op node) string {
	names, prefixes := d.parameters(op)
	for name := range r.URL.Query() {
		known := slices.Contains(names, name) ||
			slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if !known {
			return "query parameter " + name
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return ""
	}
	schema := d.at(op, "requestBody", "content", "application/json", "schema")
	if schema.value == nil {
		return "a body"
	}
	compiled, err := d.schemas.Compile("openapi.json" + schema.pointer)
	if err != nil {
		return err.Error()
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = compiled.Validate(value)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// exampleResponse returns the example of the first success response.
func (d *apiDescription) exampleResponse(op node) (status int, body []byte) {
	for status := range 3 {
		response := d.at(op, "responses", []string{"200", "201", "202"}[status])
		if response.value == nil {
			continue
		}
		if status == 0 && d.at(op, "responses", "201").value != nil {
			continue // prefer the response for a new object
		}
		example := d.at(response, "content", "application/json", "example")
		if text, ok := d.at(response, "content", "application/octet-stream", "example").value.(string); ok {
			return http.StatusOK, []byte(text)
		}
		data, err := json.Marshal(example.value)
		if err != nil {
			panic(err)
		}
		return http.StatusOK + status, data
	}
	return http.StatusNoContent, nil
}

// newExampleServer starts a server that returns the examples in openapi.yaml, and fails the test if a request does not
// conform to the document.
func newExampleServer(t *testing.T) *httptest.Server {
	t.Helper()
	d := readDescription(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, path := d.operation(r)
		if path == "" {
			t.Errorf("%s %s is not in the document", r.Method, r.URL)
			http.NotFound(w, r)
			return
		}
		if violation := d.violation(r, op); violation != "" {
			t.Errorf("%s %s does not conform to the document: %s", r.Method, r.URL, violation)
		}
		status, body := d.exampleResponse(op)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server
}
