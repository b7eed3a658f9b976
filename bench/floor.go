package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The floor is the speed of pgbench with the same rows: it inserts the rows of one append and of one message, copied
// from rows that the server wrote, into the same tables with the same indexes. It makes no decisions, reads nothing
// back, and uses no HTTP.

// sampleRows holds rows that the server wrote, by table, as SQL literals.
type sampleRows map[string][]literal

type literal struct{ column, value string }

// sampleOf reads a row of the table that satisfies the condition.
func sampleOf(ctx context.Context, conn *pgx.Conn, table, where string, args ...any) ([]literal, error) {
	rows, err := conn.Query(ctx, `
		SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attgenerated = ''
		ORDER BY attnum`, table)
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", table, err)
	}
	type column struct{ Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", table, err)
	}
	values := make([]string, len(columns))
	into, quoted := make([]any, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		into[i], quoted[i] = &values[i], "quote_nullable("+pgx.Identifier{c.Name}.Sanitize()+"::text)"
	}
	err = conn.QueryRow(ctx, `SELECT `+strings.Join(quoted, ", ")+` FROM `+table+` WHERE `+where+` LIMIT 1`, args...).
		Scan(into...)
	if err != nil {
		return nil, fmt.Errorf("read a row of %s: %w", table, err)
	}
	var literals []literal
	for i, c := range columns {
		literals = append(literals, literal{c.Name, values[i] + "::" + c.Type})
		if strings.HasPrefix(c.Type, "timestamp") && values[i] != "NULL" {
			literals[i].value = "now()"
		}
	}
	return literals, nil
}

// insert returns a statement that inserts the row, with other values for some columns. from is appended after the
// values and may be empty.
func (s sampleRows) insert(table, from string, other map[string]string) string {
	var columns, values []string
	for _, l := range s[table] {
		value, ok := other[l.column]
		if !ok {
			value = l.value
		}
		if value == "" {
			continue // use the column's default
		}
		columns, values = append(columns, pgx.Identifier{l.column}.Sanitize()), append(values, value)
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ")\n  SELECT " + strings.Join(values, ", ") + from
}

// Expressions for values that differ between rows. :prefix has 22 characters, :client_id is pgbench's, and :i counts
// per client.
const (
	floorHot    = `:prefix || '0000'`
	floorOwn    = `:prefix || lpad(:client_id::text, 4, '0')`
	floorStep   = `'step_' || substr(r.id, 6, 16) || lpad(r.last_seq::text, 10, '0')`
	floorNumber = `substr(:prefix::text, 6, 12) || lpad(:client_id::text, 4, '0') || lpad(:i::text, 10, '0')`
)

// script returns the pgbench script of a workload: one statement, which needs no BEGIN and COMMIT. An append updates,
// and thereby locks, the run, and inserts the event and the step; a send inserts the message and its key.
func (s sampleRows) script(w workload) string {
	const counting = "\\set i :i + 1\n"
	if w.name == "send" {
		id := `'msg_' || ` + floorNumber
		return counting + "WITH k AS (" +
			s.insert("message_keys", "", map[string]string{"key": `'step_' || ` + floorNumber, "message_id": id}) +
			")\n" + s.insert("messages", "", map[string]string{"id": id}) + ";\n"
	}
	run := floorOwn
	if w.hot {
		run = floorHot
	}
	event := s.insert("events", "\n  FROM r", map[string]string{
		"run_id": "r.id", "seq": "r.last_seq", "correlation_id": floorStep, "xid": "",
	})
	step := s.insert("steps", "\n  FROM r", map[string]string{
		"run_id": "r.id", "id": floorStep, "created_seq": "r.last_seq",
	})
	return counting + "WITH r AS (UPDATE runs SET last_seq = last_seq + 1, updated_at = now() WHERE id = " + run +
		" RETURNING id, last_seq),\n e AS (" + event + ")\n" + step + ";\n"
}

// pgbench is a run of pgbench.
type pgbench struct {
	cluster  *cluster
	database string
	script   string
	prefix   string // of run IDs
	clients  int
	window   time.Duration
	times    int // transactions per client, instead of the window
}

var pgbenchCount = regexp.MustCompile(`number of transactions actually processed: (\d+)`)

// run runs the script and reads the latency of each transaction from pgbench's log.
func (p pgbench) run(ctx context.Context) (*sample, error) {
	folder, err := os.MkdirTemp("", "stepwell-pgbench-")
	if err != nil {
		return nil, fmt.Errorf("run pgbench: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	script, logs := filepath.Join(folder, "script.sql"), filepath.Join(folder, "log")
	if err := os.WriteFile(script, []byte(p.script), 0o600); err != nil {
		return nil, fmt.Errorf("run pgbench: %w", err)
	}
	length := []string{"-T", strconv.Itoa(int(max(time.Second, p.window).Seconds()))}
	if p.times > 0 {
		length = []string{"-t", strconv.Itoa(p.times)}
	}
	args := append(length, "-n", "-M", "prepared", "-c", strconv.Itoa(p.clients), "-j", strconv.Itoa(min(2, p.clients)),
		"-l", "--log-prefix", logs, "-D", "prefix="+p.prefix, "-D", "i=0", "-f", script,
		"-h", "127.0.0.1", "-p", strconv.Itoa(p.cluster.port), "-U", role, p.database)
	cmd := exec.CommandContext(ctx, filepath.Join(p.cluster.bin, "pgbench"), args...)
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c search_path=stepwell", "PGPASSWORD="+password)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("pgbench: %w\n%s\n%s", err, out, p.script)
	}
	s := newSample()
	s.Took = time.Since(began)
	m := pgbenchCount.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("pgbench printed no number of transactions:\n%s", out)
	}
	names, err := filepath.Glob(logs + ".*")
	if err != nil {
		return nil, fmt.Errorf("read log of pgbench: %w", err)
	}
	for _, name := range names {
		if err := readPgbenchLog(name, s); err != nil {
			return nil, err
		}
	}
	if strconv.FormatInt(s.Ops, 10) != string(m[1]) {
		return nil, fmt.Errorf("pgbench processed %s transactions, but its log has %d", m[1], s.Ops)
	}
	return s, nil
}

// readPgbenchLog adds the transactions of a log. The third field of each line is the latency in microseconds.
func readPgbenchLog(name string, into *sample) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read log of pgbench: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return fmt.Errorf("invalid log of pgbench: %q", lines.Text())
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return fmt.Errorf("invalid log of pgbench: %w", err)
		}
		into.Ops++
		into.Latency.record(time.Duration(us) * time.Microsecond)
	}
	return lines.Err()
}
