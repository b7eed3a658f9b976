package api_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "generate types.gen.go")

// TestTypesAreGenerated checks that the types are those of openapi.yaml.
func TestTypesAreGenerated(t *testing.T) {
	t.Parallel()
	document, generated := filepath.Join(t.TempDir(), "openapi.yaml"), filepath.Join(t.TempDir(), "types.go")
	if err := os.WriteFile(document, ordered(t, "../openapi.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	generate := exec.CommandContext(t.Context(), "go", "-C", "generator", "tool", "oapi-codegen",
		"-config", "config.yaml", "-o", generated, document)
	if output, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", generate, err, output)
	}
	want, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("types.gen.go", want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("types.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("types.gen.go does not match openapi.yaml: run this test with -update (-want +got):\n%s", diff)
	}
}

// ordered returns the document with a number for each property of an object, by which the generator orders the fields.
// It would order them by their names, and answers would begin with what matters least.
func ordered(t *testing.T, document string) []byte {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	nameBodies(t, &root)
	numberProperties(&root)
	if text, err = yaml.Marshal(&root); err != nil {
		t.Fatal(err)
	}
	return text
}

// nameBodies moves the schemas of bodies that have no name among the schemas of the document, as CreateKeyBody of the
// operation createKey.
func nameBodies(t *testing.T, root *yaml.Node) {
	t.Helper()
	document := root.Content[0]
	schemas := at(at(document, "components"), "schemas")
	paths, named := at(document, "paths"), 0
	for i := 1; i < len(paths.Content); i += 2 {
		for j := 1; j < len(paths.Content[i].Content); j += 2 {
			operation := paths.Content[i].Content[j]
			schema := at(at(at(at(operation, "requestBody"), "content"), "application/json"), "schema")
			if at(schema, "properties") == nil {
				continue
			}
			named++
			id := at(operation, "operationId").Value
			name := strings.ToUpper(id[:1]) + id[1:] + "Body"
			moved := *schema
			schema.Content = nil
			schemas.Content = append(schemas.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &moved)
		}
	}
	if named == 0 {
		t.Fatal("no operation has a body")
	}
}

// at returns the value of a field of a mapping, or nil.
func at(n *yaml.Node, field string) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			return n.Content[i+1]
		}
	}
	return nil
}

func numberProperties(n *yaml.Node) {
	for i, child := range n.Content {
		numberProperties(child)
		if n.Kind != yaml.MappingNode || i%2 == 0 || n.Content[i-1].Value != "properties" {
			continue
		}
		for j := 1; j < len(child.Content); j += 2 {
			child.Content[j].Content = append(child.Content[j].Content,
				&yaml.Node{Kind: yaml.ScalarNode, Value: "x-order"},
				&yaml.Node{Kind: yaml.ScalarNode, Value: strconv.Itoa(j)})
		}
	}
}
