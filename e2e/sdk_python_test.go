package e2e

import (
	"encoding/hex"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// pythonSDK is a program of the Python SDK's tests on a server whose calls are signed.
func pythonSDK(t *testing.T, s *server, program ...string) *exec.Cmd {
	t.Helper()
	r := request(t, http.MethodPost, s.url()+"/v1/signing-keys", nil).Want(t, http.StatusCreated)
	secret := decode[struct{ Secret string }](t, r).Secret
	cmd := exec.Command("python3", program...)
	cmd.Dir = "../sdk/python/tests"
	cmd.Env = cleanEnv("STEPWELL_URL="+s.url(), "STEPWELL_API_KEY="+apiKey, "STEPWELL_SIGNING_KEYS="+secret)
	return cmd
}

// TestPythonSDKDoesAllOnAServer runs what the Python SDK has on a server that calls it, and as a worker.
func TestPythonSDKDoesAllOnAServer(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	for name, program := range map[string][]string{
		"called": {"live.py"}, "worker": {"live.py", "pull"}, "encoded": {"live.py", "encoded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			out, err := pythonSDK(t, s, program...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			t.Logf("%s", out)
			s.verify(t)
			if name == "encoded" {
				s.hidesPayloads(t)
			}
		})
	}
}

// hidesPayloads fails the test if the tables have texts of the payloads of live.py.
func (s *server) hidesPayloads(t *testing.T) {
	t.Helper()
	dump, err := harness.Rows(t.Context(), s.dsn, "stepwell")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"by name", "cleaned up", "it is negative", "round 3", `"busy"`, `"paid"`, "not yet"} {
		if strings.Contains(dump, text) || strings.Contains(dump, hex.EncodeToString([]byte(text))) {
			t.Errorf("the tables have %q", text)
		}
	}
	if n := strings.Count(dump, hex.EncodeToString([]byte("$codec"))); n < 500 {
		t.Errorf("only %d payloads are encoded", n)
	}
}

// TestPythonWorkerIsReplaced kills a worker while it executes a step. Another one takes over its calls.
func TestPythonWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	s := newServer(t)
	work := func() *process {
		cmd := pythonSDK(t, s, "../../../examples/sdk-python/order.py", "work")
		p, _ := startProcess(t, "worker", cmd, regexp.MustCompile(`(?m)^working (\d+)$`))
		return p
	}
	first := work()
	eventually(t, "the worker is registered", func() bool {
		return request(t, http.MethodGet, s.url()+"/v1/deployments/orders", nil).Status == http.StatusOK
	})
	order := teapot("killed")
	order["seconds"] = 2
	id := (&function{deployment: "orders"}).order(t, s, order)
	eventually(t, "the step is running", func() bool { return strings.Contains(first.Output(), "step reserve attempt 1") })
	first.Kill()
	work()
	s.decide(t, "killed", true)
	s.wantOutput(t, id, shipped(id))
	s.wantOnce(t, id)
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
