package rest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/handlers/rest"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

var update = flag.Bool("update", false, "regenerate docs/api.md")

const reference = "../../docs/api.md"

// TestReference checks that docs/api.md is generated from openapi.yaml.
func TestReference(t *testing.T) {
	t.Parallel()
	data := check.Value(os.ReadFile("openapi.yaml"))(t)
	var root yaml.Node
	check.NoError(t, yaml.Unmarshal(data, &root))
	w := writer{doc: node{root.Content[0]}}
	w.page()
	if *update {
		check.NoError(t, os.WriteFile(reference, w.Bytes(), 0o600))
	}
	got := check.Value(os.ReadFile(reference))(t)
	check.Equal(t, "docs/api.md does not match openapi.yaml: run this test with -update", string(got), w.String())
}

// node is a part of the document. It keeps the order of keys.
type node struct{ *yaml.Node }

// entry is a key of a map and its value.
type entry struct {
	key   string
	value node
}

func (n node) entries() []entry {
	if n.Node == nil {
		return nil
	}
	var list []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		list = append(list, entry{n.Content[i].Value, node{n.Content[i+1]}})
	}
	return list
}

func (n node) items() []node {
	if n.Node == nil {
		return nil
	}
	var list []node
	for _, item := range n.Content {
		list = append(list, node{item})
	}
	return list
}

// at returns the value under the keys, or an empty node.
func (n node) at(keys ...string) node {
	for _, key := range keys {
		found := node{}
		for _, e := range n.entries() {
			if e.key == key {
				found = e.value
			}
		}
		n = found
	}
	return n
}

func (n node) text(keys ...string) string {
	if v := n.at(keys...); v.Node != nil && v.Kind == yaml.ScalarNode {
		return strings.TrimSpace(v.Value)
	}
	return ""
}

// line returns a text for a table cell.
func (n node) line(keys ...string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(n.text(keys...)), " "), "|", `\|`)
}

// writer writes the page.
type writer struct {
	bytes.Buffer

	doc node
}

func (w *writer) f(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// follow resolves a reference. It returns other nodes unchanged.
func (w *writer) follow(n node) node {
	ref := n.text("$ref")
	if ref == "" {
		return n
	}
	return w.doc.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

func (w *writer) page() {
	w.f("# The API\n\n")
	w.f("<!-- Generated from handlers/rest/openapi.yaml: go test ./handlers/rest -run TestReference -update -->\n\n")
	w.f("Every server serves this reference as OpenAPI %s at `/v1/openapi.json`.\n\n", w.doc.text("openapi"))
	w.f("%s\n\n", w.doc.text("info", "description"))
	for _, tag := range w.doc.at("tags").items() {
		w.f("- [%[1]s](#%[2]s): ", tag.text("name"), anchor(tag.text("name")))
		var links []string
		w.eachOperation(tag.text("name"), func(path, method string, _, op node) {
			links = append(links, fmt.Sprintf("[%s](#%s)", op.text("operationId"), anchor(title(method, path))))
		})
		w.f("%s\n", strings.Join(links, ", "))
	}
	w.f("- [Objects](#objects), [Error codes](#error-codes)\n")
	for _, tag := range w.doc.at("tags").items() {
		w.f("\n## %s\n\n%s\n", tag.text("name"), tag.text("description"))
		w.eachOperation(tag.text("name"), w.operation)
	}
	w.f("\n## Objects\n")
	for _, schema := range w.doc.at("components", "schemas").entries() {
		w.object(schema.key, schema.value)
	}
	w.f("\n## Error codes\n\nAny operation can return the codes without an asterisk.\n\n| Code | Status | Meaning |\n| --- | --- | --- |\n")
	for _, code := range w.doc.at("x-error-codes").entries() {
		mark := ""
		if code.value.text("common") == "" {
			mark = " *"
		}
		w.f("| `%s`%s | %s | %s |\n", code.key, mark, code.value.text("status"), code.value.line("description"))
	}
}

// roles describes the roles that suffice for each permission.
var roles = map[string]string{
	"admin": "`admin`", "write": "`admin` or `write`", "read": "`admin`, `write` or `read`",
	"metadata": "`admin`, `write`, `read`, or `metadata` without payloads", "invoke": "`admin`, `write` or `invoke`",
	"any":      "`admin`, `write`, `read`, or `metadata` and `invoke` without payloads",
	"register": "`admin`, or `worker` for its deployments", "registered": "`admin`, `write`, `read`, `metadata`, or `worker` for its deployments",
}

func title(method, path string) string { return strings.ToUpper(method) + " " + path }

// anchor returns the Markdown anchor of a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case strings.ContainsRune("/{}.", r):
			return -1
		default:
			return r
		}
	}, strings.ToLower(heading))
}

func (w *writer) eachOperation(tag string, do func(path, method string, item, op node)) {
	for _, item := range w.doc.at("paths").entries() {
		for _, op := range item.value.entries() {
			if tags := op.value.at("tags").items(); len(tags) > 0 && tags[0].Value == tag {
				do(item.key, op.key, item.value, op.value)
			}
		}
	}
}

