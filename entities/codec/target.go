package codec

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
)

var (
	timeType        = reflect.TypeFor[time.Time]()
	unmarshalerType = reflect.TypeFor[cbor.Unmarshaler]()
)

// targets remembers the verdict on each type that Unmarshal was given: reflect.Type to error or nil.
var targets sync.Map

// checkTarget refuses types into which some of what clients send would not decode, or would decode wrongly: a
// stateUpdatedAt, say, comes as an integer or as a float. So the mistake shows in the first test and not with the
// first odd client.
func checkTarget(t reflect.Type) error {
	if t == nil || t.Kind() != reflect.Pointer {
		return errors.New("decode CBOR: target is not a pointer")
	}
	if verdict, ok := targets.Load(t); ok {
		err, _ := verdict.(error)
		return err
	}
	err := unfit(t, map[reflect.Type]bool{})
	if err != nil {
		err = fmt.Errorf("decode CBOR into %s: %w", t, err)
	}
	targets.Store(t, err)
	return err
}

// unfit returns what makes t a wrong target, or nil. Types in seen are being looked at further up.
func unfit(t reflect.Type, seen map[reflect.Type]bool) error {
	if t == timeType {
		return errors.New("use codec.Time for time.Time")
	}
	if seen[t] || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	seen[t] = true
	switch k := t.Kind(); {
	case k >= reflect.Int && k <= reflect.Uintptr:
		return fmt.Errorf("use codec.Int for %s", t)
	case k == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return fmt.Errorf("use codec.Bytes for %s", t)
	case k == reflect.Pointer, k == reflect.Slice, k == reflect.Array, k == reflect.Map:
		return unfit(t.Elem(), seen)
	case k == reflect.Struct:
		return unfitField(t, seen)
	}
	return nil
}

// unfitField returns what makes a field of the struct t a wrong target, or nil.
func unfitField(t reflect.Type, seen map[reflect.Type]bool) error {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous || f.Tag.Get("cbor") == "-" {
			continue
		}
		if err := unfit(f.Type, seen); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return nil
}
