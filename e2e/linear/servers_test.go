package linear

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

const (
	apiKey  = "sk_linear_0123456789abcdef"
	timeout = 30 * time.Second
)

// cluster is two servers on a private Postgres.
type cluster struct {
	t       *testing.T
	options localpg.Options
	pg      *localpg.Server
	servers [2]*server

	mu          sync.Mutex
	disruptions []time.Time // times of kills and restarts
}

// newCluster starts Postgres and the servers.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	program, err := harness.ServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	// Commits are written before they are answered, as in production, but without fsync: only processes crash.
	c := &cluster{t: t, options: localpg.Options{
		Dir: filepath.Join(harness.OpenDir(t), "postgres"), Port: harness.FreePort(t), Relaxed: true,
	}}
	if c.startPostgres(); t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { _ = c.pg.Stop(context.Background()) })
	for i := range c.servers {
		c.servers[i] = &server{t: t, program: program, dsn: c.pg.DSN(), addr: freeAddress(t)}
		c.servers[i].start()
		t.Cleanup(c.servers[i].kill)
	}
	for _, s := range c.servers {
		s.await()
	}
	return c
}

func (c *cluster) startPostgres() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*timeout)
	defer cancel()
	pg, err := localpg.Start(ctx, c.options)
	if err != nil {
		c.t.Errorf("start postgres: %v", err)
		return
	}
	c.pg = pg
}

// crashPostgres is pg_ctl restart -m immediate: sessions are cut, and the WAL is replayed.
func (c *cluster) crashPostgres() {
	c.noteDisruption()
	if err := syscall.Kill(c.postmaster(), syscall.SIGQUIT); err != nil {
		c.t.Errorf("crash postgres: %v", err)
	}
	<-c.pg.Done()
	_ = c.pg.Stop(context.Background()) // returns an error, because Postgres has already ended
	c.startPostgres()
	c.noteDisruption()
}

// postmaster returns the PID of the Postgres main process.
func (c *cluster) postmaster() int {
	files, err := filepath.Glob(filepath.Join(c.options.Dir, "*", "postmaster.pid"))
	if err != nil || len(files) != 1 {
		c.t.Fatalf("found %q, %v; want one postmaster.pid", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		c.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid < 2 {
		c.t.Fatalf("%s contains %q", files[0], first)
	}
	return pid
}

// crashServer kills a server and restarts it some time later.
func (c *cluster) crashServer(i int) {
	c.noteDisruption()
	c.servers[i].kill()
	pause()
	c.servers[i].start()
	c.servers[i].await()
	c.noteDisruption()
}

// crashes crashes servers and Postgres, one at a time, until the context ends.
func (c *cluster) crashes(ctx context.Context, random *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		if i%3 == 2 {
			c.crashPostgres()
		} else {
			c.crashServer(random.IntN(2))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(500+random.IntN(1000)) * time.Millisecond):
		}
	}
}

func (c *cluster) noteDisruption() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disruptions = append(c.disruptions, time.Now())
}

// leasesAtRisk reports whether there was a disruption between the two times or up to ten seconds before: leases of
// killed servers last for up to five seconds.
func (c *cluster) leasesAtRisk(from, to time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.disruptions {
		if at.After(from.Add(-10*time.Second)) && at.Before(to) {
			return true
		}
	}
	return false
}

// server is a server process with a fixed address.
type server struct {
	t                  *testing.T
	program, dsn, addr string
	cmd                *exec.Cmd
	ended              chan struct{} // closed when the process has
	killed             *atomic.Bool
}

func (s *server) start() {
	cmd, out, ended := exec.Command(s.program, "serve"), &bytes.Buffer{}, make(chan struct{})
	cmd.Env = []string{
		"DATABASE_URL=" + s.dsn, "STEPWELL_LISTEN=" + s.addr, "STEPWELL_API_KEY=" + apiKey, "STEPWELL_LOG_LEVEL=warn",
		"STEPWELL_ALLOW_ADDRESSES=loopback", "GORACE=halt_on_error=1",
	}
	cmd.Stdout, cmd.Stderr = out, out
	harness.DieWithParent(cmd)
	killed := &atomic.Bool{}
	s.cmd, s.ended, s.killed = cmd, ended, killed
	started := make(chan error)
	go func() {
		defer close(ended)
		runtime.LockOSThread() // Pdeathsig applies to the end of the starting thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err != nil {
			return
		}
		if err := cmd.Wait(); !killed.Load() || strings.Contains(out.String(), "DATA RACE") {
			s.t.Errorf("server %s exited on its own: %v:\n%s", s.addr, err, out)
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatalf("start server: %v", err)
	}
}

func (s *server) kill() {
	s.killed.Store(true)
	_ = s.cmd.Process.Kill() // fails only if it has ended
	<-s.ended
}

// await waits until the server is ready.
func (s *server) await() {
	deadline := time.Now().Add(timeout)
	for {
		resp, err := http.Get("http://" + s.addr + "/readyz")
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			s.t.Errorf("server %s is not ready: %v", s.addr, err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(harness.FreePort(t)))
}