func (w *writer) operation(path, method string, item, op node) {
	w.f("\n### %s\n\n%s.\n", title(method, path), op.text("summary"))
	if d := op.text("description"); d != "" {
		w.f("\n%s\n", d)
	}
	if role := op.text("x-stepwell-role"); role != "" {
		w.f("\nRole: %s.\n", roles[role])
	}
	if op.text("x-stepwell-call") != "" {
		w.f("\nA function may send the token of its call instead of a key, for its own run.\n")
	}
	w.parameters(append(item.at("parameters").items(), op.at("parameters").items()...))
	if body := w.follow(op.at("requestBody")); body.Node != nil {
		optional := ""
		if body.text("required") != "true" {
			optional = " (optional)"
		}
		w.content("Body"+optional, body)
	}
	for _, response := range op.at("responses").entries() {
		if response.key != "default" {
			what := w.follow(response.value)
			w.content(fmt.Sprintf("Response %s: %s", response.key, strings.TrimSuffix(what.line("description"), ".")), what)
		}
	}
	var codes []string
	for _, code := range op.at("x-errors").items() {
		codes = append(codes, "`"+code.Value+"`")
	}
	if len(codes) > 0 {
		w.f("\nErrors: %s.\n", strings.Join(codes, ", "))
	}
}

func (w *writer) parameters(list []node) {
	if len(list) == 0 {
		return
	}
	w.f("\n| Parameter | In | Type | Meaning |\n| --- | --- | --- | --- |\n")
	for _, p := range list {
		p = w.follow(p)
		meaning := p.line("description")
		if d := p.text("schema", "default"); d != "" {
			meaning += " Default: `" + d + "`."
		}
		name := p.text("name")
		if prefix := p.text("x-prefix"); prefix != "" {
			name = prefix + "KEY"
		}
		w.f("| `%s` | %s | %s | %s |\n", name, p.text("in"), w.kind(p.at("schema")), meaning)
	}
}

// content writes the body of a request or a response.
func (w *writer) content(what string, of node) {
	kinds := of.at("content").entries()
	if len(kinds) == 0 {
		w.f("\n%s\n", what+".")
		return
	}
	for _, media := range kinds {
		as := ""
		if media.key != "application/json" {
			as = ", as " + media.key
		}
		schema := media.value.at("schema")
		if s := media.value.at("x-event-schema"); s.Node != nil {
			schema = s
			as += ", with the event data"
		}
		w.f("\n%s%s: %s\n", what, as, w.kind(schema))
		if schema.text("$ref") == "" {
			w.fields(schema)
		}
		w.example(media.key, media.value.at("example"))
	}
}

func (w *writer) example(kind string, n node) {
	if n.Node == nil {
		return
	}
	if kind != "application/json" {
		w.f("\n```\n%s\n```\n", strings.TrimSpace(n.Value))
		return
	}
	var plain, b bytes.Buffer
	if err := rest.WriteJSON(&plain, n.Node); err != nil {
		panic(err)
	}
	if err := json.Indent(&b, plain.Bytes(), "", "  "); err != nil {
		panic(err)
	}
	w.f("\n```json\n%s\n```\n", strings.TrimSpace(b.String()))
}

// kind describes a schema in a few words.
func (w *writer) kind(schema node) string {
	if ref := schema.text("$ref"); ref != "" {
		name := ref[strings.LastIndex(ref, "/")+1:]
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	}
	if values := schema.at("enum").items(); len(values) > 0 {
		var list []string
		for _, v := range values {
			list = append(list, "`"+v.Value+"`")
		}
		return strings.Join(list, ", ")
	}
	if one := schema.at("oneOf").items(); len(one) > 0 {
		var list []string
		for _, s := range one {
			list = append(list, w.kind(s))
		}
		return strings.Join(list, " or ")
	}
	kind := schema.text("type")
	if kind == "" {
		for _, t := range schema.at("type").items() {
			kind += " or " + t.Value
		}
		kind = strings.TrimPrefix(kind, " or ")
	}
	switch kind {
	case "array":
		return "list of " + w.kind(schema.at("items"))
	case "":
		return "any JSON"
	default:
		return kind
	}
}

// fields writes the table of an object's fields, including those of nested objects.
func (w *writer) fields(schema node) {
	rows := w.rows("", schema)
	if len(rows) == 0 {
		return
	}
	w.f("\n| Field | Type | Meaning |\n| --- | --- | --- |\n%s", strings.Join(rows, ""))
}

func (w *writer) rows(prefix string, schema node) []string {
	required := map[string]bool{}
	for _, name := range schema.at("required").items() {
		required[name.Value] = true
	}
	var rows []string
	for _, p := range schema.at("properties").entries() {
		name := prefix + p.key
		optional := ""
		if !required[p.key] {
			optional = "?"
		}
		meaning := p.value.line("description")
		if d := p.value.text("default"); d != "" {
			meaning += " Default: `" + d + "`."
		}
		rows = append(rows, fmt.Sprintf("| `%s`%s | %s | %s |\n", name, optional, w.kind(p.value), strings.TrimSpace(meaning)))
		rows = append(rows, w.rows(name+".", p.value)...)
		rows = append(rows, w.rows(name+"[].", p.value.at("items"))...)
	}
	return rows
}

func (w *writer) object(name string, schema node) {
	w.f("\n### %s\n", name)
	if d := schema.text("description"); d != "" {
		w.f("\n%s\n", d)
	}
	w.fields(schema)
}
