package eventlog

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// viewRun writes a log that has something for each column of the views.
func viewRun(t *testing.T, f *fixture) entities.RunID {
	t.Helper()
	id := newRunID()
	with := func(r Request, payload string) Request {
		r.Payload = []byte(payload)
		return r
	}
	create := with(runCreated(id), `{"total": 5}`)
	create.Data.UniqueKey, create.Data.Driver = "12345", entities.DriverServer
	create.Data.Attributes = map[string]string{"order": "12345"}
	failed := with(on(id, entities.EventStepFailed, "step_b"), `{"message": "no stock"}`)
	failed.Data.ErrorCode = "stock"
	webhook := with(hookCreated(id, "hook_b", "secret"), `"any"`)
	webhook.Data.IsWebhook = ptr(true)
	wait := on(id, entities.EventWaitCreated, "wait_a")
	wait.Data.ResumeAt = ptr(day.Add(time.Hour))
	child := on(id, entities.EventStepCreated, "kid")
	child.Data.StepName, child.Data.Step = "kid", &entities.StepSpec{ChildID: "wrun_2"}
	for _, r := range []Request{
		create,
		onRun(id, entities.EventRunStarted),
		with(on(id, entities.EventStepCreated, "step_a"), `[1]`),
		on(id, entities.EventStepStarted, "step_a"),
		with(on(id, entities.EventStepCompleted, "step_a"), `"paid"`),
		with(on(id, entities.EventStepCreated, "step_b"), "devl[1]"), // an encoding of the Workflow SDK
		on(id, entities.EventStepStarted, "step_b"),
		failed,
		with(hookCreated(id, "hook_a", "approval_1"), `{"title": "Ship?"}`),
		webhook,
		with(on(id, entities.EventStoreSet, "store_1"), `{"count": 3}`),
		wait,
		with(child, `7`),
	} {
		f.must(t, r)
	}
	f.exec(t, `INSERT INTO signals (project, id, name, data, created_at, keep_until, expires_at)
		VALUES ('home', 'sig_1', 'paid', '{"n": 1}', now(), now(), now())`)
	f.exec(t, `INSERT INTO pauses (project, kind, name, note, paused_by) VALUES ('home', 'workflow', 'order', 'broken', 'anna')`)
	return id
}

func TestViewsShowTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := viewRun(t, f)
	f.wantRow(t, `SELECT * FROM v_runs WHERE run_id = $1`, id, map[string]any{
		"project": "home", "workflow": "order", "deployment": "dpl_1", "status": "running", "unique_key": "12345",
		"attributes": map[string]any{"order": "12345"}, "input": map[string]any{"total": 5.0}, "depth": int32(0),
		"events": int64(13), "forked_events": int64(0), "created_at": day, "started_at": day,
	})
	f.wantRow(t, `SELECT * FROM v_steps WHERE run_id = $1 AND step_id = 'step_a'`, id, map[string]any{
		"step_id": "step_a", "project": "home", "workflow": "order", "name": "charge", "status": "completed",
		"attempt": int32(1), "input": []any{1.0}, "output": "paid", "created_at": day, "started_at": day, "ended_at": day,
	})
	f.wantRow(t, `SELECT * FROM v_steps WHERE run_id = $1 AND step_id = 'step_b'`, id, map[string]any{
		"step_id": "step_b", "project": "home", "workflow": "order", "name": "charge", "status": "failed",
		"attempt": int32(1), "error": map[string]any{"message": "no stock"}, "error_code": "stock",
		"created_at": day, "started_at": day, "ended_at": day,
	})
	f.wantRow(t, `SELECT * FROM v_events WHERE run_id = $1 AND seq = 6`, id, map[string]any{
		"seq": int64(6), "project": "home", "type": "step_created", "entity_id": "step_b",
		"data": map[string]any{"stepName": "charge"}, "payload_bytes": []byte("devl[1]"), "created_at": day,
	})
	f.wantRow(t, `SELECT child_run_id FROM v_steps WHERE run_id = $1 AND step_id = 'kid'`, id, map[string]any{
		"child_run_id": "wrun_2",
	})
	f.wantRow(t, `SELECT * FROM v_waits WHERE run_id = $1`, id, map[string]any{
		"wait_id": "wait_a", "project": "home", "workflow": "order", "status": "waiting", "resume_at": day.Add(time.Hour),
		"created_at": day,
	})
	f.wantRow(t, `SELECT data FROM v_events WHERE run_id = $1 AND entity_id = 'hook_b'`, id, map[string]any{
		"data": map[string]any{"isWebhook": true},
	})
	f.wantRow(t, `SELECT data ->> 'token' AS token FROM v_events WHERE run_id = $1 AND entity_id = 'hook_a'`, id, map[string]any{
		"token": "approval_1",
	})
	f.wantRow(t, `SELECT * FROM v_hooks WHERE run_id = $1 AND hook_id = 'hook_a'`, id, map[string]any{
		"hook_id": "hook_a", "project": "home", "token": "approval_1", "is_webhook": false,
		"metadata": map[string]any{"title": "Ship?"}, "created_at": day,
	})
	f.wantRow(t, `SELECT * FROM v_hooks WHERE run_id = $1 AND hook_id = 'hook_b'`, id, map[string]any{
		"hook_id": "hook_b", "project": "home", "is_webhook": true, "metadata": "any", "created_at": day,
	})
	f.wantRow(t, `SELECT * FROM v_store WHERE run_id = $1`, id, map[string]any{
		"project": "home", "key": "count", "value": 3.0, "seq": int64(11),
	})

	f.wantRow(t, `SELECT * FROM v_attributes WHERE run_id = $1`, id, map[string]any{
		"project": "home", "workflow": "order", "key": "order", "value": "12345", "created_at": day,
	})

	done := onRun(id, entities.EventRunCompleted)
	done.Payload = []byte(`true`)
	f.must(t, done)
	f.wantRow(t, `SELECT status, output, error, ended_at FROM v_runs WHERE run_id = $1`, id, map[string]any{
		"status": "completed", "output": true, "ended_at": day,
	})
	failed := onRun(f.run(t), entities.EventRunFailed)
	failed.Payload, failed.Data.ErrorCode = []byte(`"broken"`), "oops"
	f.must(t, failed)
	f.wantRow(t, `SELECT status, output, error, error_code FROM v_runs WHERE run_id = $1`, failed.RunID, map[string]any{
		"status": "failed", "error": "broken", "error_code": "oops",
	})
}

// wantRow compares the only row of a query about a run, without its ID and without columns that are NULL or empty.
func (f *fixture) wantRow(t *testing.T, sql string, id entities.RunID, want map[string]any) {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), sql, id)
	if err != nil {
		t.Fatal(err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for column, value := range row {
		if value == nil || value == "" || column == "run_id" {
			delete(row, column)
		}
	}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Errorf("%s (-want +got):\n%s", sql, diff)
	}
}

// TestViewsUseIndexes: the conditions that docs/sql.md calls quick are conditions of an index.
func TestViewsUseIndexes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for condition, columns := range map[string][]string{
		`v_runs WHERE run_id = 'r'`:                                           {"id"},
		`v_runs WHERE project = 'p' AND status = 'failed'`:                    {"project", "(status)::text"},
		`v_runs WHERE project = 'p' AND workflow = 'w' AND status = 'failed'`: {"project", "workflow_name", "(status)::text"},
		`v_runs WHERE project = 'p' AND unique_key = 'k'`:                     {"project", "unique_key"},
		`v_runs WHERE project = 'p' AND idempotency_key = 'k'`:                {"project", "idempotency_key"},
		`v_runs WHERE project = 'p' AND error_code = 'c'`:                     {"project", "error_code"},
		`v_runs WHERE parent_run_id = 'r'`:                                    {"parent_id"},
		`v_runs WHERE forked_from = 'r'`:                                      {"fork_of"},
		`v_waits WHERE run_id = 'r'`:                                          {"run_id"},
		`v_signals WHERE project = 'p' AND name = 'n'`:                        {"project", "name"},
		`v_attributes WHERE project = 'p' AND key = 'k'`:                      {"project", "key"},
		`v_attributes WHERE project = 'p' AND key = 'k' AND value = 'v'`:      {"project", "key", "value"},
		`v_events WHERE run_id = 'r'`:                                         {"run_id"},
		`v_steps WHERE run_id = 'r'`:                                          {"run_id"},
		`v_hooks WHERE run_id = 'r'`:                                          {"run_id"},
		`v_store WHERE run_id = 'r'`:                                          {"run_id"},
	} {
		rows, _ := f.pool.Query(t.Context(), `EXPLAIN SELECT * FROM `+condition)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		isIndexed := slices.ContainsFunc(plan, func(line string) bool {
			return strings.Contains(line, "Index Cond") && !slices.ContainsFunc(columns, func(c string) bool {
				return !strings.Contains(line, "("+c+" = '")
			})
		})
		if text := strings.Join(plan, "\n"); !isIndexed || strings.Contains(text, "Seq Scan") {
			t.Errorf("%s: want an index with a condition on %s in\n%s", condition, columns, text)
		}
	}
}

