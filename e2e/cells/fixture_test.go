package cells

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/localpg"
)

// cell is two servers on a Postgres of their own, with one project.
type cell struct {
	name, operator string
	dsn            string
	addrs          [2]string
	servers        [2]*harness.Process
	project, key   string // the key is that of an admin of the project
}

// masterKeys are those of all cells.
const masterKeys = "STEPWELL_ENCRYPTION_KEYS=2026=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// The cells of deploy/cells.
var names = []string{"eu1", "us1"}

func startCell(t *testing.T, name, project string) *cell {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	options := localpg.ForTests()
	database, err := localpg.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Stop(context.WithoutCancel(t.Context())) })
	c := &cell{name: name, project: project, dsn: database.DSN(), operator: "operator-of-" + name + "-0123456789"}
	for i := range c.servers {
		c.addrs[i] = "127.0.0.1:" + strconv.Itoa(harness.FreePort(t))
		command := harness.Serve(program, database.DSN(), c.operator, "STEPWELL_CELL="+name, "STEPWELL_LISTEN="+c.addrs[i],
			masterKeys)
		c.servers[i], _ = harness.Start(t, name+" "+strconv.Itoa(i), command, harness.ServerReady)
	}
	c.send(t, c.operator, http.MethodPut, "/v1/projects/"+project, map[string]any{}).Want(t, http.StatusOK)
	made := c.send(t, c.operator, http.MethodPost, "/v1/keys",
		map[string]any{"project": project, "name": "test", "role": "admin"}).Want(t, http.StatusCreated)
	c.key = harness.Decode[struct{ Key string }](t, made).Key
	return c
}

// send sends a request to a server of the cell, past all proxies.
func (c *cell) send(t *testing.T, key, method, path string, body any, headers ...string) harness.Response {
	t.Helper()
	return harness.Send(t.Context(), http.DefaultClient, method, "http://"+c.addrs[0]+path, key, body, headers...)
}

// projectMap is what stepwell cells map prints for the cells.
func projectMap(t *testing.T, proxy string, cells []*cell) string {
	t.Helper()
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, c := range cells {
		cmd := exec.Command(program, "cells", "map", "--for", proxy)
		cmd.Env = harness.CleanEnv("STEPWELL_URL=http://"+c.addrs[1], "STEPWELL_API_KEY="+c.operator)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("cells map: %v\n%s", err, out)
		}
		lines.Write(out)
	}
	return lines.String()
}

// proxies start the proxies as deploy/cells configures them, and return their URLs.
var proxies = map[string]func(*testing.T, []*cell) string{"haproxy": startHAProxy, "nginx": startNginx}

func startHAProxy(t *testing.T, cells []*cell) string {
	t.Helper()
	dir, listen := t.TempDir(), "127.0.0.1:"+strconv.Itoa(harness.FreePort(t))
	write(t, filepath.Join(dir, "projects.map"), projectMap(t, "haproxy", cells))
	env := harness.CleanEnv("LISTEN="+listen, "MAPS="+dir)
	var known strings.Builder
	for _, c := range cells {
		known.WriteString(c.name + " " + c.name + "\n")
		env = append(env, strings.ToUpper(c.name)+"_A="+c.addrs[0], strings.ToUpper(c.name)+"_B="+c.addrs[1])
	}
	write(t, filepath.Join(dir, "cells.map"), known.String())
	cmd := exec.Command("/usr/sbin/haproxy", "-db", "-V", "-f", "../../deploy/cells/haproxy.cfg")
	cmd.Env = env
	return serve(t, "haproxy", listen, cmd)
}

func startNginx(t *testing.T, cells []*cell) string {
	t.Helper()
	dir, listen := t.TempDir(), "127.0.0.1:"+strconv.Itoa(harness.FreePort(t))
	write(t, filepath.Join(dir, "projects.map"), projectMap(t, "nginx", cells))
	config, err := os.ReadFile("../../deploy/cells/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	pairs := []string{"LISTEN", listen}
	for _, c := range cells {
		pairs = append(pairs, strings.ToUpper(c.name)+"_A", c.addrs[0], strings.ToUpper(c.name)+"_B", c.addrs[1])
	}
	write(t, filepath.Join(dir, "cells.conf"), strings.NewReplacer(pairs...).Replace(string(config)))
	write(t, filepath.Join(dir, "nginx.conf"), `
daemon off; master_process off; pid `+dir+`/pid; error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path `+dir+`/body; proxy_temp_path `+dir+`/proxy; fastcgi_temp_path `+dir+`/f;
    uwsgi_temp_path `+dir+`/u; scgi_temp_path `+dir+`/s;
    include cells.conf;
}`)
	return serve(t, "nginx", listen, exec.Command("/usr/sbin/nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf")))
}

// serve starts a proxy and waits until it answers for a server.
func serve(t *testing.T, name, listen string, cmd *exec.Cmd) string {
	t.Helper()
	// The shell says when the proxy is about to start, and becomes it.
	if _, err := exec.LookPath(cmd.Path); err != nil {
		t.Fatalf("%v: install haproxy and nginx, on Debian as scripts/need does", err)
	}
	script := exec.Command("sh", append([]string{"-c", `echo starting; exec "$@"`, "sh"}, cmd.Args...)...)
	script.Env = cmd.Env
	harness.Start(t, name, script, regexp.MustCompile("(starting)"))
	url := "http://" + listen
	harness.Eventually(t, name+" serves", func() bool {
		r := harness.Send(t.Context(), http.DefaultClient, http.MethodGet, url+"/healthz", "", nil)
		return r.Err == nil && r.Status == http.StatusOK
	})
	return url
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runOf waits until a run has ended, by a long poll, and returns its status.
func runOf(t *testing.T, url, key, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := harness.Send(ctx, http.DefaultClient, http.MethodGet, url+"/v1/runs/"+id+"/wait?timeout=45s", key, nil)
	return harness.Decode[struct{ Status string }](t, r.Want(t, http.StatusOK)).Status
}
