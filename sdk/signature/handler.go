package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// DefaultMaxBody is how many bytes a call may have where nothing else is said.
const DefaultMaxBody = 64 << 20

// Handler lets calls through that were signed with one of its keys, and answers others with 401 and a reason.
type Handler struct {
	// Next gets the calls, with their bodies to read again.
	Next http.Handler
	// Keys are the project's: one, or two while one is being replaced. Without any, all calls are refused.
	Keys []Key
	// Now is the clock, [time.Now].
	Now func() time.Time
	// MaxBody is how many bytes a call may have; 0 for [DefaultMaxBody]. Larger ones are answered with 413.
	MaxBody int64
}

// ServeHTTP implements [http.Handler].
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit := h.MaxBody
	if limit == 0 {
		limit = DefaultMaxBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", err)
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "malformed", err)
		return
	}
	if err := Verify(r, body, h.Now(), h.Keys...); err != nil {
		refuse(w, http.StatusUnauthorized, "wrong_signature", err)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.Next.ServeHTTP(w, r)
}

// refuse answers with an error that is worth another try: a wrong key is no reason for a step to fail for good.
func refuse(w http.ResponseWriter, status int, code string, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // who has gone needs no answer
		"error": map[string]any{"message": err.Error(), "code": code, "retryable": true},
	})
}
