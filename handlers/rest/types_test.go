package rest_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

const generatedTypes = "../../ui/src/api.gen.ts"

// TestTypes checks that the types of the dashboard are generated from openapi.yaml.
func TestTypes(t *testing.T) {
	t.Parallel()
	data := check.Value(os.ReadFile("openapi.yaml"))(t)
	var root yaml.Node
	check.NoError(t, yaml.Unmarshal(data, &root))
	w := typeWriter{writer{doc: node{root.Content[0]}}}
	w.file()
	if *update {
		check.NoError(t, os.WriteFile(generatedTypes, w.Bytes(), 0o600))
	}
	got := check.Value(os.ReadFile(generatedTypes))(t)
	check.Equal(t, "ui/src/api.gen.ts does not match openapi.yaml: run this test with -update", string(got), w.String())
}

// typeWriter writes the document as TypeScript.
type typeWriter struct{ writer }

func (w *typeWriter) file() {
	w.f("// Generated from handlers/rest/openapi.yaml by go test ./handlers/rest -run TestTypes -update. Do not edit.\n\n")
	for _, e := range w.doc.at("components", "schemas").entries() {
		w.comment("", e.value.text("description"))
		w.f("export type %s = %s;\n\n", e.key, w.typeOf(e.value, ""))
	}
	w.f("// Api has all operations. An operation without a body or a JSON answer has the type null for it.\n")
	w.f("export interface Api {\n")
	for _, p := range w.doc.at("paths").entries() {
		for _, op := range p.value.entries() {
			if op.key != "parameters" {
				w.operation(strings.ToUpper(op.key)+" "+p.key, p.value, op.value)
			}
		}
	}
	w.f("}\n")
}

func (w *typeWriter) operation(name string, path, op node) {
	w.comment("  ", op.text("summary"))
	w.f("  %q: {\n", name)
	parameters := append(path.at("parameters").items(), op.at("parameters").items()...)
	for _, in := range []string{"path", "query"} {
		var fields []string
		for _, p := range parameters {
			p = w.follow(p)
			if p.text("in") != in {
				continue
			}
			mark := "?"
			if in == "path" {
				mark = ""
			}
			key := fmt.Sprintf("%q", p.text("name"))
			if prefix := p.text("x-prefix"); prefix != "" {
				fields = append(fields, "[key: `"+prefix+"${string}`]: string")
				continue
			}
			fields = append(fields, key+mark+": "+w.typeOf(p.at("schema"), "    "))
		}
		w.f("    %s: { %s };\n", in, strings.Join(fields, "; "))
	}
	body := w.follow(op.at("requestBody")).at("content", "application/json", "schema")
	w.f("    body: %s;\n", w.typeOrNull(body))
	var answers []string
	for _, r := range op.at("responses").entries() {
		if strings.HasPrefix(r.key, "2") {
			answers = append(answers, w.typeOrNull(w.follow(r.value).at("content", "application/json", "schema")))
		}
	}
	if len(answers) == 2 && answers[0] == answers[1] {
		answers = answers[:1]
	}
	w.f("    answer: %s;\n  };\n", strings.Join(answers, " | "))
}

func (w *typeWriter) typeOrNull(schema node) string {
	if schema.Node == nil {
		return "null"
	}
	return w.typeOf(schema, "    ")
}

// typeOf returns the type of a schema. It follows no reference: each schema has a type of its own.
func (w *typeWriter) typeOf(schema node, indent string) string {
	if ref := schema.text("$ref"); ref != "" {
		return ref[strings.LastIndex(ref, "/")+1:]
	}
	if values := schema.at("enum"); values.Node != nil {
		var names []string
		for _, v := range values.items() {
			names = append(names, fmt.Sprintf("%q", v.Value))
		}
		return strings.Join(names, " | ")
	}
	if all := schema.at("allOf"); all.Node != nil && len(all.items()) == 1 { // a reference with a description
		return w.typeOf(all.items()[0], indent)
	}
	kinds := schema.at("type")
	if kinds.Node == nil {
		return "unknown"
	}
	var types []string
	if kinds.Kind == yaml.SequenceNode {
		for _, k := range kinds.items() {
			types = append(types, w.typeNamed(k.Value, schema, indent))
		}
		return strings.Join(types, " | ")
	}
	return w.typeNamed(kinds.Value, schema, indent)
}

func (w *typeWriter) typeNamed(kind string, schema node, indent string) string {
	switch kind {
	case "integer", "number":
		return "number"
	case "array":
		return "Array<" + w.typeOf(schema.at("items"), indent) + ">"
	case "object":
		return w.object(schema, indent)
	default: // string, boolean, null
		return kind
	}
}

// identifier matches keys that need no quotes.
var identifier = regexp.MustCompile(`^[a-zA-Z_]\w*$`)

func (w *typeWriter) object(schema node, indent string) string {
	properties := schema.at("properties").entries()
	if len(properties) == 0 {
		if more := schema.at("additionalProperties"); more.Node != nil && more.Kind == yaml.MappingNode {
			return "Record<string, " + w.typeOf(more, indent) + ">"
		}
		return "Record<string, unknown>"
	}
	required := map[string]bool{}
	for _, name := range schema.at("required").items() {
		required[name.Value] = true
	}
	var b bytes.Buffer
	b.WriteString("{\n")
	for _, p := range properties {
		key, mark := p.key, "?"
		if !identifier.MatchString(key) {
			key = fmt.Sprintf("%q", key)
		}
		if required[p.key] {
			mark = ""
		}
		fmt.Fprintf(&b, "%s  %s%s: %s;\n", indent, key, mark, w.typeOf(p.value, indent+"  "))
	}
	return b.String() + indent + "}"
}

func (w *typeWriter) comment(indent, text string) {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return
	}
	line := indent + "//"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 120 {
			w.f("%s\n", line)
			line = indent + "//"
		}
		line += " " + word
	}
	w.f("%s\n", line)
}
