package remote

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// TestShortenedKeepsWhatMattersOfARun: the types and the short fields of a run survive whatever its payloads are.
func TestShortenedKeepsWhatMattersOfARun(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxText)
	attributes := map[string]string{}
	for _, c := range long[:128] {
		attributes[strings.Repeat(string(c), 10)] = long
	}
	for _, tt := range []struct {
		name    string
		run     api.Run
		missing bool
	}{
		{"small", api.Run{ID: "wrun_1", Input: json.RawMessage(`{"a":12345678901234567890}`)}, false},
		{"text", api.Run{ID: "wrun_1", Input: json.RawMessage(`"` + long + `"`)}, true},
		{"error", api.Run{ID: "wrun_1", Error: &api.Failure{Code: "c", Message: long}}, true},
		{"number", api.Run{ID: "wrun_1", Input: json.RawMessage(strings.Repeat("1", maxText+1))}, true},
		{"list", api.Run{ID: "wrun_1", Input: json.RawMessage(`[` + strings.Repeat(`1,`, maxAnswer) + `1]`)}, true},
		{"deep", api.Run{ID: "wrun_1", Input: json.RawMessage(strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000))}, true},
		{"key", api.Run{ID: "wrun_1", Input: json.RawMessage(`{"` + strings.Repeat(long, 20) + `":1}`)}, true},
		{"attributes", api.Run{ID: "wrun_1", Attributes: attributes}, true},
	} {
		raw, err := json.Marshal(tt.run)
		if err != nil {
			t.Fatal(err)
		}
		short, err := shortened(raw, objectBudget)
		var got struct {
			api.Run

			Shortened bool
		}
		if err != nil || json.Unmarshal(short, &got) != nil || len(short) > maxAnswer {
			t.Errorf("%s: got %d bytes, %v", tt.name, len(short), err)
		}
		if got.ID != "wrun_1" || got.Shortened != tt.missing {
			t.Errorf("%s: got run %q, shortened %t", tt.name, got.ID, got.Shortened)
		}
		if !tt.missing && string(got.Input) != string(tt.run.Input) {
			t.Errorf("%s: got %s", tt.name, got.Input)
		}
	}
}

// TestShortenedIsShort: an object of any shape fits into an answer.
func TestShortenedIsShort(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(rapid.SampledFrom([]string{"a", "<", "\x00", "é", "\""}).Draw(t, "unit"), rapid.IntRange(0, 20_000).Draw(t, "n"))
	}))
	value := rapid.OneOf(text.AsAny(), rapid.Float64Range(-1e300, 1e300).AsAny(), rapid.Bool().AsAny())
	for range 3 {
		value = rapid.OneOf(value, rapid.SliceOf(value).AsAny(), rapid.MapOf(text, value).AsAny())
	}
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(rapid.MapOf(text, value).Draw(t, "object"))
		if err != nil {
			t.Fatal(err)
		}
		short, err := shortened(raw, objectBudget)
		if err != nil || len(short) > maxAnswer {
			t.Fatalf("got %d bytes of %d, %v", len(short), len(raw), err)
		}
	})
}

func TestPiecesOfPayloads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, data string
		text       string
		next       int64
		isError    bool
	}{
		{"empty", "", "", 0, false},
		{"whole", "é", "é", 0, false},
		{"longest", strings.Repeat("a", maxPiece), strings.Repeat("a", maxPiece), 0, false},
		{"more", strings.Repeat("a", maxPiece+1), strings.Repeat("a", maxPiece), 10 + maxPiece, false},
		{"rune", strings.Repeat("a", maxPiece-1) + "é", strings.Repeat("a", maxPiece-1), 10 + maxPiece - 1, false},
		{"escaped", strings.Repeat("\x01", maxPiece), strings.Repeat("\x01", maxPiece/4), 10 + maxPiece/4, false},
		{"binary", "\xff", "", 0, true},
		{"zero", "a\x00", "", 0, true},
	} {
		p, err := pieceOf([]byte(tt.data), 10)
		if p.Text != tt.text || p.Next != tt.next || (err != nil) != tt.isError {
			t.Errorf("%s: got %d bytes, next %d, %v", tt.name, len(p.Text), p.Next, err)
		}
	}
}
