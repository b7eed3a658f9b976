package codec

import (
	"bytes"
	"fmt"
	"io"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// encMode writes Go values; what it writes is not for clients before rewrite has gone over it.
var encMode = must(cbor.EncOptions{
	Sort:            cbor.SortBytewiseLexical, // Go maps too get one form
	NaNConvert:      cbor.NaNConvertNone,
	InfConvert:      cbor.InfConvertNone,
	Time:            cbor.TimeRFC3339Nano, // tag 0, by which rewrite finds and refuses a time.Time
	TimeTag:         cbor.EncTagRequired,
	IndefLength:     cbor.IndefLengthForbidden,
	NilContainers:   cbor.NilContainerAsEmpty,
	BinaryMarshaler: cbor.BinaryMarshalerNone,
	TextMarshaler:   cbor.TextMarshalerTextString,
}.UserBufferEncMode())

// decMode reads into Go values; the limits are those of scan, which has been over the data before.
var decMode = must(cbor.DecOptions{
	DupMapKey:             cbor.DupMapKeyEnforcedAPF, // for the tag 259 maps, which scan lets pass
	MaxNestedLevels:       MaxDepth,
	MaxArrayElements:      MaxItems,
	MaxMapPairs:           MaxItems,
	IndefLength:           cbor.IndefLengthAllowed,
	FieldNameMatching:     cbor.FieldNameMatchingCaseSensitive,
	DefaultMapType:        reflect.TypeFor[map[string]any](),
	UnrecognizedTagToAny:  cbor.UnrecognizedTagContentToAny,
	TimeTagToAny:          cbor.TimeTagToTime,
	BinaryUnmarshaler:     cbor.BinaryUnmarshalerNone,
	TextUnmarshaler:       cbor.TextUnmarshalerTextString,
	ExtraReturnErrors:     cbor.ExtraDecErrorNone,
	ByteStringToString:    cbor.ByteStringToStringForbidden,
	ByteStringToTime:      cbor.ByteStringToTimeForbidden,
	FieldNameByteString:   cbor.FieldNameByteStringForbidden,
	DefaultByteStringType: reflect.TypeFor[[]byte](),
}.DecMode())

// must returns a mode whose options are constants of this package.
func must[T any](mode T, err error) T {
	if err != nil {
		panic(err) // a programmer's error, seen by every test
	}
	return mode
}

// usualSize is what most answers are smaller than.
const usualSize = 1 << 10

// Marshal returns v as CBOR that every client reads as meant: integers of at most 32 bits and greater ones, up to
// 2^53, as floats; dates as clients write them; text that is UTF-8; definite lengths; map keys in one order.
// An error is a programmer's error, such as a greater integer or a time.Time instead of a [Time].
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

// Unmarshal reads one CBOR item of a client into the value that v points to. A key with the value undefined is as
// if absent; unknown keys are ignored. It accepts what clients send, within [MaxDepth] and [MaxItems]; anything
// else is an [*Error]. Any other error means that v's type is unfit, whatever the data.
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

// Encoder writes CBOR items to a writer, one after the other.
type Encoder struct{ w io.Writer }

// NewEncoder returns an Encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Encode writes v as [Marshal] encodes it, in one call of the writer, or nothing if v cannot be encoded.
func (e *Encoder) Encode(v any) error {
	data, err := Marshal(v)
	if err != nil {
		return err
	}
	if _, err := e.w.Write(data); err != nil {
		return fmt.Errorf("write CBOR: %w", err)
	}
	return nil
}
