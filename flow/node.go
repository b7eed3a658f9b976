package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/entities/strictjson"
)

const (
	// MaxDocument limits the size of a document in bytes.
	MaxDocument = 256 << 10
	// maxNodes limits how many values a document has once its aliases are expanded.
	maxNodes = 100_000
	// maxExpanded limits the bytes of a document's texts and names, and of the paths that lead to them, once its aliases
	// are expanded.
	maxExpanded = 10 * MaxDocument
	// maxExpressions limits the expressions in ${…}.
	maxExpressions = 1000
	// maxDepth limits how deep the values of a document are nested.
	maxDepth = 64
)

// kind is the type of a value in a document: that of JSON.
type kind string

const (
	kindNull   kind = "null"
	kindBool   kind = "a boolean"
	kindNumber kind = "a number"
	kindText   kind = "a text"
	kindList   kind = "a list"
	kindObject kind = "an object"
)

// node is a value of a document, and where it is.
type node struct {
	kind         kind
	line, column int
	path         string
	// text is the value of a text, and the JSON of a number or boolean.
	text string
	// items are the items of a list, or the values of an object. Names are the names of the latter, in their order.
	items []*node
	names []string
}

// get returns a value of an object, or nil.
func (n *node) get(name string) *node {
	if n == nil || n.kind != kindObject {
		return nil
	}
	for i, known := range n.names {
		if known == name {
			return n.items[i]
		}
	}
	return nil
}

// appendJSON appends the value as JSON.
func (n *node) appendJSON(dst []byte) []byte {
	switch n.kind {
	case kindText:
		return appendText(dst, n.text)
	case kindList:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	case kindObject:
		dst = append(dst, '{')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, n.names[i]), ':')
			dst = item.appendJSON(dst)
		}
		return append(dst, '}')
	default:
		return append(dst, n.text...)
	}
}

func appendText(dst []byte, text string) []byte {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has a JSON form
	}
	return append(dst, encoded...)
}

// ReadNodes reads a document in YAML 1.2 or JSON, which is a part of it. Values have the types of the core schema: "no"
// and "on" are texts, and so are dates.
func ReadNodes(document []byte) (*node, Faults) {
	var faults Faults
	top := &node{line: 1, column: 1}
	if len(document) > MaxDocument {
		faults.add(top, CodeSyntax, "the document has %d bytes; the limit is %d", len(document), MaxDocument)
		return nil, faults
	}
	if !utf8.Valid(document) || bytes.IndexByte(document, 0) >= 0 {
		faults.add(top, CodeSyntax, "the document is not text in UTF-8")
		return nil, faults
	}
	document = joinSurrogates(document)
	var root, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(document))
	err := d.Decode(&root)
	switch {
	case errors.Is(err, io.EOF) || err == nil && isNothing(root.Content[0]):
		faults.add(top, CodeMissing, "the document is empty")
		return nil, faults
	case err == nil:
		err = d.Decode(&second)
	}
	switch {
	case err == nil:
		at := &node{line: second.Content[0].Line, column: second.Content[0].Column}
		faults.add(at, CodeSyntax, `a second document begins after "---": put it into a file of its own`)
		return nil, faults
	case !errors.Is(err, io.EOF):
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if at, ok := halfCharacter(text, document); ok {
			faults.add(at, CodeSyntax, `this escape is half of a character: write the character itself`)
			return nil, faults
		}
		faults.add(placeOf(text, document), CodeSyntax, "%s", lineOfError.ReplaceAllString(text, ""))
		return nil, faults
	}
	t := translation{faults: &faults}
	n := t.node(root.Content[0], "", 0)
	if t.full {
		return nil, faults
	}
	return n, faults
}

// isNothing reports whether a document has no value.
func isNothing(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 }

