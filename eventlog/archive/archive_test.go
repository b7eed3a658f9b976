package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/klauspost/compress/zstd"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const project entities.Project = "home"

var errBroken = errors.New("broken")

// fixture is a database with one ended run.
type fixture struct {
	pool       *pgxpool.Pool
	maintainer *upkeep.Maintainer
	run        entities.RunID
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := testdb.Pool(t)
	f := &fixture{pool: pool, maintainer: upkeep.NewMaintainer(pool, time.Now), run: entities.RunID("wrun_" + ulid.Make().String())}
	occurred := time.Now().Add(-time.Second)
	text := func(s string) *string { return &s }
	for _, r := range []eventlog.Request{
		{Type: entities.EventRunCreated, Payload: []byte("in\x00put\xff"), Extra: []byte{0xa0}, OccurredAt: &occurred,
			Data: entities.EventData{DeploymentID: "dpl<&>", WorkflowName: "Bestellung ß"}},
		{Type: entities.EventRunStarted},
		{Type: entities.EventAttrSet, CorrelationID: "a1", Data: entities.EventData{
			Changes: []entities.AttributeChange{{Key: "x", Value: text("\u2028 y")}, {Key: "gone"}}}},
		{Type: entities.EventStepCreated, CorrelationID: "s1", Data: entities.EventData{StepName: "charge"}, Payload: []byte{}},
		{Type: entities.EventStepStarted, CorrelationID: "s1"},
		{Type: entities.EventStepRetrying, CorrelationID: "s1", Data: entities.EventData{RetryAfter: &occurred}},
		{Type: entities.EventHookCreated, CorrelationID: "h1", Data: entities.EventData{Token: "t"}},
		{Type: entities.EventHookReceived, CorrelationID: "h1", Payload: bytes.Repeat([]byte("large "), 200_000)},
		{Type: entities.EventStepStarted, CorrelationID: "s1"},
		{Type: entities.EventRunFailed, Data: entities.EventData{ErrorCode: "E"}, Payload: []byte("why")},
		{Type: entities.EventStepCompleted, CorrelationID: "s1", Payload: []byte("late")},
	} {
		r.RunID = f.run
		f.append(t, r)
	}
	streams := f.streams()
	var many [][]byte
	for i := range 600 {
		many = append(many, []byte{byte(i), byte(i >> 8)})
	}
	for name, chunks := range map[entities.StreamName][][]byte{"many": many, "none": {}, "empty": {{}, {0}, {}}} {
		if err := streams.Write(t.Context(), project, f.run, name, chunks); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Close(t.Context(), project, f.run, "empty"); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) append(t *testing.T, r eventlog.Request) {
	t.Helper()
	r.SpecVersion = 3
	if _, err := eventlog.New(f.pool, f.hub(), nil, time.Now).Append(t.Context(), project, r); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) streams() *read.Streams {
	return read.NewStreams(f.pool, f.hub(), time.Now)
}

func (f *fixture) hub() *pg.Hub {
	return pg.NewHub(f.pool, "test", slog.New(slog.DiscardHandler)) // not running
}

func (f *fixture) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := f.pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// file returns the exported file of the run.
func (f *fixture) file(t *testing.T) []byte {
	t.Helper()
	var file bytes.Buffer
	err := runfile.Write(&file, func(emit func(upkeep.Record) error) error {
		_, err := f.maintainer.Export(t.Context(), f.run, emit)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func (f *fixture) load(ctx context.Context, file []byte) error {
	r, err := runfile.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = f.maintainer.Import(ctx, r.Next)
	return err
}

// contents returns each table as text, without the numbers of streams and transactions.
func (f *fixture) contents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for table, columns := range map[string]string{
		"runs": "r::text", "events": "(to_jsonb(r) - 'xid')::text", "steps": "r::text", "hooks": "r::text", "waits": "r::text",
		"streams":       "(to_jsonb(r) - 'id')::text",
		"stream_chunks": "(SELECT name FROM streams s WHERE s.id = stream_id) || idx || md5(data)",
	} {
		var text string
		err := f.pool.QueryRow(t.Context(), `
			SELECT coalesce(string_agg(`+columns+`, E'\n' ORDER BY `+columns+`), '') FROM `+table+` r`).Scan(&text)
		if err != nil {
			t.Fatal(err)
		}
		all[table] = text
	}
	return all
}

func (f *fixture) wantContents(t *testing.T, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, f.contents(t)); diff != "" {
		t.Errorf("the database differs (-want +got):\n%.4000s", diff)
	}
}

func (f *fixture) clear(t *testing.T) map[string]string {
	t.Helper()
	f.exec(t, `DELETE FROM runs`)
	f.exec(t, `DELETE FROM streams`)
	return f.contents(t)
}

// TestI10ImportIsExactlyWhatWasExported compares all rows.
func TestI10ImportIsExactlyWhatWasExported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before, file := f.contents(t), f.file(t)
	for range 2 {
		f.clear(t)
		if err := f.load(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		f.wantContents(t, before)
		if again := f.file(t); !bytes.Equal(file, again) {
			t.Error("the imported run is exported to a different file")
		}
	}
	err := f.maintainer.Verify(t.Context(), f.run, func(d upkeep.Difference) { t.Error(d) })
	if err != nil {
		t.Fatal(err)
	}
}

// plain returns the decompressed content of a file; packed is the inverse.
func plain(t *testing.T, file []byte) string {
	t.Helper()
	text, err := unpacked(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unpacked returns the content of a file that may be truncated.
func unpacked(file []byte) (string, error) {
	r, err := zstd.NewReader(bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := zstd.NewWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestImportRejectsFilesOtherThanAWholeEndedRun without writing anything.
func TestImportRejectsFilesOtherThanAWholeEndedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file(t)
	text := plain(t, file)
	empty := f.clear(t)
	lines := strings.SplitAfter(text, "\n")
	without := func(line int) []byte {
		return packed(t, strings.Join(append(lines[:line:line], lines[line+1:]...), ""))
	}
	replaced := func(old, new string) []byte {
		t.Helper()
		if !strings.Contains(text, old) {
			t.Fatalf("the file does not contain %s:\n%.3000s", old, text)
		}
		return packed(t, strings.Replace(text, old, new, 1))
	}
	tests := map[string][]byte{
		"empty": {}, "no archive": []byte("hello"), "other JSON": packed(t, `{"a": 1}`), "nothing in it": packed(t, ""),
		"no first line": without(0), "no first event": without(1), "no event in the middle": without(5),
		"no last event": without(11), "no stream": without(12), "no chunk": without(14), "no last stream": without(len(lines) - 3),
		"no end":          without(len(lines) - 2),
		"another format":  replaced(`"format":"stepwell run"`, `"format":"other"`),
		"another version": replaced(`"version":1`, `"version":2`),
		"odd ID":          replaced(`"id":"wrun_`, `"id":"../`),
		"unknown event":   replaced(`"type":"run_failed"`, `"type":"run_lost"`),
		"alive":           packed(t, strings.ReplaceAll(strings.Replace(text, "run_failed", "attr_set", 1), `"errorCode":"E"`, `"changes":[{"key":"k","value":"v"}]`)),
		"not legal":       replaced(`"type":"run_started"`, `"type":"run_created"`),
	}
	last := len(file) - 1
	rotten := bytes.Clone(file)
	rotten[last] ^= 1
	tests["checksum cut off"], tests["checksum rotten"] = file[:last], rotten
	tests["something after the end"] = packed(t, text+lines[len(lines)-2])
	for cut := 1; cut < len(file); cut += len(file)/10 + 1 {
		tests["cut off after "+time.Duration(cut).String()] = file[:cut]
	}
	for at := 10; at < len(file); at += len(file)/5 + 1 {
		bad := bytes.Clone(file)
		bad[at] ^= 0x55
		if same, err := unpacked(bad); err == nil && same == text {
			continue // the flipped bit has no meaning in zstd
		}
		tests["bit rot at "+time.Duration(at).String()] = bad
	}
	for name, file := range tests {
		if err := f.load(t.Context(), file); err == nil {
			t.Errorf("%s: was imported", name)
		}
	}
	f.wantContents(t, empty)
	if err := f.load(t.Context(), file); err != nil {
		t.Errorf("the file itself: %v", err)
	}
}

// TestImportRejectsExistingRunsAndStreams and does not change them.
func TestImportRejectsExistingRunsAndStreams(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file, before := f.file(t), f.contents(t)
	if err := f.load(t.Context(), file); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("existing run: got %v", err)
	}
	f.wantContents(t, before)
	f.clear(t)
	if err := f.streams().Write(t.Context(), project, "wrun_other", "many", [][]byte{{1}}); err != nil {
		t.Fatal(err)
	}
	before = f.contents(t)
	if err := f.load(t.Context(), file); !errors.Is(err, entities.ErrConflict) {
		t.Errorf("existing stream: got %v", err)
	}
	f.wantContents(t, before)
}

// TestExportFailsOnMissingRows instead of writing an incomplete file.
func TestExportFailsOnMissingRows(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"first event": `DELETE FROM events WHERE seq = 1`, "event": `DELETE FROM events WHERE seq = 4`,
		"last event": `DELETE FROM events WHERE seq = 11`, "all events": `DELETE FROM events`, "run": `DELETE FROM runs`,
		"first chunk": `DELETE FROM stream_chunks WHERE idx = 0`, "last chunk": `DELETE FROM stream_chunks WHERE idx = 599`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			folder := f.folder(t)
			f.exec(t, sql)
			if _, err := folder.Store(t.Context(), project, f.run); err == nil {
				t.Error("it was stored")
			}
			wantFiles(t, folder)
		})
	}
}

func (f *fixture) folder(t *testing.T) *Folder {
	t.Helper()
	folder, err := NewFolder(t.TempDir(), f.maintainer)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// wantFiles fails the test unless the folder has these files and no others.
func wantFiles(t *testing.T, f *Folder, want ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(f.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, path)
		}
		return err
	})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("files differ (-want +got), error %v:\n%s", err, diff)
	}
}

