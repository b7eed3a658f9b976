package e2e

import (
	"net/http"
	"os/exec"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// pythonSDK is a program of the Python SDK's tests on a server whose calls are signed.
func pythonSDK(t *testing.T, s *server, program string) *exec.Cmd {
	t.Helper()
	r := request(t, http.MethodPost, s.url()+"/v1/signing-keys", nil).want(t, http.StatusCreated)
	secret := decode[struct{ Secret string }](t, r).Secret
	cmd := exec.Command("python3", "../sdk/python/tests/"+program)
	cmd.Env = cleanEnv("STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+apiKey, "STEPWELL_SIGNING_KEYS="+secret)
	return cmd
}

// TestPythonSDKDoesAllOnAServer runs what the Python SDK has on a server.
func TestPythonSDKDoesAllOnAServer(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	out, err := pythonSDK(t, s, "live.py").CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
	s.verify(t)
}

// TestPythonSDKConforms checks the Python SDK by stepwell conform.
func TestPythonSDKConforms(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	_, port := startProcess(t, "Python", pythonSDK(t, s, "conforming.py"), harness.AppReady)
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "conform", "http://127.0.0.1:"+port)
	cmd.Env = cleanEnv("STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+apiKey)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
