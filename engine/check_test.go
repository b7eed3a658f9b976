package engine

import "testing"

// TestAnswersToChecks: only what says how many events it has replayed has done so.
func TestAnswersToChecks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		want   Verdict
		code   string
	}{
		"all":                    {200, `{"replayed": 7}`, Replays, ""},
		"fewer":                  {200, `{"replayed": 6}`, Unchecked, ""},
		"an invocation's answer": {200, `{"commands": []}`, Unchecked, ""},
		"nothing":                {204, ``, Unchecked, ""},
		"diverges":               {500, `{"error": {"message": "m", "code": "diverged"}}`, Diverges, "diverged"},
		"blocks":                 {500, `{"error": {"message": "m", "code": "unknown_workflow"}}`, Blocks, "unknown_workflow"},
		"an error of a proxy":    {500, `oops`, Unchecked, ""},
		"an older process":       {400, `{"error": {"message": "unknown type of call"}}`, Unchecked, ""},
		"a wrong signature":      {401, `{"error": {"message": "m", "code": "wrong_signature"}}`, Unchecked, "wrong_signature"},
		"a process that stops":   {503, `{"error": {"message": "m", "code": "shutdown"}}`, Unchecked, "shutdown"},
	} {
		got := answer{status: tt.status, body: []byte(tt.body)}.checked(7)
		if got.Verdict != tt.want || got.Code != tt.code || (got.Message == "") != (tt.want == Replays) {
			t.Errorf("%s: got %+v, want %s %s", name, got, tt.want, tt.code)
		}
	}
}
