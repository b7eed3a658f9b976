package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// largePayload passes 20 MB from one step to the next, and checks that they are stored and returned unchanged.
func largePayload(t *testing.T, s *server, a *app) {
	const size = 20_000_000
	id := a.run(t, "big", size, "string")
	text := payloadText(size)
	sum := sha256.Sum256(text)
	a.want(t, id, map[string]any{"length": size, "sha256": hex.EncodeToString(sum[:])})

	l := s.wantLog(t, id, sequence("run_created", "run_started", step("makePayload"), step("measure"),
		"run_completed")...)
	stored := plain(t, l.of("step_completed")[0])
	if want := append(append([]byte(`devl["`), text...), `"]`...); !bytes.Equal(stored, want) {
		t.Errorf("the result of the first step has %d bytes and differs from the %d bytes of the app", len(stored), len(want))
	}
	if input := plain(t, l.of("step_created")[1]); !bytes.Contains(input, text) {
		t.Errorf("the input of the second step (%d bytes) does not contain the result of the first", len(input))
	}
}

// payloadText returns the same text as the app's makePayload.
func payloadText(size int) []byte {
	const alphabet = "abcdefghijklmnopqrstuvwxyz012345"
	text := make([]byte, size)
	x := uint32(1)
	for i := range text {
		x = x*1664525 + 1013904223
		text[i] = alphabet[x>>24&31]
	}
	return text
}
