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

// targets caches the result of unsuitable for each type: reflect.Type to error or nil.
var targets sync.Map

// checkTarget rejects types that cannot hold every form in which clients send a value; a stateUpdatedAt, for example,
// may be an integer or a float. It makes the mistake visible in the first test instead of with the first such client.
func checkTarget(t reflect.Type) error {
	if t == nil || t.Kind() != reflect.Pointer {
		return errors.New("decode CBOR: target is not a pointer")
	}
	if cached, ok := targets.Load(t); ok {
		err, _ := cached.(error)
		return err
	}
	err := unsuitable(t, map[reflect.Type]bool{})
	if err != nil {
		err = fmt.Errorf("decode CBOR into %s: %w", t, err)
	}
	targets.Store(t, err)
	return err
}

// unsuitable returns why t cannot be a target, or nil. Types in seen are being checked by a caller.
func unsuitable(t reflect.Type, seen map[reflect.Type]bool) error {
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
		return unsuitable(t.Elem(), seen)
	case k == reflect.Struct:
		return unsuitableField(t, seen)
	}
	return nil
}

// unsuitableField returns why a field of the struct t cannot be a target, or nil.
func unsuitableField(t reflect.Type, seen map[reflect.Type]bool) error {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous || f.Tag.Get("cbor") == "-" {
			continue
		}
		if err := unsuitable(f.Type, seen); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return nil
}
