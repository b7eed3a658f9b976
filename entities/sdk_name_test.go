package entities

import (
	"encoding/json"
	"os"
	"testing"
)

// TestTitle has all forms of the Workflow SDK's names, and names that are none of it.
func TestTitle(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/titles.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []struct{ Name, Title string }
	if err := json.Unmarshal(data, &examples); err != nil || len(examples) == 0 {
		t.Fatalf("%d examples: %v", len(examples), err)
	}
	for _, e := range examples {
		if got := Title(e.Name); got != e.Title {
			t.Errorf("%q: got %q, want %q", e.Name, got, e.Title)
		}
	}
}

func TestIsSDKID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"step_01JD5A8R8D0000000000000000": true, "hook_01JD5A8R8D0000000000000000": true,
		"wait_01JD5A8R8D0000000000000000": true, "wrun_01JD5A8R8D0000000000000000": false,
		"step_1": false, "charge": false, "hook_01jd5a8r8d0000000000000000": false, "": false,
		"step_01JD5A8R8D00000000000000000": false, "step_01JD5A8R8D000000000000000U": false,
	} {
		if IsSDKID(id) != want {
			t.Errorf("%q: want %t", id, want)
		}
	}
}
