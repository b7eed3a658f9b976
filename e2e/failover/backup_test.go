package failover

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// feedPage is a page of GET /v1/events.
type feedPage struct {
	Data   []struct{ RunID string }
	Cursor string
	Error  struct {
		Code    string
		Details struct{ Cursor string }
	}
}

// feed reads a page of the events after a cursor.
func (s *server) feed(cursor string, limit string) (page feedPage) {
	s.t.Helper()
	query := url.Values{"limit": {limit}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	got := s.send(s.t.Context(), http.MethodGet, "/v1/events?"+query.Encode(), nil)
	if err := json.Unmarshal(got.Body, &page); err != nil {
		s.t.Fatalf("events after %q: %d %s, %v, %v", cursor, got.Status, got.Body, got.Err, err)
	}
	return page
}

// wantFeed waits until the events after a cursor are the creations of these runs.
func (s *server) wantFeed(cursor string, runs ...string) {
	s.t.Helper()
	eventually(s.t, "the events after "+cursor+" are those of "+strings.Join(runs, " "), func() bool {
		var got []string
		for _, e := range s.feed(cursor, "100").Data {
			got = append(got, e.RunID)
		}
		return strings.Join(got, " ") == strings.Join(runs, " ")
	})
}

// wantLost checks that a cursor is refused, and returns the one to continue with, if there is one.
func (s *server) wantLost(cursor string) string {
	s.t.Helper()
	page := s.feed(cursor, "100")
	if page.Error.Code != "cursor_lost" {
		s.t.Fatalf("events after %s: %+v, want cursor_lost", cursor, page)
	}
	return page.Error.Details.Cursor
}

// end returns the place that a stream of the events sends first: their end.
func (s *server) end() string {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/v1/events/stream", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			return id
		}
	}
	s.t.Fatal("the stream of events sends no place")
	return ""
}

// TestBackupAndRestoreAsWritten runs the commands of docs/backup.md: a dump of one cluster is restored in a new one,
// where the events go on, and who has read further than the dump is told.
func TestBackupAndRestoreAsWritten(t *testing.T) {
	old, fresh := newNode(t, nil), newNode(t, nil)
	data, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(data), -1)
	if len(commands) != 2 {
		t.Fatalf("docs/backup.md has %d blocks of commands, want a dump and a restore", len(commands))
	}
	program, err := harness.FastServerProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, filepath.Join(dir, "stepwell")); err != nil {
		t.Fatal(err)
	}
	execute := func(commands string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", commands)
		cmd.Dir = dir
		cmd.Env = harness.CleanEnv("DATABASE_URL="+old.server.DSN(), "RESTORED_URL="+fresh.server.DSN(),
			"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
	}
	// The numbers of the old cluster are far ahead.
	old.exec(`DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`)
	before := startServer(t, old.server.DSN())
	var ids []string
	for _, key := range []string{"1", "2", "3"} {
		ids = append(ids, before.mustStartRun(key, timeout))
	}
	before.wantFeed("", ids...)
	middle := before.feed("", "1").Cursor
	execute(commands[0][1])
	before.mustStartRun("lost", timeout)
	ahead := before.end()
	before.Stop(t)
	execute(commands[1][1])

	after := startServer(t, fresh.server.DSN())
	after.wantFeed(middle, ids[1:]...)
	added := after.mustStartRun("new", timeout)
	after.wantFeed("", append(ids, added)...)
	after.wantFeed(middle, append(ids[1:], added)...)
	after.wantFeed(after.wantLost(ahead), added)
}

// TestACopyFromThePastRefusesCursors: a copy of the folder of Postgres takes its place while the server runs. It has
// the same history up to the copy, and its numbers of transactions pass those that were lost.
func TestACopyFromThePastRefusesCursors(t *testing.T) {
	n := newNode(t, nil)
	s := startServer(t, n.server.DSN())
	id := s.mustStartRun("1", timeout)
	s.wantFeed("", id)
	kept := s.end()
	spend := func(transactions int) {
		n.exec(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`,
			transactions))
	}
	saved := n.dir + ".saved"
	n.stop()
	copyFolder(t, n.dir, saved)
	n.start()
	spend(500)
	s.mustStartRun("lost", timeout)
	ahead := s.end()
	n.stop()
	copyFolder(t, saved, n.dir)
	n.start()
	added := s.mustStartRun("new", timeout)
	spend(1000)
	s.wantFeed("", id, added)
	s.wantFeed(kept, added)
	if from := s.wantLost(ahead); from != "" {
		t.Errorf("continue after %s, although the epoch of the cursor began after the copy", from)
	}
}

// copyFolder puts a copy of a folder in the place of another one.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}
