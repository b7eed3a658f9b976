package payload

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// cborMode reads any well-formed CBOR.
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

// must returns a mode whose options are constants of this package.
func must(mode cbor.DecMode, err error) cbor.DecMode {
	if err != nil {
		panic(err) // a programmer's error, seen by every test
	}
	return mode
}

// mayBeCBOR reports whether a payload of CBOR begins like that. Numbers and bytes are left out: too much else would
// be taken for them.
func mayBeCBOR(first byte) bool {
	const text, tag = 3, 6
	major := first >> 5
	return major >= text && major <= tag
}

// Field shows a field of a map in CBOR. It is not ok when there is no such field, or it cannot be shown within the
// limit of [Decode].
func Field(data []byte, name string) (value json.RawMessage, ok bool) {
	var all map[string]cbor.RawMessage
	if len(data) == 0 || cborMode.Unmarshal(data, &all) != nil || all[name] == nil {
		return nil, false
	}
	value, err := showCBOR(all[name], MaxDecoded)
	return value, err == nil
}

func showCBOR(data []byte, limit int) (json.RawMessage, error) {
	if len(data) > limit {
		return nil, errTooLarge
	}
	var v any
	if err := cborMode.Unmarshal(data, &v); err != nil {
		return nil, errOpaque
	}
	shown, err := showable(v)
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

// showable makes of what was CBOR what can be JSON.
func showable(v any) (any, error) {
	switch v := v.(type) {
	case map[any]any:
		return showableMap(v)
	case []any:
		for i := range v {
			item, err := showable(v[i])
			if err != nil {
				return nil, err
			}
			v[i] = item
		}
		return v, nil
	case cbor.ByteString:
		return showableBytes([]byte(v)), nil
	case []byte:
		return showableBytes(v), nil
	case float64:
		return showableFloat(v), nil
	case time.Time:
		return showableTime(v), nil
	case big.Int:
		return v.String(), nil
	case string, bool, nil, uint64, int64:
		return v, nil
	default: // simple values that mean nothing
		return nil, errOpaque
	}
}

func showableMap(m map[any]any) (any, error) {
	shown := make(map[string]any, len(m))
	for k, v := range m {
		name, ok := k.(string)
		if !ok {
			key, err := showable(k)
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
		value, err := showable(v)
		if err != nil {
			return nil, err
		}
		shown[name] = value
	}
	return shown, nil
}

func showableBytes(b []byte) any {
	return struct {
		Type   string `json:"$type"`
		Base64 string `json:"base64"`
	}{"Uint8Array", base64.StdEncoding.EncodeToString(b)}
}

func showableFloat(f float64) any {
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

func showableTime(t time.Time) any {
	if y := t.UTC().Year(); t.IsZero() || y < 0 || y > 9999 {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
