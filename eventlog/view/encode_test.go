package view

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// TestEncoderIsEncodingJSON encodes a log with each kind of event, of data and of payload, and compares each event with
// what encoding/json makes of it.
func TestEncoderIsEncodingJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 21, 27, 3, 52_999_999, time.FixedZone("", 3600))
	value := "<v>"
	data := []entities.EventData{
		{},
		{StepName: "step//charge <&>", Attempt: new(2), RetryAfter: &at},
		{Token: "té\u2028\"\\", Attributes: map[string]string{"b": "1", "a": "\xff"}},
		{Changes: []entities.AttributeChange{{Key: "k", Value: &value}, {Key: "gone"}}, Open: []entities.StepID{"s"}},
	}
	payloads := []string{
		"", `{"a" : [1, "x  y", "<é>"] }`, "\t[ \"a \\\" b\\\\\" ,\r\n\"\\u0020\" , { } ] ", `devl[{"a":1,"b":2,"c":0},[2],"x \u2028 y"]`, "devl-1", "\xa1\x61a\x01", "encrsecret",
		"\x00", "zstd", strings.Repeat(" ", 10) + "1", `"` + strings.Repeat("é", read.MaxListedPayload) + `"`,
	}
	times := []time.Time{at, {}, time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMilli(1)}
	correlations := []string{"", "step_1", "a\nb", "\x7f", "é", "\xff"}
	for _, at := range times {
		want := at.UTC().Format(`"2006-01-02T15:04:05.000Z"`)
		if got, err := (Time{at}).MarshalJSON(); err != nil || string(got) != want {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	}
	var encoder Encoder
	n := 0
	for _, typ := range append(entities.EventTypes, "odd\"type") {
		for i := range data {
			for _, payload := range payloads {
				n++
				row := read.Row{
					RunID: "wrun_1", Seq: int64(n), Type: typ, CorrelationID: correlations[n%len(correlations)],
					CreatedAt: times[n%len(times)], Data: &data[i], Payload: []byte(payload),
				}
				listed, _ := Listed(&read.Entry{Row: row, Size: int64(len(payload))})
				for _, e := range []Event{Plain(&row), listed} {
					checkEncoding(t, &encoder, &e)
				}
			}
		}
	}
	for range 2 * maxKnown { // more different data than an encoder remembers
		checkEncoding(t, &encoder, &Event{Data: &entities.EventData{Seen: int64(n)}})
		n++
	}
}

func checkEncoding(t *testing.T, encoder *Encoder, e *Event) {
	t.Helper()
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		t.Fatal(err)
	}
	got, err := encoder.Append([]byte("before"), e)
	if err != nil || string(got) != "before"+strings.TrimSuffix(want.String(), "\n") {
		t.Fatalf("event %d: got  %.300s, error %v\nwant %.300s", e.Seq, got, err, want.Bytes())
	}
}
