package remote

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// TestFieldsAreThoseOfTheHook: the schema of the form is asked for by the hook, however many approvals of the run are open.
func TestFieldsAreThoseOfTheHook(t *testing.T) {
	t.Parallel()
	var voted []byte
	s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.Method == http.MethodPost:
			voted, _ = io.ReadAll(r.Body)
			_, _ = w.Write([]byte(`{"runId":"r","hookId":"h","seq":1,"eventId":"e"}`))
		case q.Get("runId") == "r" && q.Get("hookId") == "h":
			_, _ = w.Write([]byte(`{"data":[{"hookId":"h","form":{"properties":{"order":{"type":"string"}}}}]}`))
		default: // the first page has others
			_, _ = w.Write([]byte(`{"data":[{"hookId":"other","form":{}}],"cursor":"2"}`))
		}
	})
	c := approveCmd{ballot: ballot{RunID: "r", ID: "h"}, Field: map[string]string{"order": "7"}}
	if err := c.Run(t.Context(), s); err != nil || string(voted) != `{"payload":{"decision":"approve","form":{"order":"7"}}}` {
		t.Errorf("voted %s, %v", voted, err)
	}
}

// TestFieldsOfForms: a field is the text that was typed where the schema wants texts, and elsewhere JSON if it can be.
func TestFieldsOfForms(t *testing.T) {
	t.Parallel()
	var f formSchema
	schema := `{"properties":{"order":{"type":"string"},"limit":{"type":"number"},"either":{"type":["string","null"]}}}`
	if err := json.Unmarshal([]byte(schema), &f); err != nil {
		t.Fatal(err)
	}
	got, err := f.fill(map[string]string{
		"order": "7", "limit": "9007199254740993.50", "either": "null", "note": "call me", "list": "[1]", "empty": "",
	})
	want := `{"either":null,"empty":"","limit":9007199254740993.50,"list":[1],"note":"call me","order":"7"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
