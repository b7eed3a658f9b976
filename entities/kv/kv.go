// Package kv defines the store of a run: a map from keys to JSON values, which the run's functions write. A write is an
// event, store_set, whose payload is a JSON object with the new value of each key; null removes a key. The store is the
// fold of these events.
package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
)

// The limits of a store.
const (
	// MaxKeys is the most keys that a store has, and MaxKey the most characters of a key.
	MaxKeys = 256
	MaxKey  = 256
	// MaxValue is the most bytes of a value, and MaxStore the most of all values together.
	MaxValue = 1 << 20
	MaxStore = 16 << 20
	// MaxInCall is the most bytes of all values with which a call has the store.
	MaxInCall = 1 << 20
)

// Value is the value of a key.
type Value struct {
	// Seq is the position of the event that wrote the value, and Size its length in bytes.
	Seq  int64
	Size int
	// JSON is the value itself; nil if only the other fields were read.
	JSON []byte
}

// ErrKeyNotFound reports that a store does not have a key.
var ErrKeyNotFound = errors.New("the store does not have the key")

// ErrLimit is the reason of a [LimitError].
var ErrLimit = errors.New("a limit of the store")

// LimitError refuses a write that a store has no room for. It matches [ErrLimit] and [entities.ErrInvalid].
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

// Is reports whether the target is one of the two errors that the type stands for.
func (e *LimitError) Is(target error) bool {
	return target == ErrLimit || target == entities.ErrInvalid
}

func tooMuch(format string, args ...any) error { return &LimitError{fmt.Sprintf(format, args...)} }

// Encode returns the payload of the event that writes the values; nil values remove their keys. It fails with
// [entities.ErrInvalid] if a key or a value is invalid, and with a *[LimitError] if one is too large.
func Encode(values map[string]json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		if err := validate(key, value); err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		if value == nil {
			value = json.RawMessage("null")
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Decode returns the values of a payload of [Encode]; removed keys have the value null. It fails as Encode does.
func Decode(payload []byte) (map[string]json.RawMessage, error) {
	var values map[string]json.RawMessage
	if err := strictjson.DecodeLenient(payload, &values); err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, entities.Invalid("there is no key to write")
	}
	for key, value := range values {
		if err := validate(key, value); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func validate(key string, value []byte) error {
	if n := utf8.RuneCountInString(key); n > MaxKey {
		return tooMuch("a key of the store has %d characters; the limit is %d", n, MaxKey)
	}
	if err := entities.ValidateText("key of the store", key, utf8.UTFMax*MaxKey); err != nil {
		return err
	}
	if n := len(value); n > MaxValue {
		return tooMuch("the value of %q has %d bytes; the limit is %d", key, n, MaxValue)
	}
	if !utf8.Valid(value) {
		return entities.Invalid("the value of %q contains invalid UTF-8", key)
	}
	return nil
}

// Apply returns the store after the event at a position with the payload. It changes neither argument. It fails with
// [entities.ErrInvalid] if the payload is invalid, and with a *[LimitError] if the store would be too large.
func Apply(store map[string]Value, payload []byte, seq int64) (map[string]Value, error) {
	values, err := Decode(payload)
	if err != nil {
		return nil, err
	}
	after := maps.Clone(store)
	if after == nil {
		after = make(map[string]Value, len(values))
	}
	for key, value := range values {
		if string(value) == "null" {
			delete(after, key)
		} else {
			after[key] = Value{Seq: seq, Size: len(value), JSON: value}
		}
	}
	if n := len(after); n > MaxKeys {
		return nil, tooMuch("the store would have %d keys; the limit is %d", n, MaxKeys)
	}
	if n := Size(after); n > MaxStore {
		return nil, tooMuch("the store would have %d bytes; the limit is %d", n, MaxStore)
	}
	return after, nil
}

// Size returns the bytes of all values together.
func Size(store map[string]Value) int {
	n := 0
	for _, v := range store {
		n += v.Size
	}
	return n
}

// WithoutJSON returns a copy of the store without the values themselves, for keeping in memory.
func WithoutJSON(store map[string]Value) map[string]Value {
	bare := maps.Clone(store)
	for key, v := range bare {
		v.JSON = nil
		bare[key] = v
	}
	return bare
}