// TestPayloadsThatAreNotJSONAreNull: no stored payload can make a query of the views fail.
func TestPayloadsThatAreNotJSONAreNull(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, payload := range []string{
		"", "input", "\xff\xfe", "\x00", `"\u0000"`, `"\ud800"`, "1e200000", strings.Repeat("[", 1<<20), `{"a":1}x`,
	} {
		var got any
		if err := f.pool.QueryRow(t.Context(), `SELECT payload_json($1)`, []byte(payload)).Scan(&got); err != nil || got != nil {
			t.Errorf("%.20q: got %v and %v, want NULL", payload, got, err)
		}
	}
}

// TestPageOnSQLIsTrue runs the statements of docs/sql.md, and compares its columns with those of the views: their names,
// types and order are a promise to those who read them.
func TestPageOnSQLIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	viewRun(t, f)
	role := testdb.Role(t, f.pool)
	f.exec(t, `CREATE TABLE orders (id text, total int)`)
	f.exec(t, `INSERT INTO orders VALUES ('12345', 5)`)
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, m := range blocks {
		f.exec(t, strings.NewReplacer("CREATE ROLE reporting;", "", "reporting", role, "'default'", "'home'").Replace(m[1]))
	}
	f.wantReader(t, role)
	f.wantColumns(t, string(page))
}

// wantReader fails the test unless the role can read the views, and neither read nor write a table.
func (f *fixture) wantReader(t *testing.T, role string) {
	t.Helper()
	conn, err := f.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for sql, want := range map[string]string{
		`SELECT run_id, input FROM v_runs`: "", `SELECT * FROM v_events`: "", `SELECT * FROM v_steps`: "",
		`SELECT * FROM v_hooks`: "", `SELECT * FROM v_attributes`: "", `SELECT * FROM v_store`: "", `SELECT * FROM shop_runs`: "",
		`SELECT * FROM v_waits`: "", `SELECT * FROM v_signals`: "", `SELECT * FROM v_pauses`: "",
		`SELECT * FROM runs`: "42501", `SELECT * FROM projects`: "42501", `DELETE FROM v_events`: "42501",
	} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role); err != nil {
				return err
			}
			tag, err := tx.Exec(t.Context(), sql)
			if err == nil && tag.RowsAffected() == 0 {
				t.Errorf("%s: no row", sql)
			}
			return err
		})
		code := ""
		if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
			code = refusal.Code
		}
		if code != want || want == "" && err != nil {
			t.Errorf("%s: got %v, want code %q", sql, err, want)
		}
	}
}

// wantColumns compares the columns of the views with the tables of the page.
func (f *fixture) wantColumns(t *testing.T, page string) {
	t.Helper()
	name := regexp.MustCompile("`(\\w+)`")
	for _, view := range []string{
		"v_runs", "v_events", "v_steps", "v_waits", "v_hooks", "v_attributes", "v_store", "v_signals", "v_pauses",
	} {
		_, section, _ := strings.Cut(page, "\n### "+view+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		var want []string
		for _, m := range regexp.MustCompile("(?m)^\\| (`.*?) \\| ([a-z, ]+) \\|").FindAllStringSubmatch(section, -1) {
			types := strings.Split(m[2], ", ")
			for i, column := range name.FindAllStringSubmatch(m[1], -1) {
				want = append(want, column[1]+" "+types[min(i, len(types)-1)])
			}
		}
		rows, _ := f.pool.Query(t.Context(), `SELECT column_name || ' ' || replace(data_type, 'timestamp with time zone', 'timestamptz')
			FROM information_schema.columns WHERE table_schema = current_schema AND table_name = $1 ORDER BY ordinal_position`, view)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-page +view):\n%s", view, diff)
		}
	}
}