// TestArchivePassIsRepeatableAfterACrash: the run was stored, but its deletion was lost. The next pass stores the same
// file again and deletes the run; an import restores it exactly.
func TestArchivePassIsRepeatableAfterACrash(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(t, `UPDATE runs SET completed_at = completed_at - interval '1 day'`)
	f.exec(t, `UPDATE events SET created_at = created_at - interval '1 day'`)
	if _, err := f.maintainer.Rebuild(t.Context(), f.run); err != nil {
		t.Fatal(err)
	}
	before, folder := f.contents(t), f.folder(t)
	broken := true
	r := upkeep.NewRetention(f.pool, upkeep.RetentionOptions{
		Keep: time.Hour, Archive: folder.Store,
		DeleteRelated: func(ctx context.Context, tx pgx.Tx, _ entities.Project, _ []entities.RunID) error {
			if broken {
				return errors.Join(errBroken, tx.Conn().Close(ctx))
			}
			return nil
		},
	})
	if _, err := r.Pass(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("got %v", err)
	}
	path := folder.Path(project, f.run)
	wantFiles(t, folder, path)
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f.wantContents(t, before)
	broken = false
	if done, err := r.Pass(t.Context()); err != nil || done.Runs != 1 {
		t.Fatalf("got %+v, error %v", done, err)
	}
	wantFiles(t, folder, path)
	second, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the file changed; error %v", err)
	}
	if text := f.contents(t)["events"] + f.contents(t)["streams"]; text != "" {
		t.Errorf("not everything was deleted: %.500s", text)
	}
	if err := f.load(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	f.wantContents(t, before)
}

func TestFilesAreWrittenAtomically(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	folder := f.folder(t)
	half := func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, errBroken)
	}
	path := filepath.Join(folder.dir, "file")
	if err := WriteFile(path, half); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	wantFiles(t, folder)
	for _, text := range []string{"old", "new"} {
		err := WriteFile(path, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(path, half); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	wantFiles(t, folder, path)
	if data, err := os.ReadFile(path); err != nil || string(data) != "new" {
		t.Errorf("got %q, error %v", data, err)
	}
}

func TestNewFolderRequiresAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing"), file} {
		if _, err := NewFolder(path, nil); err == nil {
			t.Errorf("%s was taken", path)
		}
	}
	f := &Folder{dir: dir}
	for _, odd := range []string{"..", "a/b", ""} {
		if _, err := f.Store(t.Context(), entities.Project(odd), "wrun_1"); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("project %q: got %v", odd, err)
		}
		if _, err := f.Store(t.Context(), "p", entities.RunID(odd)); !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("run %q: got %v", odd, err)
		}
	}
}
