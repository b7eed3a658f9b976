package rest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/entities"
)

var (
	// ErrNotFound is returned for paths under /v1 that do not exist.
	ErrNotFound = errors.New("no such path: see GET /v1/openapi.json")
	// ErrMethodNotAllowed is returned for paths that exist, but not for the request's method.
	ErrMethodNotAllowed = errors.New("method not allowed")
)

// source is the only description of the API. Tests check the server's answers against it, the server reads the query
// parameters of each operation from it, and docs/api.md is generated from it.
//
//go:embed openapi.yaml
var source []byte

// Document answers with the OpenAPI document. It needs no key.
func Document(c echo.Context) error { return c.JSONBlob(http.StatusOK, apiSpec().json) }

// spec is the parsed OpenAPI document.
type spec struct {
	json []byte
	// query has the query parameters of each operation, by method and route.
	query map[string][]parameter
}

// apiSpec parses the embedded document once. It panics if the document is invalid, which tests exclude.
var apiSpec = sync.OnceValue(func() spec {
	s, err := parseSpec(source)
	if err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	return s
})

func parseSpec(source []byte) (spec, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		return spec{}, err
	}
	var b bytes.Buffer
	if err := writeJSON(&b, root.Content[0]); err != nil {
		return spec{}, err
	}
	var doc document
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		return spec{}, err
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, b.Bytes())
	return spec{compact.Bytes(), doc.queryParameters()}, err
}

// writeJSON converts YAML to JSON and keeps the order of keys.
func writeJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return writeItems(b, "{}", n.Content, func(i int) string { return [...]string{",", ":"}[i%2] })
	case yaml.SequenceNode:
		return writeItems(b, "[]", n.Content, func(int) string { return "," })
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
		return fmt.Errorf("line %d: only maps, lists and scalars are supported", n.Line)
	}
}

func writeItems(b *bytes.Buffer, brackets string, items []*yaml.Node, separator func(int) string) error {
	b.WriteByte(brackets[0])
	for i, item := range items {
		if i > 0 {
			b.WriteString(separator(i))
		}
		if err := writeJSON(b, item); err != nil {
			return err
		}
	}
	b.WriteByte(brackets[1])
	return nil
}

// document is the part of the OpenAPI document that the server uses.
type document struct {
	Paths      map[string]pathItem
	Components struct{ Parameters map[string]parameter }
}

type pathItem struct {
	Get, Put, Post, Patch, Delete *struct{ Parameters []parameter }
}

// parameter is a parameter of an operation, or a reference to one of the components.
type parameter struct {
	Ref    string `json:"$ref"`
	Name   string
	In     string
	Prefix string `json:"x-prefix"`
	Schema struct{ Type string }
}

// matches reports whether the parameter describes the query parameter of this name.
func (p parameter) matches(name string) bool {
	if p.Prefix != "" {
		return strings.HasPrefix(name, p.Prefix)
	}
	return p.Name == name
}

const componentParameters = "#/components/parameters/"

func (d document) queryParameters() map[string][]parameter {
	query := map[string][]parameter{}
	for path, item := range d.Paths {
		for method, op := range map[string]*struct{ Parameters []parameter }{
			http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
			http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
		} {
			if op == nil {
				continue
			}
			key := method + " " + routeOf(path)
			query[key] = []parameter{}
			for _, p := range op.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, componentParameters); ok {
					p = d.Components.Parameters[name]
				}
				if p.In == "query" {
					query[key] = append(query[key], p)
				}
			}
		}
	}
	return query
}

// routeOf converts a path of the document to a route: {id} becomes :id.
func routeOf(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// validateQuery rejects query parameters that the document does not describe, and repeated ones that are not lists. It
// also rejects empty values, except of attributes: handlers treat an empty value as a missing one, so a list would have
// more entries than the client meant.
func validateQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		query, err := url.ParseQuery(c.Request().URL.RawQuery)
		if err != nil {
			return entities.Invalid("the query is not URL-encoded correctly")
		}
		if known, ok := apiSpec().query[c.Request().Method+" "+c.Path()]; ok {
			for name, values := range query {
				if err := validateParam(known, name, values); err != nil {
					return err
				}
			}
		}
		return next(c)
	}
}

func validateParam(known []parameter, name string, values []string) error {
	i := slices.IndexFunc(known, func(p parameter) bool { return p.matches(name) })
	if i < 0 {
		return badParam(name, "unknown parameter")
	}
	if len(values) > 1 && known[i].Schema.Type != "array" {
		return badParam(name, "given %d times", len(values))
	}
	for _, v := range values {
		if v == "" && known[i].Prefix == "" {
			return badParam(name, "it is empty: give a value, or leave it out")
		}
		if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			return badParam(name, "it has control characters or is not UTF-8")
		}
	}
	return nil
}

// notFound handles requests that match no operation.
func notFound(c echo.Context) error {
	allowed := methodsAt(c.Request().URL.EscapedPath())
	if len(allowed) == 0 {
		return ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderAllow, strings.Join(allowed, ", "))
	return fmt.Errorf("%s: %w: use %s", c.Request().Method, ErrMethodNotAllowed, strings.Join(allowed, " or "))
}

// methodsAt returns the methods of the operations at the path, sorted.
func methodsAt(path string) []string {
	var methods []string
	for operation := range apiSpec().query {
		method, route, _ := strings.Cut(operation, " ")
		if matchesRoute(route, path) {
			methods = append(methods, method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// matchesRoute reports whether a path matches a route, whose parameters match any non-empty segment.
func matchesRoute(route, path string) bool {
	want, got := strings.Split(route, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, got, func(want, got string) bool {
		return want == got || strings.HasPrefix(want, ":") && got != ""
	})
}
