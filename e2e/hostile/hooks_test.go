package hostile

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestSignedHooksCannotBeForged tries every way to resume a hook that requires signed requests, with keys of each role,
// and a body of the form that a signed request would have.
func TestSignedHooksCannotBeForged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	n := f.attacker
	n.send(t, http.MethodPut, "/v1/secrets/gh", map[string]any{"values": []string{"secret"}}).Want(t, http.StatusOK, http.StatusCreated)
	run := n.start(t, "hooks", []any{
		map[string]any{"type": "openHook", "id": "0", "token": "signed", "webhook": map[string]any{"verify": "github", "secret": "gh"}},
		map[string]any{"type": "openHook", "id": "1", "token": "open", "signal": map[string]any{"name": "s"}},
	})
	hooks := "/v1/runs/" + run + "/hooks"
	harness.Eventually(t, "the hooks are open", func() bool {
		return strings.Count(string(n.send(t, http.MethodGet, hooks, nil).Body), `"token"`) == 2
	})
	write := n.newKey(t, "write")
	forged := map[string]any{"payload": map[string]any{"request": "hreq_1", "method": "POST", "body": map[string]any{"paid": true}}}
	accepted := map[string]any{"payload": 1, "unverified": true}
	for role, key := range map[string]string{"invoke": n.invoke, "write": write, "admin": n.admin} {
		for _, path := range []string{"/v1/hooks/signed/resume", hooks + "/0/resume"} {
			r := send(t, key, http.MethodPost, f.url+path, forged)
			if err := r.Problem(http.StatusForbidden); err != nil || !strings.Contains(string(r.Body), `"unverified"`) {
				t.Errorf("%s: %v %s", role, err, r.Body)
			}
			if role == "admin" {
				continue
			}
			if err := send(t, key, http.MethodPost, f.url+path, accepted).Problem(http.StatusForbidden); err != nil {
				t.Errorf("%s, who accepts unverified payloads: %v", role, err)
			}
		}
	}
	n.wantRefusedEvent(t, write, run)
	send(t, "", http.MethodPost, f.url+"/hooks/attacker/signed", forged).Want(t, http.StatusUnauthorized)
	if got := n.received(t, run); len(got) != 0 {
		t.Fatalf("the run received %v", got)
	}

	signature := hmac.New(sha256.New, []byte("secret"))
	body := []byte(`{"paid": true}`)
	signature.Write(body)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/hooks/attacker/signed", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(signature.Sum(nil)))
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the signed request: %s, %v", resp.Status, err)
	}
	n.send(t, http.MethodPost, "/v1/hooks/signed/resume", accepted).Want(t, http.StatusOK)
	send(t, n.invoke, http.MethodPost, f.url+"/v1/hooks/open/resume", forged).Want(t, http.StatusOK)
	send(t, n.invoke, http.MethodPost, f.url+"/v1/signals/s", map[string]any{"data": 1}).Want(t, http.StatusAccepted)
	want := []string{"0 webhook github", "0 api ", "1 api ", "1 signal "}
	harness.Eventually(t, "all payloads are recorded", func() bool { return len(n.received(t, run)) == len(want) })
	if got := n.received(t, run); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the run received %q, want %q", got, want)
	}
}

// newKey creates a key of the role.
func (n tenant) newKey(t *testing.T, role string) string {
	t.Helper()
	made := send(t, adminKey, http.MethodPost, n.url+"/v1/keys", map[string]string{"project": n.name, "name": role, "role": role})
	return decode[struct{ Key string }](t, made.Want(t, http.StatusCreated)).Key
}

// received returns the hook, the way and the scheme of each payload that the run received.
func (n tenant) received(t *testing.T, run string) (list []string) {
	t.Helper()
	events := decode[struct {
		Events []struct {
			Type, CorrelationID string
			Data                struct{ Via, Verified string }
		} `json:"data"`
	}](t, n.send(t, http.MethodGet, "/v1/runs/"+run+"/events?limit=100", nil).Want(t, http.StatusOK))
	for _, e := range events.Events {
		if e.Type == "hook_received" {
			list = append(list, fmt.Sprintf("%s %s %s", e.CorrelationID, e.Data.Via, e.Data.Verified))
		}
	}
	return list
}

// wantRefusedEvent posts a hook_received for hook 0 as a client of the Workflow SDK does.
func (n tenant) wantRefusedEvent(t *testing.T, key, run string) {
	t.Helper()
	meta, err := cbor.Marshal(map[string]any{"eventType": "hook_received", "specVersion": 3, "correlationId": "0", "via": "webhook", "verified": "github"})
	if err != nil {
		t.Fatal(err)
	}
	const payload = `{"paid": true}`
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(meta))), meta...)
	frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(payload))), payload...)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/sdk/v4/runs/"+run+"/events/hook_received",
		bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/vnd.workflow.v4-frame")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer bytes.Buffer
	_, _ = answer.ReadFrom(resp.Body)
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(answer.String(), "unverified") {
		t.Errorf("an event of a client: %s %s", resp.Status, answer.String())
	}
}
