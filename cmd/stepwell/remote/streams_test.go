package remote

import (
	"net/http"
	"testing"
)

// TestTailDecodes: texts of the Workflow SDK are printed as texts, its other values as lines, and bytes on demand as they
// were written.
func TestTailDecodes(t *testing.T) {
	t.Parallel()
	const decoded = `{"index":0,"value":"Once ","encoding":"devalue"},{"index":1,"value":{"a":1},"encoding":"devalue"},
		{"index":2,"value":null,"encoding":"devalue"},{"index":3,"text":"encr","encoding":"encrypted"},{"index":4,"text":"end"},{"index":5,"base64":"/w=="}`
	const raw = `{"index":0,"text":"devl[1]"}`
	for name, test := range map[string]struct {
		cmd  tailStreamCmd
		want string
	}{
		"by default": {tailStreamCmd{}, "Once \n{\"a\":1}\nnull\n(encrypted)\nend\xff"},
		"raw":        {tailStreamCmd{Raw: true}, "devl[1]"},
		"followed":   {tailStreamCmd{Follow: true}, "a"},
	} {
		s, out, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
			answer := `{"closed":true,"data":[` + raw + `]}`
			switch {
			case r.URL.Path == "/v1/runs/r/streams/s/tail" && r.URL.Query().Get("decoded") == "true":
				w.Header().Set("Content-Type", "text/event-stream")
				answer = "id: 0\ndata: {\"index\":0,\"value\":\"a\",\"encoding\":\"devalue\"}\n\n" + end
			case r.URL.Query().Get("decoded") == "true":
				answer = `{"closed":true,"data":[` + decoded + `]}`
			}
			_, _ = w.Write([]byte(answer))
		})
		test.cmd.RunID, test.cmd.Name = "r", "s"
		if err := test.cmd.Run(t.Context(), s); err != nil || out.String() != test.want {
			t.Errorf("%s: got %q, %v, want %q", name, out, err, test.want)
		}
	}
}
