package entities

import (
	"encoding/json"
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"
)

func TestEventIDIsPositionAs26Digits(t *testing.T) {
	t.Parallel()
	tests := map[int64]EventID{
		1:             "evnt_00000000000000000000000001",
		42:            "evnt_00000000000000000000000042",
		math.MaxInt64: "evnt_00000009223372036854775807",
	}
	for seq, want := range tests {
		if got := (Event{Seq: seq}).ID(); got != want {
			t.Errorf("ID at %d = %q, want %q", seq, got, want)
		}
	}
}

func TestEventIDsRoundTripAndSortByPosition(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^evnt_[0-9]{26}$`)
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(1, math.MaxInt64).Draw(t, "a")
		b := rapid.Int64Range(1, math.MaxInt64).Draw(t, "b")
		id := eventIDAt(a)
		if !shape.MatchString(string(id)) {
			t.Fatalf("ID %q has the wrong shape", id)
		}
		if _, err := ulid.ParseStrict(string(id[len(eventIDPrefix):])); err != nil {
			t.Fatalf("ID %q is not a ULID, as which clients parse it: %v", id, err)
		}
		got, err := id.Seq()
		if err != nil || got != a {
			t.Fatalf("Seq of %q = %d, %v; want %d", id, got, err, a)
		}
		if (id < eventIDAt(b)) != (a < b) {
			t.Fatalf("IDs of %d and %d do not sort by position", a, b)
		}
	})
}

func TestMalformedEventIDIsInvalid(t *testing.T) {
	t.Parallel()
	tests := map[string]EventID{
		"empty":             "",
		"prefix only":       "evnt_",
		"no prefix":         "00000000000000000000000001",
		"another prefix":    "wevt_00000000000000000000000001",
		"position 0":        eventIDAt(0),
		"negative":          eventIDAt(-1),
		"25 digits":         "evnt_0000000000000000000000001",
		"27 digits":         "evnt_000000000000000000000000001",
		"a plus sign":       "evnt_+0000000000000000000000001",
		"underscores":       "evnt_0000000000000000000000_001",
		"letters":           "evnt_0000000000000000000000000A",
		"beyond 64 bits":    "evnt_00000009223372036854775808",
		"a real ULID":       "evnt_01JNQ2Y3Z4A5B6C7D8E9F0G1H2",
		"trailing space":    "evnt_00000000000000000000000001 ",
		"upper case prefix": "EVNT_00000000000000000000000001",
		"non-ASCII digit":   "evnt_0000000000000000000000000١",
	}
	for name, id := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seq, err := id.Seq()
			wantInvalid(t, err, false)
			if seq != 0 {
				t.Errorf("got position %d and an error, want 0", seq)
			}
		})
	}
}

func TestEventIDSeqAcceptsOnlyCanonicalText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := EventID(rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`evnt_[0-9A-Z]{20,28}`),
		).Draw(t, "id"))
		if seq, err := id.Seq(); err == nil && eventIDAt(seq) != id {
			t.Fatalf("%q was parsed as position %d", id, seq)
		}
	})
}

func TestEventTypeKind(t *testing.T) {
	t.Parallel()
	kinds := map[string][]EventType{
		KindRun:  append([]EventType{"made_up", ""}, runEvents...),
		KindStep: stepEvents, KindHook: hookEvents, KindWait: waitEvents,
	}
	for want, events := range kinds {
		for _, event := range events {
			if got := event.Kind(); got != want {
				t.Errorf("Kind of %q = %s, want %s", event, got, want)
			}
		}
	}
}

func TestEventDataRoundTripsAsJSON(t *testing.T) {
	t.Parallel()
	at := day.Add(7 * time.Millisecond)
	tests := map[string]struct {
		data EventData
		want string
	}{
		"empty fields are left out": {EventData{}, `{}`},
		"times keep their milliseconds": {
			EventData{ResumeAt: &at, RetryAfter: &at},
			`{"resumeAt":"2026-03-01T12:00:00.007Z","retryAfter":"2026-03-01T12:00:00.007Z"}`,
		},
		"false and zero are kept if the client sent them": {
			EventData{IsWebhook: ptr(false), Attempt: ptr(0)},
			`{"attempt":0,"isWebhook":false}`,
		},
		"a removed attribute is null": {
			EventData{Changes: []AttributeChange{{Key: "a"}, {Key: "b", Value: ptr("")}}},
			`{"changes":[{"key":"a","value":null},{"key":"b","value":""}]}`,
		},
		"texts": {
			EventData{
				DeploymentID: "dpl", WorkflowName: "w", StepName: "s", Token: "t", ConflictingRunID: "wrun_1", ErrorCode: "E",
			},
			`{"deploymentId":"dpl","workflowName":"w","stepName":"s","token":"t","conflictingRunId":"wrun_1","errorCode":"E"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(test.data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("JSON differs (-want +got):\n%s", diff)
			}
			var back EventData
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.data, back); diff != "" {
				t.Errorf("decoded data differs (-want +got):\n%s", diff)
			}
		})
	}
}