var (
	lineOfError   = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

// placeOf returns the place that an error of the YAML parser names; of an anchor, that of its first use.
func placeOf(err string, document []byte) *node {
	n := &node{line: 1, column: 1}
	if found := lineOfError.FindStringSubmatch(err); found != nil {
		n.line, _ = strconv.Atoi(found[1])
	}
	if found := unknownAnchor.FindStringSubmatch(err); found != nil {
		before, _, _ := bytes.Cut(document, []byte("*"+found[1]))
		n.line, n.column = 1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n')
	}
	return n
}

// translation makes nodes of those of the YAML parser.
type translation struct {
	faults *Faults
	count  int
	bytes  int // of texts and names, and of the paths
	full   bool
	// expressions counts the places where one begins.
	expressions int
}

var errTooLarge = errors.New("too many values")

// isFull counts a value of a document, and reports whether it is one too many. The first such value is a fault.
func (t *translation) isFull(n *node, text string) bool {
	t.count++
	t.bytes += len(text) + len(n.path)
	switch {
	case t.full:
	case t.count > maxNodes:
		t.faults.add(n, CodeSyntax, "%v; the limit is %d, with those of aliases", errTooLarge, maxNodes)
	case t.bytes > maxExpanded:
		t.faults.add(n, CodeSyntax, "the texts have too many bytes; the limit is %d, with those of aliases", maxExpanded)
	default:
		return false
	}
	t.full = true
	return true
}

func (t *translation) node(y *yaml.Node, path string, depth int) *node {
	n := &node{line: y.Line, column: y.Column, path: path, kind: kindNull, text: "null"}
	switch {
	case t.isFull(n, y.Value):
		return n
	case depth > maxDepth:
		t.faults.add(n, CodeSyntax, "nested too deeply; the limit is %d", maxDepth)
		t.full = true
		return n
	}
	t.checkTag(y, n)
	switch y.Kind {
	case yaml.AliasNode:
		return t.node(y.Alias, path, depth+1)
	case yaml.SequenceNode:
		n.kind, n.text = kindList, ""
		for i, item := range y.Content {
			n.items = append(n.items, t.node(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case yaml.MappingNode:
		n.kind, n.text = kindObject, ""
		for i := 0; i+1 < len(y.Content); i += 2 {
			t.entry(n, y.Content[i], y.Content[i+1], depth)
		}
	default:
		t.scalar(n, y)
	}
	return n
}

// checkTag checks that a value has no tag, which nobody would regard.
func (t *translation) checkTag(y *yaml.Node, at *node) {
	if y.Style&yaml.TaggedStyle != 0 {
		t.faults.add(at, CodeSyntax, "tags such as %s have no meaning here: leave it out", y.Tag)
	}
}

func (t *translation) entry(n *node, key, value *yaml.Node, depth int) {
	name := key.Value
	t.bytes += len(name)
	at := &node{line: key.Line, column: key.Column, path: below(n.path, name)}
	t.checkTag(key, at)
	switch {
	case key.Tag == "!!merge":
		t.faults.add(at, CodeSyntax, `"<<" merges nothing in YAML 1.2: write the fields out, or quote the name`)
		return
	case key.Kind != yaml.ScalarNode:
		t.faults.add(at, CodeSyntax, "the name of a field must be a text")
		return
	}
	if n.get(name) != nil {
		t.faults.add(at, CodeConflict, "%q is there twice", name)
		return
	}
	n.names = append(n.names, name)
	n.items = append(n.items, t.node(value, at.path, depth+1))
}

// below returns the path of a field. What no name of ours has is left out.
func below(path, name string) string {
	name = name[:min(len(name), maxName)]
	if path == "" {
		return name
	}
	return path + "." + name
}

// The core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/, section 10.3.2), of which JSON has no infinity.
var (
	isNull    = regexp.MustCompile(`^(|~|null|Null|NULL)$`)
	isBool    = regexp.MustCompile(`^(true|True|TRUE|false|False|FALSE)$`)
	isInt     = regexp.MustCompile(`^[-+]?[0-9]+$`)
	isBased   = regexp.MustCompile(`^0(o[0-7]+|x[0-9a-fA-F]+)$`)
	isFloat   = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	isSpecial = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

func (t *translation) scalar(n *node, y *yaml.Node) {
	text := y.Value
	before := t.expressions
	if t.expressions += strings.Count(text, "${"); before <= maxExpressions && t.expressions > maxExpressions {
		t.faults.add(n, CodeExpression, "too many expressions; the limit is %d, with those of aliases", maxExpressions)
	}
	if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		n.kind, n.text = kindText, text
		return
	}
	switch {
	case isNull.MatchString(text):
	case isBool.MatchString(text):
		n.kind, n.text = kindBool, strings.ToLower(text)
	case isBased.MatchString(text):
		v, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			t.faults.add(n, CodeType, "%s is too large", text)
		}
		n.kind, n.text = kindNumber, strconv.FormatUint(v, 10)
	case isInt.MatchString(text):
		n.kind, n.text = kindNumber, plainInt(text)
		if !strictjson.InRange(n.text) {
			t.faults.add(n, CodeType, "%s is too large", quote(text))
		}
	case isFloat.MatchString(text):
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(v, 0) {
			t.faults.add(n, CodeType, "%s is too large", text)
			v = 0
		}
		n.kind, n.text = kindNumber, strconv.FormatFloat(v, 'g', -1, 64)
	case isSpecial.MatchString(text):
		t.faults.add(n, CodeType, "%s has no form in JSON; quote it if a text is meant", text)
		n.kind, n.text = kindNumber, "0"
	default:
		n.kind, n.text = kindText, text
	}
}

// plainInt returns an integer as JSON writes it: without a plus, and without zeros before it. All digits are kept.
func plainInt(text string) string {
	text = strings.TrimPrefix(text, "+")
	digits, minus := strings.CutPrefix(text, "-")
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return "0"
	}
	if minus {
		return "-" + digits
	}
	return digits
}

// JSON returns a document in YAML 1.2 or JSON as JSON, read as flows are. If it has faults, the error is a [Faults].
func JSON(document []byte) (json.RawMessage, error) {
	root, faults := ReadNodes(document)
	if len(faults) > 0 {
		return nil, faults.sorted()
	}
	return root.appendJSON(nil), nil
}

// Node is a value of a document, and where it is. Packages whose documents are made into flows read and make nodes.
type Node = node

// NewObject returns an object without fields that stands where another value does.
func NewObject(at *Node) *Node {
	return &node{kind: kindObject, line: at.line, column: at.column, path: at.path}
}

// NewText returns a text that stands where another value does.
func NewText(at *Node, text string) *Node {
	return &node{kind: kindText, line: at.line, column: at.column, path: at.path, text: text}
}

// NewNumber returns a whole number that stands where another value does.
func NewNumber(at *Node, number int) *Node {
	return &node{kind: kindNumber, line: at.line, column: at.column, path: at.path, text: strconv.Itoa(number)}
}

// NewList returns a list that stands where another value does.
func NewList(at *Node, items ...*Node) *Node {
	return &node{kind: kindList, line: at.line, column: at.column, path: at.path, items: items}
}

// Set adds a field to an object, unless the value is nil.
func (n *node) Set(name string, value *Node) *Node {
	if value != nil {
		n.names, n.items = append(n.names, name), append(n.items, value)
	}
	return n
}

// Get returns a field of an object, or nil.
func (n *node) Get(name string) *Node { return n.get(name) }

// Names returns the names of an object's fields, in their order.
func (n *node) Names() []string { return n.names }

// Items returns the items of a list, or the values of an object.
func (n *node) Items() []*Node { return n.items }

// Kind says what type the value has, such as "a text" or "an object".
func (n *node) Kind() string { return string(n.kind) }

// Text returns a text, and the JSON of a number or boolean.
func (n *node) Text() string { return n.text }

// IsText reports whether the value is a text.
func (n *node) IsText() bool { return n != nil && n.kind == kindText }

// IsList reports whether the value is a list.
func (n *node) IsList() bool { return n != nil && n.kind == kindList }

// IsObject reports whether the value is an object.
func (n *node) IsObject() bool { return n != nil && n.kind == kindObject }

// JSON returns the value as JSON.
func (n *node) JSON() json.RawMessage { return n.appendJSON(nil) }

// Sorted returns the value with the fields of the given objects in the order of their names.
func (n *node) Sorted(objects map[*Node]bool) *Node {
	sorted := *n
	sorted.items = make([]*node, len(n.items))
	for i, item := range n.items {
		sorted.items[i] = item.Sorted(objects)
	}
	if objects[n] && n.kind == kindObject {
		sorted.names = slices.Sorted(slices.Values(n.names))
		for i, name := range sorted.names {
			sorted.items[i] = n.items[slices.Index(n.names, name)].Sorted(objects)
		}
	}
	return &sorted
}

// Literal returns the value as a template that has it: without expressions.
func (n *node) Literal() *Node {
	literal, escape := *n, strings.NewReplacer("${", "$${")
	if n.kind == kindText {
		literal.text = escape.Replace(n.text)
	}
	literal.names = slices.Clone(n.names)
	for i, name := range n.names {
		literal.names[i] = escape.Replace(name)
	}
	literal.items = make([]*node, len(n.items))
	for i, item := range n.items {
		literal.items[i] = item.Literal()
	}
	return &literal
}
