package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/jackc/pgx/v5"
)

// apiKey is the admin key of the server in the image.
const apiKey = "an-admin-key-of-the-image-test"

// tryImage has the server of the image drive a run, in the file system and as the user of the image, beside a Postgres
// and with the function in this test.
func tryImage(t *testing.T, r release) {
	images := imagesIn(t, r.file("_image.oci.tar"))
	if images["arm64"] == nil {
		t.Fatal("there is no image for arm64")
	}
	c := unpack(t, images["amd64"])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // the server takes its port
	c.env = append(c.env, "DATABASE_URL="+database(t), "STEPWELL_API_KEY="+apiKey, "STEPWELL_LISTEN="+address,
		"STEPWELL_ALLOW_ADDRESSES=loopback")
	server := c.command(c.config.Entrypoint[0], c.config.Cmd...)
	var logged bytes.Buffer
	server.Stderr = &logged
	if err := server.Start(); err != nil {
		t.Fatalf("%v (only root may change the root folder)", err)
	}
	t.Cleanup(func() { _ = server.Process.Kill() })
	health := c.config.Healthcheck.Test
	for deadline := time.Now().Add(2 * time.Minute); c.command(health[1], health[2:]...).Run() != nil; {
		if time.Now().After(deadline) {
			t.Fatalf("the server is not ready:\n%s", &logged)
		}
		time.Sleep(200 * time.Millisecond)
	}
	function := httptest.NewServer(http.HandlerFunc(greet))
	t.Cleanup(function.Close)
	wantGreeting(t, "http://"+address, function.URL)
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if !strings.Contains(logged.String(), r.version) {
		t.Errorf("the log does not say %s:\n%s", r.version, &logged)
	}
}

// imagesIn returns the images of an OCI layout in a tar file, by processor.
func imagesIn(t *testing.T, file string) map[string]v1.Image {
	t.Helper()
	folder := t.TempDir()
	want(t, "", folder, nil, "tar", "-xf", file)
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if index, err = index.ImageIndex(outer.Manifests[0].Digest); err != nil {
		t.Fatal(err)
	}
	inner, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, m := range inner.Manifests {
		if images[m.Platform.Architecture], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return images
}

// container is an image whose files are in a folder.
type container struct {
	root   string
	config v1.Config
	env    []string
}

// unpack unpacks an image, which must be small, and have little in it.
func unpack(t *testing.T, image v1.Image) *container {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := &container{t.TempDir(), config.Config, config.Config.Env}
	// The folder of the test is root's own.
	for folder := c.root; folder != os.TempDir() && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	extracted := mutate.Extract(image)
	defer func() { _ = extracted.Close() }()
	size := 0
	var names []string
	for archive := tar.NewReader(extracted); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if _, err := io.Copy(&text, archive); err != nil {
			t.Fatal(err)
		}
		if err := writeAll(c.root, map[string]string{header.Name: text.String()}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(c.root, header.Name), header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
		size += text.Len()
		names = append(names, header.Name)
	}
	if slices.Sort(names); size > 60<<20 || !slices.Equal(names, []string{
		certificates, "licenses/LICENSE", "licenses/THIRD_PARTY_LICENSES", "stepwell",
	}) {
		t.Errorf("the image has %d bytes in %q", size, names)
	}
	return c
}

// command is a program in the container, whose user may write nothing.
func (c *container) command(program string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: program, Args: append([]string{program}, args...), Dir: "/", Env: c.env,
		SysProcAttr: &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}},
	}
}

// database creates one on the server at TEST_DATABASE_URL, and returns its address.
func database(t *testing.T) string {
	t.Helper()
	address, err := url.Parse(os.Getenv("TEST_DATABASE_URL"))
	if err != nil || address.Host == "" {
		t.Fatalf("TEST_DATABASE_URL is no address of a Postgres (%v): make release-test starts one", err)
	}
	name := "stepwell_release_" + strings.ToLower(rand.Text()[:8])
	execute := func(ctx context.Context, sql string) {
		conn, err := pgx.Connect(ctx, address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	execute(t.Context(), "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
	own := *address
	own.Path = "/" + name
	return own.String()
}

// greet is a workflow of one step over plain HTTP.
func greet(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type   string
		Events []struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	happened := func(event string) bool {
		return slices.ContainsFunc(call.Events, func(e struct{ Type string }) bool { return e.Type == event })
	}
	answer := `{"commands": []}`
	switch {
	case call.Type == "step":
		answer = `"hello"`
	case !happened("step_created"):
		answer = `{"commands": [{"type": "runStep", "id": "greeting"}]}`
	case happened("step_completed"):
		answer = `{"commands": [{"type": "complete", "output": "hello"}]}`
	}
	_, _ = io.WriteString(w, answer)
}

// wantGreeting has the server run the workflow of [greet] at functionURL, and checks its output.
func wantGreeting(t *testing.T, serverURL, functionURL string) {
	t.Helper()
	request(t, http.MethodPut, serverURL+"/v1/deployments/greeter", `{"url": "`+functionURL+`"}`)
	run := request(t, http.MethodPost, serverURL+"/v1/runs", `{"workflow": "greet", "deployment": "greeter"}`)
	run = request(t, http.MethodGet, serverURL+"/v1/runs/"+run.ID+"/wait?timeout=60s", "")
	if run.Status != "completed" || run.Output != "hello" {
		t.Errorf("the run is %s with output %q, want completed with hello", run.Status, run.Output)
	}
}

// run is what the test reads of a response.
type run struct{ ID, Status, Output string }

// request makes a request to the API, which must succeed.
func request(t *testing.T, method, url, body string) run {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: got %s, %s (%v)", method, url, resp.Status, answer, err)
	}
	var decoded run
	if err := json.Unmarshal(answer, &decoded); err != nil {
		t.Fatalf("%s %s: %s: %v", method, url, answer, err)
	}
	return decoded
}
