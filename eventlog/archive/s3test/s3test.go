// Package s3test provides tests with a bucket on a real S3-compatible server, Versity's gateway on a temporary folder:
//
//	s := s3test.New(t)
//	archive.S3{Endpoint: s.Endpoint, AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey}
//
// The server is built from the module in testdata/server and stays in Go's build cache. A test can stop it, start it
// again, and break its connections in the middle of a request.
//
// Only tests may import it.
package s3test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/internal/gotool"
)

// Bucket is the name of the bucket, which exists and is empty.
const Bucket = "archive"

// The credentials of the server.
const (
	AccessKeyID     = "stepwelltestaccess"
	SecretAccessKey = "stepwelltestsecret/not+real"
)

const (
	startLimit = time.Minute
	retry      = 5 * time.Millisecond
)

// Server is a server with a bucket behind a proxy that can break connections. Its address stays the same when it
// restarts.
type Server struct {
	wire

	// Endpoint is the URL that clients use.
	Endpoint string

	dir      string // short, because it holds sockets
	listener net.Listener
	process  *exec.Cmd // nil while it is stopped
	stdin    io.Closer
	starts   int
}

// New starts a server and stops it at the end of the test. With -short it skips the test, because building the server
// takes a minute the first time.
func New(t testing.TB) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an S3-compatible server")
	}
	dir, err := os.MkdirTemp("", "s3test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{dir: dir}
	for _, name := range []string{"data/" + Bucket, "meta"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var l net.ListenConfig
	if s.listener, err = l.Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.Endpoint = "http://" + s.listener.Addr().String()
	s.Mend()
	var serving sync.WaitGroup
	serving.Go(func() { s.serve(s.listener) })
	t.Cleanup(func() {
		s.Stop()
		_ = s.listener.Close()
		s.Cut(0)
		serving.Wait()
	})
	s.Start(t)
	return s
}

// program builds the server and returns its path.
var program = gotool.Program("github.com/stepwell-dev/stepwell/eventlog/archive/s3test", "server")

// Start starts the server again with its data, and waits until it accepts connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	s.starts++
	socket := filepath.Join(s.dir, fmt.Sprint(s.starts))
	log, err := os.Create(socket + ".log") //nolint:gosec // in a folder of its own
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.process = exec.Command(path, socket, s.dir) //nolint:gosec // the program it has built; Stop ends it
	s.process.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKeyID, "ROOT_SECRET_KEY="+SecretAccessKey)
	s.process.Stdout, s.process.Stderr = log, log
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := awaitSocket(t.Context(), socket); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("the S3 server does not start: %v\n%s", err, said)
	}
	s.connect(socket)
}

// awaitSocket waits until the socket accepts connections.
func awaitSocket(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(retry)
	defer ticker.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Stop kills the server.
func (s *Server) Stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	_ = s.stdin.Close()
	_ = s.process.Wait()
	s.process = nil
}

// Objects returns the contents of the bucket by key, read from the server's disk.
func (s *Server) Objects(t testing.TB) map[string][]byte {
	t.Helper()
	return s.files(t, func(key string) bool { return !strings.HasPrefix(key, uploads) })
}

// Uploads returns the number of parts of incomplete uploads.
func (s *Server) Uploads(t testing.TB) int {
	t.Helper()
	return len(s.files(t, func(key string) bool { return strings.HasPrefix(key, uploads) }))
}

// uploads is the folder in which the gateway stores parts.
const uploads = ".sgwtmp/"

// files returns the files in the bucket's folder that are wanted.
func (s *Server) files(t testing.TB, wanted func(key string) bool) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := os.DirFS(filepath.Join(s.dir, "data", Bucket))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !wanted(name) {
			return err
		}
		files[name], err = fs.ReadFile(root, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
