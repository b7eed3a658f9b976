package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// DefaultMaxBody is the default limit for the size of a call in bytes.
const DefaultMaxBody = 64 << 20

// Handler passes calls that are signed with one of its keys to Next. It answers all others with 401 and the reason.
type Handler struct {
	// Next handles verified calls. It can read the body as usual.
	Next http.Handler
	// Keys are the project's signing keys: one, or two during a rotation. Without keys, every call is refused.
	Keys []Key
	// Now returns the current time, usually [time.Now].
	Now func() time.Time
	// MaxBody limits the size of a call in bytes; 0 means [DefaultMaxBody]. Larger calls are answered with 413.
	MaxBody int64
}

// ServeHTTP implements [http.Handler].
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit := h.MaxBody
	if limit == 0 {
		limit = DefaultMaxBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
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

// refuse answers with a retryable error, so that a misconfigured key does not fail a step permanently.
func refuse(w http.ResponseWriter, status int, code string, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the caller may have gone away
		"error": map[string]any{"message": err.Error(), "code": code, "retryable": true},
	})
}
