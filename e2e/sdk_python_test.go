package e2e

import (
	"net/http"
	"os/exec"
	"testing"
)

// TestPythonSDKDoesAllOnAServer runs what the Python SDK has on a server: sdk/python/tests/live.py, whose calls are signed.
func TestPythonSDKDoesAllOnAServer(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	r := request(t, http.MethodPost, s.url()+"/v1/signing-keys", nil).want(t, http.StatusCreated)
	key := decode[struct{ Secret string }](t, r)
	cmd := exec.CommandContext(t.Context(), "python3", "../sdk/python/tests/live.py")
	cmd.Env = cleanEnv("STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+apiKey, "STEPWELL_SIGNING_KEYS="+key.Secret)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
	s.verify(t)
}
