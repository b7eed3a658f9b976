package engine

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// longestID is the longest ID that the contract allows, in bytes.
const longestID = 256

// Scope makes IDs from the places of a workflow: the names of its coroutines, items and operations. IDs therefore do
// not depend on the order in which coroutines happen to run.
type Scope struct {
	path string // "" or a path that ends with a dot
	uses map[string]int
}

// NewScope returns the scope of a workflow's first coroutine.
func NewScope() *Scope { return &Scope{uses: map[string]int{}} }

// ID returns the ID of the next operation with this name. The second one in a scope is name#2.
func (s *Scope) ID(name string) string { return shorten(s.path + s.use(name)) }

// Child returns a new scope in this one. Like IDs, scopes of the same name are numbered.
func (s *Scope) Child(name string) *Scope {
	return &Scope{path: s.path + s.use(name) + ".", uses: map[string]int{}}
}

// Path names the scope in messages; it is empty for the workflow's first coroutine.
func (s *Scope) Path() string { return strings.TrimSuffix(s.path, ".") }

func (s *Scope) use(name string) string {
	name = escape(name)
	s.uses[name]++
	if n := s.uses[name]; n > 1 {
		return name + "#" + strconv.Itoa(n)
	}
	return name
}

// escape percent-encodes the bytes that an ID must not have, and those that have a meaning here. Different names stay
// different.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c >= 0x7f || strings.IndexByte("/%#.", c) >= 0:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// shorten replaces the end of an ID that is too long by a hash of the whole.
func shorten(id string) string {
	if len(id) <= longestID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	hash := fmt.Sprintf("~%x", sum[:16])
	return id[:longestID-len(hash)] + hash
}
