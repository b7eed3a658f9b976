package codec

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// encMode encodes Go values. Its output is not for clients until rewrite has converted it.
var encMode = must(cbor.EncOptions{
	Sort:            cbor.SortBytewiseLexical, // makes the encoding of Go maps deterministic
	NaNConvert:      cbor.NaNConvertNone,
	InfConvert:      cbor.InfConvertNone,
	Time:            cbor.TimeRFC3339Nano, // tag 0, by which rewrite recognizes and rejects a time.Time
	TimeTag:         cbor.EncTagRequired,
	IndefLength:     cbor.IndefLengthForbidden,
	NilContainers:   cbor.NilContainerAsEmpty,
	BinaryMarshaler: cbor.BinaryMarshalerNone,
	TextMarshaler:   cbor.TextMarshalerTextString,
}.UserBufferEncMode())

// decMode decodes into Go values. scan has checked the data before, with the same limits.
var decMode = must(cbor.DecOptions{
	DupMapKey:            cbor.DupMapKeyEnforcedAPF, // for maps with tag 259, whose keys scan does not check
	MaxNestedLevels:      maxDepth,
	MaxArrayElements:     maxItems,
	MaxMapPairs:          maxItems,
	IndefLength:          cbor.IndefLengthAllowed,
	FieldNameMatching:    cbor.FieldNameMatchingCaseSensitive,
	DefaultMapType:       reflect.TypeFor[map[string]any](),
	UnrecognizedTagToAny: cbor.UnrecognizedTagContentToAny,
	BinaryUnmarshaler:    cbor.BinaryUnmarshalerNone,
	TextUnmarshaler:      cbor.TextUnmarshalerTextString,
}.DecMode())

// must panics on invalid options, which are constants of this package.
func must[T any](mode T, err error) T {
	if err != nil {
		panic(err)
	}
	return mode
}

// usualSize is larger than most answers.
const usualSize = 1 << 10

// Marshal encodes v as CBOR that every client decodes correctly (protocol §2.1): integers of at most 32 bits, larger
// ones up to 2^53 as floats, dates as clients encode them, valid UTF-8, definite lengths, sorted map keys. An error
// means that v is unsuitable, for example that it contains a larger integer, or a time.Time instead of a [Time].
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(usualSize)
	if err := encMode.MarshalToBuffer(v, &buf); err != nil {
		return nil, fmt.Errorf("encode CBOR: %w", err)
	}
	data, err := rewrite(buf.Bytes())
	if err != nil {
		return nil, fmt.Errorf("encode CBOR of %T: %w", v, err)
	}
	return data, nil
}

// Unmarshal decodes one CBOR item of a client into the value that v points to. A key with the value undefined counts as
// absent; unknown keys are ignored. CBOR that clients do not send, or that is nested deeper than 64 levels or has more
// than 131,072 items in one container, is an [*Error]. Any other error means that the type of v is unsuitable for any
// data.
func Unmarshal(data []byte, v any) error {
	if err := checkTarget(reflect.TypeOf(v)); err != nil {
		return err
	}
	data, err := scan(data)
	if err != nil {
		return err
	}
	if err := decMode.Unmarshal(data, v); err != nil {
		return mismatch(err)
	}
	return nil
}
