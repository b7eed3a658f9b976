package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/remote"
)

// TestSigningKeysAreRotated creates ten keys in a project that can have two.
func TestSigningKeysAreRotated(t *testing.T) {
	t.Parallel()
	type key struct {
		ID, Secret string
		CreatedAt  time.Time
	}
	var keys []key // the newest first
	made := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/signing-keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"data": keys})
	})
	mux.HandleFunc("POST /v1/signing-keys", func(w http.ResponseWriter, _ *http.Request) {
		if len(keys) == 2 {
			w.WriteHeader(http.StatusConflict)
			return
		}
		made++
		k := key{fmt.Sprint("skey_", made), fmt.Sprint("swsk_", made), time.Unix(int64(made), 0)}
		keys = slices.Insert(keys, 0, k)
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(k)
	})
	mux.HandleFunc("DELETE /v1/signing-keys/{id}", func(w http.ResponseWriter, r *http.Request) {
		keys = slices.DeleteFunc(keys, func(k key) bool { return k.ID == r.PathValue("id") })
		w.WriteHeader(http.StatusNoContent)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for n := 1; n <= 10; n++ {
		c := newCommandLine(t, remote.Console{})
		err := c.execute(t.Context(), "signing-keys", "create", "--rotate", "--url", server.URL)
		if got := strings.TrimSpace(c.stdout.String()); err != nil || got != fmt.Sprint("swsk_", n) || keys[0].Secret != got {
			t.Fatalf("time %d printed %q, %v; the keys are %v", n, got, err, keys)
		}
	}
}
