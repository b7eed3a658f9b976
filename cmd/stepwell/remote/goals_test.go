package remote

import (
	"strings"
	"testing"
)

// TestValuesOfGoals refuses values that are none, and names the flag.
func TestValuesOfGoals(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]goalFlags{
		"--have order has no value": {Have: map[string]string{"order": ""}},
		"--have order is not JSON":  {Have: map[string]string{"order": "{"}},
		"--have-all rate is not":    {HaveAll: map[string]string{"rate": "{"}},
	} {
		if err := f.addValues(&Session{}, jsonBody{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
