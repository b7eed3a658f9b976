package view

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// TestListIsDecodedInParts: small payloads are one part, large ones several, and too many end the page.
func TestListIsDecodedInParts(t *testing.T) {
	t.Parallel()
	small, large := `{"a":1}`, `"`+strings.Repeat("a", partWork*3/4)+`"`
	for _, tt := range []struct {
		name    string
		payload string
		events  int
		parts   int
		all     bool
	}{
		{"nothing", "", 1000, 1, true},
		{"small payloads", small, 1000, 1, true},
		{"large payloads", large, 8, 4, true},
		{"too many large payloads", large, 2 * maxWork / len(large), 0, false},
	} {
		entries := make([]read.Entry, tt.events)
		data := new(entities.EventData)
		for i := range entries {
			payload := []byte(tt.payload)
			entries[i] = read.Entry{Row: read.Row{Seq: int64(i + 1), Data: data, Payload: payload}, Size: int64(len(payload))}
		}
		var list List
		text := []byte("[")
		n, parts := 0, 0
		for {
			var added int
			var err error
			if text, added, err = list.AppendPart(text, entries[n:]); err != nil {
				t.Fatal(err)
			}
			if added == 0 {
				break
			}
			n, parts = n+added, parts+1
		}
		if (n == len(entries)) != tt.all || tt.all && parts != tt.parts {
			t.Errorf("%s: got %d of %d events in %d parts, want all: %t, in %d",
				tt.name, n, len(entries), parts, tt.all, tt.parts)
		}
		var events []struct{ Seq int64 }
		if err := json.Unmarshal(append(text, ']'), &events); err != nil || len(events) != n {
			t.Fatalf("%s: got %d events, error %v, want %d", tt.name, len(events), err, n)
		}
		for i, e := range events {
			if e.Seq != int64(i+1) {
				t.Fatalf("%s: event %d is at %d", tt.name, e.Seq, i)
			}
		}
	}
}
