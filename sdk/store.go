package stepwell

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// StoreKey is the definition of a value in the store of each run: state that belongs to the run and can be read from
// outside. A run has at most 256 keys of up to 256 characters, and each value is at most 1 MiB of JSON. A step that
// writes more fails for good with the code store_limit; a workflow that does panics.
type StoreKey[T any] struct{ name string }

// NewStoreKey returns the definition of a value with this key.
func NewStoreKey[T any](name string) *StoreKey[T] { return &StoreKey[T]{name} }

// Name returns the key.
func (k *StoreKey[T]) Name() string { return k.name }

// Storer reads and writes the store of a run. In workflows it is the [*Context], in steps it comes from [Store].
//
// A workflow sees what it has written and what steps had written whose results it has. What it writes is saved with the
// commands that it asks for at the same time. A step sees the store as it was when its attempt began, and what it has
// written itself. What it writes is saved in the transaction that records its output, or not at all: a failed attempt
// writes nothing. If steps that run at once write the same key, the last result in the log counts.
type Storer interface {
	load(key string) (json.RawMessage, bool)
	save(key string, value json.RawMessage)
}

// Get returns the value; false if there is none. A value that does not decode is a panic: its type has changed.
func (k *StoreKey[T]) Get(s Storer) (T, bool) {
	data, ok := s.load(k.name)
	if !ok {
		return *new(T), false
	}
	v, err := decode[T](data)
	if err != nil {
		panic(fmt.Sprintf("decode the value of key %q in the store as %T: %v", k.name, v, err))
	}
	return v, true
}

// Set sets the value.
func (k *StoreKey[T]) Set(s Storer, value T) {
	data, err := encode(value)
	if err != nil {
		panic(fmt.Sprintf("encode the value of key %q in the store: %v", k.name, err))
	}
	s.save(k.name, data)
}

// Update sets the value to what fn returns for the present one, which is the zero value if there is none.
func (k *StoreKey[T]) Update(s Storer, fn func(T) T) {
	v, _ := k.Get(s)
	k.Set(s, fn(v))
}

// Delete removes the value.
func (k *StoreKey[T]) Delete(s Storer) { s.save(k.name, json.RawMessage("null")) }

// The limits of a store, besides that of all values together: the most keys, the most characters of a key, and the most
// bytes of a value.
const (
	mostKeys     = 256
	longestKey   = 256
	largestValue = 1 << 20
)

// checkStore returns a permanent error if a store with the known values cannot have those that are written.
func checkStore(c Codec, known, written map[string]json.RawMessage) error {
	after := map[string]json.RawMessage{}
	maps.Copy(after, known)
	maps.Copy(after, written)
	maps.DeleteFunc(after, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	problem := ""
	if n := len(after); n > mostKeys {
		problem = fmt.Sprintf("the store would have %d keys; the limit is %d", n, mostKeys)
	}
	for key, value := range written {
		length, size := utf8.RuneCountInString(key), grown(c, len(value))
		switch {
		case key == "" || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
			problem = fmt.Sprintf("the key %q of the store is empty, or has control characters or invalid UTF-8", key)
		case length > longestKey:
			problem = fmt.Sprintf("a key of the store has %d characters; the limit is %d", length, longestKey)
		case size > largestValue:
			problem = fmt.Sprintf("the value of %q has %d bytes; the limit is %d", key, size, largestValue)
		}
	}
	if problem == "" {
		return nil
	}
	return Permanent(Fail(codeStoreLimit, problem))
}

// codeStoreLimit is the code of a step that writes more to the store than that may have. The server uses it as well.
const codeStoreLimit = "store_limit"

// values is what a workflow knows of its store or attributes.
type values map[string]entry

type entry struct {
	value json.RawMessage
	// at returns the position of the event that set it. It is the greatest position until that is written.
	at func() int64
}

// change sets a value, unless what is known was set later.
func (v values) change(key string, value json.RawMessage, at func() int64) {
	if old, ok := v[key]; !ok || at() >= old.at() {
		v[key] = entry{value, at}
	}
}

// get returns a value. JSON's null is none.
func (v values) get(key string) (json.RawMessage, bool) {
	e, ok := v[key]
	return e.value, ok && len(e.value) > 0 && string(e.value) != "null"
}

// storedAt returns the position of a write to the store.
func (x *execution) storedAt(id string) func() int64 {
	return func() int64 { return x.engine.Written(engine.KindStore, id) }
}

// setStore is the command that writes to the store.
type setStore struct {
	Type   string                     `json:"type"`
	ID     string                     `json:"id"`
	Values map[string]json.RawMessage `json:"values"`
}

func (w *Context) load(key string) (json.RawMessage, bool) {
	w.co.CheckRead()
	return w.exec.store.get(key)
}

func (w *Context) save(key string, value json.RawMessage) {
	w.co.Check()
	if err := checkStore(w.exec.app.codec, w.exec.snapshot(), map[string]json.RawMessage{key: value}); err != nil {
		panic(err)
	}
	id := w.co.Scope.ID("set:" + key)
	w.ask(&engine.Operation{Kind: engine.KindStore, ID: id, Command: setStore{
		"setStore", id, map[string]json.RawMessage{key: value},
	}})
	w.exec.store[key] = entry{value, w.exec.storedAt(id)}
}

type storeKey struct{}

// stepStore is the store as a step sees it. Its goroutines may use it at the same time.
type stepStore struct {
	mu      sync.Mutex
	known   map[string]json.RawMessage // at the beginning of the attempt; never changed
	written map[string]json.RawMessage
}

// withStore gives a step's context a store with these values, and returns the store.
func withStore(ctx context.Context, known map[string]json.RawMessage) (context.Context, *stepStore) {
	s := &stepStore{known: known, written: map[string]json.RawMessage{}}
	return context.WithValue(ctx, storeKey{}, s), s
}

// Store returns the store of the run that the step belongs to. It panics if ctx is not the context of a step.
func Store(ctx context.Context) Storer {
	s, ok := ctx.Value(storeKey{}).(*stepStore)
	if !ok {
		panic("stepwell.Store was called with a context that is not that of a step")
	}
	return s
}

func (s *stepStore) load(key string) (json.RawMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.written[key]
	if !ok {
		data, ok = s.known[key]
	}
	return data, ok && string(data) != "null"
}

func (s *stepStore) save(key string, value json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[key] = value
}

// writes returns what the step has written, by key.
func (s *stepStore) writes() map[string]json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.written)
}

// snapshot returns the store for an inline step.
func (x *execution) snapshot() map[string]json.RawMessage {
	known := make(map[string]json.RawMessage, len(x.store))
	for key, e := range x.store {
		known[key] = e.value
	}
	return known
}
