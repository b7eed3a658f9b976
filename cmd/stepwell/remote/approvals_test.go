package remote

import (
	"encoding/json"
	"testing"
)

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
