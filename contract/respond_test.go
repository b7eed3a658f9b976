package contract

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

var shop = Planner{
	Run: entities.Run{ID: "wrun_1", DeploymentID: "shop"}, Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
}

func plan(command string) (Plan, error) { return shop.Plan([]byte(`{"commands":[` + command + `]}`)) }

func TestRespondWritesAStream(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]Response{
		``: {200, map[string]string{}, nil},
		`,"body":{"ok": true}`: {
			200, map[string]string{"Content-Type": "application/json"}, []byte(`{"ok": true}`),
		},
		`,"body":null`: {200, map[string]string{"Content-Type": "application/json"}, []byte(`null`)},
		`,"status":201,"text":"hello"`: {
			201, map[string]string{"Content-Type": "text/plain; charset=utf-8"}, []byte("hello"),
		},
		`,"bodyBase64":"AP8="`: {
			200, map[string]string{"Content-Type": "application/octet-stream"}, []byte{0, 255},
		},
		`,"text":"<p>","headers":{"content-type":"text/html","x-a":"b, c"}`: {
			200, map[string]string{"Content-Type": "text/html", "X-A": "b, c"}, []byte("<p>"),
		},
		`,"status":303,"headers":{"Location":"https://example.com/"}`: {
			303, map[string]string{"Location": "https://example.com/"}, nil,
		},
		`,"status":204`: {204, map[string]string{}, nil},
	} {
		p, err := plan(`{"type":"respond","hook":"h","request":"hreq_1"` + rest + `}`)
		if err != nil || len(p.Requests) != 0 || len(p.Responses) != 1 {
			t.Errorf("%s: got %+v, %v", rest, p, err)
			continue
		}
		if got := p.Responses[0].Name; got != "webhook wrun_1 h hreq_1" {
			t.Errorf("%s: the stream is %q", rest, got)
		}
		var got Response
		if err := json.Unmarshal(p.Responses[0].Data, &got); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", rest, diff)
		}
	}
}

func TestRespondRejectsInvalidResponses(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{
		`,"status":199`, `,"status":600`, `,"status":101`, `,"body":1,"text":"1"`, `,"bodyBase64":"#"`,
		`,"status":204,"text":"x"`, `,"status":304,"body":1`, `,"headers":{"Set-Cookie":"a=b"}`,
		`,"headers":{"set-cookie":"a=b"}`, `,"headers":{"Content-Length":"1"}`, `,"headers":{"Transfer-Encoding":"x"}`,
		`,"headers":{"NEL":"{}"}`, `,"headers":{"report-to":"{}"}`, `,"headers":{"X-Accel-Redirect":"/internal"}`,
		`,"headers":{"x-sendfile":"/etc/passwd"}`, `,"headers":{"Service-Worker-Allowed":"/"}`,
		`,"headers":{"":"x"}`, `,"headers":{"a b":"x"}`, `,"headers":{"a":"x\r\nb: c"}`, `,"headers":{"a":"é"}`,
		`,"headers":{"a:b":"x"}`, `,"headers":{"a":1}`, `,"more":1`, `,"hook":""`, `,"request":"a b"`,
	} {
		p, err := plan(`{"type":"closeHook","id":"x"},{"type":"respond","hook":"h","request":"r"` + rest + `}`)
		if !errors.Is(err, entities.ErrInvalid) || !strings.HasPrefix(err.Error(), "command 1: respond: ") ||
			p.Requests != nil || p.Responses != nil {
			t.Errorf("%s: got %+v, %v", rest, p, err)
		}
	}
}

func TestOpenHookValidatesWebhooks(t *testing.T) {
	t.Parallel()
	p, err := plan(`{"type":"openHook","id":"h","webhook":{"verify":"github","secret":"gh","respond":"10s"}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := &entities.WebhookSpec{Verify: "github", Secret: "gh", RespondMS: 10_000}
	if diff := cmp.Diff(want, p.Requests[0].Data.Webhook); diff != "" || !*p.Requests[0].Data.IsWebhook {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	for _, spec := range []string{
		`{"verify":"hmac","secret":"s"}`, `{"verify":"github"}`, `{"secret":"s"}`, `{"respond":"61s"}`, `{"respond":10}`,
	} {
		if _, err := plan(`{"type":"openHook","id":"h","webhook":` + spec + `}`); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("%s: got %v", spec, err)
		}
	}
}
