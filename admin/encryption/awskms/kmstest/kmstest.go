// Package kmstest provides tests with a key service: local-kms, which has the API of AWS KMS and encrypts by keys of
// its own, behind a check of signatures by AWS's own code. It is not AWS: it refuses nobody else. It is built from the
// module in testdata/server and stays in Go's build cache.
//
// Only tests may import it.
package kmstest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/stepwell-dev/stepwell/internal/gotool"
)

// The region and the credentials of the service; requests that Nobody signs are denied.
const (
	Region          = "eu-west-2"
	AccessKeyID     = "stepwelltestaccess"
	SecretAccessKey = "stepwelltestsecret/not+real"
	Nobody          = "nobody"
)

// Service is a running service.
type Service struct {
	// Endpoint is its URL.
	Endpoint string

	stop func()
}

// program builds the service and returns its path.
var program = gotool.Program("github.com/stepwell-dev/stepwell/admin/encryption/awskms/kmstest", "server")

// New starts a service without keys, and stops it at the end of the test. With -short it skips the test, because
// building the service takes long the first time.
func New(t testing.TB) *Service {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a key service")
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, t.TempDir()) //nolint:gosec // built above; Stop ends it
	cmd.Env = append(os.Environ(), "ACCESS_KEY_ID="+AccessKeyID, "SECRET_ACCESS_KEY="+SecretAccessKey)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Service{stop: sync.OnceFunc(func() {
		_ = in.Close() // ends it
		_ = cmd.Wait()
	})}
	t.Cleanup(s.Stop)
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the key service does not start")
	}
	s.Endpoint = lines.Text()
	return s
}

// Stop stops the service for good.
func (s *Service) Stop() { s.stop() }

// NewKey makes a key and returns its ARN.
func (s *Service) NewKey(t testing.TB) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Endpoint+"/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", "TrentService.CreateKey")
	r.Header.Set("X-Amz-Content-Sha256", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a") // of {}
	resp, err := http.DefaultClient.Do(signer.SignV4WithServiceType(*r, AccessKeyID, SecretAccessKey, "", Region, "kms"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var made struct{ KeyMetadata struct{ Arn string } }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || made.KeyMetadata.Arn == "" {
		t.Fatalf("make a key: %s, %v", resp.Status, err)
	}
	return made.KeyMetadata.Arn
}
