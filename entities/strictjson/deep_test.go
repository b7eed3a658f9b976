package strictjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

func nested(levels int) string {
	return strings.Repeat(`{"a":[`, levels/2) + strings.Repeat("]}", levels/2)
}

// TestIsDeep counts the levels that are open at a time, and not what strings have.
func TestIsDeep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		value string
		want  bool
	}{
		"empty":                {"", false},
		"a number":             {"1", false},
		"the limit":            {nested(MaxDepth), false},
		"one more":             {"[" + nested(MaxDepth) + "]", true},
		"one after the other":  {"[" + strings.Repeat("[],", MaxDepth) + "1]", false},
		"in a string":          {`"` + strings.Repeat("[", MaxDepth+1) + `"`, false},
		"after a quote":        {`"\"` + strings.Repeat("[", MaxDepth+1) + `"`, false},
		"after a backslash":    {`["\\",` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + "]", true},
		"names with backslash": {`{"\\\"{":` + nested(MaxDepth-2) + "}", false},
	} {
		if got := IsDeep([]byte(tt.value)); got != tt.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
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
