package payload

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/stepwell-dev/stepwell/entities/codec"
)

// cborMode decodes any well-formed CBOR. It is more lenient than entities/codec, because people only read the result.
var cborMode = must(cbor.DecOptions{
	DupMapKey:             cbor.DupMapKeyEnforcedAPF,
	MaxNestedLevels:       256,
	MaxArrayElements:      1 << 20,
	MaxMapPairs:           1 << 20,
	DefaultMapType:        reflect.TypeFor[map[any]any](),
	UnrecognizedTagToAny:  cbor.UnrecognizedTagContentToAny,
	TimeTagToAny:          cbor.TimeTagToTime,
	DefaultByteStringType: reflect.TypeFor[cbor.ByteString](),
	BigIntDec:             cbor.BigIntDecodeValue,
}.DecMode())

// must panics on invalid options, which are constants of this package.
func must(mode cbor.DecMode, err error) cbor.DecMode {
	if err != nil {
		panic(err)
	}
	return mode
}

// mayBeCBOR reports whether a payload with this first byte is tried as CBOR. Numbers and byte strings are excluded,
// because too much other data would be mistaken for them.
func mayBeCBOR(first byte) bool {
	const text, tag = 3, 6
	major := first >> 5
	return major >= text && major <= tag
}

// Field decodes one field of a CBOR map as JSON. Ok is false if the field is missing, cannot be decoded, or has more
// than [MaxDecoded] bytes.
func Field(data []byte, name string) (value json.RawMessage, ok bool) {
	var all map[string]cbor.RawMessage
	if len(data) == 0 || cborMode.Unmarshal(data, &all) != nil || all[name] == nil {
		return nil, false
	}
	value, err := decodeCBOR(all[name], MaxDecoded)
	return value, err == nil
}

func decodeCBOR(data []byte, limit int) (json.RawMessage, error) {
	if len(data) > limit {
		return nil, errTooLarge
	}
	if cborMode.Wellformed(data) != nil {
		return nil, errOpaque
	}
	if codec.Count(data) > limit/bytesPerValue {
		return nil, errTooLarge
	}
	var v any
	if err := cborMode.Unmarshal(data, &v); err != nil {
		return nil, errOpaque
	}
	shown, err := jsonValue(v)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return nil, errOpaque
	}
	if len(text) > limit {
		return nil, errTooLarge
	}
	return text, nil
}

// bytesPerValue limits the number of values in a payload: one for so many bytes of the limit. While they are converted,
// small values take many times the memory of their text.
const bytesPerValue = 16

// jsonValue converts a decoded CBOR value to one that encoding/json can encode.
func jsonValue(v any) (any, error) {
	switch v := v.(type) {
	case map[any]any:
		return jsonObject(v)
	case []any:
		for i := range v {
			item, err := jsonValue(v[i])
			if err != nil {
				return nil, err
			}
			v[i] = item
		}
		return v, nil
	case cbor.ByteString:
		return jsonBytes([]byte(v)), nil
	case []byte:
		return jsonBytes(v), nil
	case float64:
		return jsonFloat(v), nil
	case time.Time:
		return jsonTime(v), nil
	case big.Int:
		return v.String(), nil
	case string, bool, nil, uint64, int64:
		return v, nil
	default: // unassigned simple values
		return nil, errOpaque
	}
}

func jsonObject(m map[any]any) (any, error) {
	shown := make(map[string]any, len(m))
	for k, v := range m {
		name, ok := k.(string)
		if !ok {
			key, err := jsonValue(k)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(key)
			if err != nil {
				return nil, errOpaque
			}
			name = string(text)
		}
		if _, taken := shown[name]; taken {
			return nil, errOpaque
		}
		value, err := jsonValue(v)
		if err != nil {
			return nil, err
		}
		shown[name] = value
	}
	return shown, nil
}

func jsonBytes(b []byte) any {
	return struct {
		Type   string `json:"$type"`
		Base64 string `json:"base64"`
	}{"Uint8Array", base64.StdEncoding.EncodeToString(b)}
}

func jsonFloat(f float64) any {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	default:
		return f
	}
}

func jsonTime(t time.Time) any {
	if y := t.UTC().Year(); t.IsZero() || y < 0 || y > 9999 {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
