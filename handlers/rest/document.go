package rest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"
)

// source is the description of the API, and the only one: what the server answers is tested against it, which
// query parameters it takes is read from it, and docs/api.md is made of it.
//
//go:embed openapi.yaml
var source []byte

// Document answers with the description of the API, for anyone.
func Document(c echo.Context) error { return c.JSONBlob(http.StatusOK, described().json) }

// description is the document as the server uses it.
type description struct {
	json []byte
	// accepted are the query parameters of each operation, by its method and its route.
	accepted map[string][]parameter
}

// described reads the document once. One that cannot be read is a mistake in the binary.
var described = sync.OnceValue(func() description {
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	var b bytes.Buffer
	if err := writeJSON(&b, root.Content[0]); err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	var doc document
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b.Bytes()); err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	return description{compact.Bytes(), doc.accepted()}
})

// writeJSON writes YAML as JSON that has everything in the same order.
func writeJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return writeAll(b, "{}", n.Content, func(i int) string { return [...]string{",", ":"}[i%2] })
	case yaml.SequenceNode:
		return writeAll(b, "[]", n.Content, func(int) string { return "," })
	case yaml.ScalarNode:
		var value any = n.Value
		if tag := n.ShortTag(); tag != "!!str" && tag != "!!timestamp" {
			if err := n.Decode(&value); err != nil {
				return err
			}
		}
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		return e.Encode(value)
	default:
		return fmt.Errorf("line %d: only maps, lists and values are known here", n.Line)
	}
}

func writeAll(b *bytes.Buffer, brackets string, items []*yaml.Node, before func(int) string) error {
	b.WriteByte(brackets[0])
	for i, item := range items {
		if i > 0 {
			b.WriteString(before(i))
		}
		if err := writeJSON(b, item); err != nil {
			return err
		}
	}
	b.WriteByte(brackets[1])
	return nil
}

// document is what the server itself reads of the document.
type document struct {
	Paths      map[string]pathItem
	Components struct{ Parameters map[string]parameter }
}

type pathItem struct {
	Parameters                    []parameter
	Get, Put, Post, Patch, Delete *struct{ Parameters []parameter }
}

// parameter is a parameter of an operation, or stands for one of the components.
type parameter struct {
	Ref    string `json:"$ref"`
	Name   string
	In     string
	Prefix string `json:"x-prefix"`
	Schema struct{ Type string }
}

// is reports whether a query's parameter of the name is this one.
func (p parameter) is(name string) bool {
	if p.Prefix != "" {
		return strings.HasPrefix(name, p.Prefix)
	}
	return p.Name == name
}

const componentParameters = "#/components/parameters/"

func (d document) accepted() map[string][]parameter {
	accepted := map[string][]parameter{}
	for path, item := range d.Paths {
		for method, op := range map[string]*struct{ Parameters []parameter }{
			http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
			http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
		} {
			if op == nil {
				continue
			}
			key := method + " " + routeOf(path)
			accepted[key] = []parameter{}
			for _, p := range op.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, componentParameters); ok {
					p = d.Components.Parameters[name]
				}
				if p.In == "query" {
					accepted[key] = append(accepted[key], p)
				}
			}
		}
	}
	return accepted
}

// routeOf is a path of the document as a route: {id} is :id there.
func routeOf(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}
