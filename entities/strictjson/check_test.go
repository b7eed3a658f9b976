package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

func nested(levels int) string {
	return strings.Repeat(`{"a":[`, levels/2) + strings.Repeat("]}", levels/2)
}

// TestCheck has what is let in, and the code of what is not. Depth counts the levels that are open at a time, and not
// what strings have.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ value, code string }{
		"empty":                {"", ""},
		"a number":             {"1", ""},
		"the limit":            {nested(MaxDepth), ""},
		"one more":             {"[" + nested(MaxDepth) + "]", CodeTooDeep},
		"one after the other":  {"[" + strings.Repeat("[],", MaxDepth) + "1]", ""},
		"in a string":          {`"` + strings.Repeat("[", MaxDepth+1) + `"`, ""},
		"after a quote":        {`"\"` + strings.Repeat("[", MaxDepth+1) + `"`, ""},
		"after a backslash":    {`["\\",` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + "]", CodeTooDeep},
		"names with backslash": {`{"\\\"{":` + nested(MaxDepth-2) + "}", ""},

		"largest double":         {`{"a":-1.7976931348623157e308}`, ""},
		"beyond doubles":         {`{"a":[1,1.8e308]}`, CodeNumber},
		"a number that crashed":  {`{"amount":1e99999999}`, CodeNumber},
		"an exponent of letters": {`[1E+400]`, CodeNumber},
		"an endless exponent":    {`1e` + strings.Repeat("9", 100), CodeNumber},
		"zero with an exponent":  {`0e999999999`, ""},
		"small exponent":         {`1e-400`, ""},
		"smaller exponent":       {`1e-401`, CodeNumber},
		"many digits":            {strings.Repeat("9", 308), ""},
		"more than a double has": {strings.Repeat("9", 310), CodeNumber},
		"many decimals":          {"0." + strings.Repeat("9", 398), ""},
		"too many decimals":      {"0." + strings.Repeat("9", 399), CodeNumber},
		"a text like a number":   {`"1e99999999"`, ""},

		"a pair":                    {`{"\ud83d\ude00":1}`, ""},
		"half of a pair in a text":  {`["\ud800",{"a":"\ud83d"}]`, ""},
		"first half in a name":      {`{"\uD800":1}`, CodeName},
		"second half in a name":     {`{"a":1, "x\udc00y" : 2}`, CodeName},
		"two first halves":          {`{"\ud83d\ud83d\ude00":1}`, CodeName},
		"first half at the end":     {`{"a\ud83d":1}`, CodeName},
		"an escaped first half":     {`{"\\ud800":1}`, ""},
		"another escape in between": {`{"\ud83d\n\ude00":1}`, CodeName},
		"a character in between":    {`{"\ud83dx\ude00":1}`, CodeName},
		"NUL in a name":             {`{"\u0000":1}`, ""},
	} {
		err, code := Check([]byte(tt.value)), ""
		if refused, ok := errors.AsType[*Refusal](err); ok {
			code = refused.Code
		}
		if code != tt.code || (err == nil) != (code == "") || err != nil && !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v, want %q", name, err, tt.code)
		}
	}
}

// FuzzCheck: what is let in can be decoded, with exact numbers, and has as many members afterwards.
func FuzzCheck(f *testing.F) {
	for _, value := range []string{`{"\ud800":1e400,"\ud83d\ude00":-1.5e-3}`, `[[[1,"\\"]]]`, `{"a":"\ud800\""}`, `1e99999999`} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) || Check(value) != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber()
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", value, err)
			}
			number, ok := token.(json.Number)
			if !ok {
				continue
			}
			if _, ok := new(big.Rat).SetString(string(number)); !ok {
				t.Errorf("%s is let in, and is no number", number)
			}
		}
	})
}

// TestDeepPayloadsAreRefused: in bodies of requests, and in answers of functions.
func TestDeepPayloadsAreRefused(t *testing.T) {
	t.Parallel()
	for levels, refused := range map[int]bool{MaxDepth: false, MaxDepth + wrapped: false, MaxDepth + wrapped + 2: true} {
		for name, decode := range map[string]func([]byte, any) error{"Decode": Decode, "DecodeLenient": DecodeLenient} {
			var into struct {
				Input json.RawMessage `json:"input"`
			}
			err := decode([]byte(`{"input":`+nested(levels)+`}`), &into)
			if errors.Is(err, entities.ErrInvalid) != refused || (err == nil) == refused {
				t.Errorf("%s of %d levels: %v", name, levels, err)
			}
		}
	}
}
