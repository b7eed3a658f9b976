package upkeep

import (
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// withStore creates a run whose store was written by three commands.
func (f *fixture) withStore(t *testing.T) entities.RunID {
	t.Helper()
	first := runCreated(newRunID())
	first.Data.Driver = entities.DriverServer
	f.must(t, first)
	for i, values := range []string{`{"a":1,"b":"\u0000","gone":true}`, `{"b":[ 2 ]}`, `{"gone":null,"c":{}}`} {
		f.must(t, storeSet(first.RunID, fmt.Sprintf("set-%d", i), values))
	}
	return first.RunID
}

func storeSet(id entities.RunID, correlationID, values string) eventlog.Request {
	r := on(id, entities.EventStoreSet, correlationID)
	r.Payload = []byte(values)
	return r
}

// storeRows reads the rows of the run's store, as SQL readers do.
func (f *fixture) storeRows(t *testing.T, id entities.RunID) []store.RunValue {
	t.Helper()
	rows, err := f.pool.Query(t.Context(), `SELECT * FROM run_store WHERE run_id = $1 ORDER BY key`, id)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowToStructByName[store.RunValue])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// TestStoreRowsAreTheFoldOfTheLog: verify finds each difference between the rows of a store and the log, and rebuild
// repairs it.
func TestStoreRowsAreTheFoldOfTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.withStore(t)
	want := []store.RunValue{
		{RunID: id, Key: "a", Value: `1`, Seq: 2}, {RunID: id, Key: "b", Value: `[ 2 ]`, Seq: 3},
		{RunID: id, Key: "c", Value: `{}`, Seq: 4},
	}
	if diff := cmp.Diff(want, f.storeRows(t, id)); diff != "" {
		t.Fatalf("rows (-want +got):\n%s", diff)
	}
	f.wantSound(t, id)
	for damage, report := range map[string]string{
		`UPDATE run_store SET value = '2' WHERE run_id = $1 AND key = 'a'`: `value a: Value: log says "1", row says "2"`,
		`UPDATE run_store SET seq = 9 WHERE run_id = $1 AND key = 'c'`:     `value c: Seq: log says 4, row says 9`,
		`DELETE FROM run_store WHERE run_id = $1 AND key = 'b'`:            `value b: row: log says exists, row says none`,
		`INSERT INTO run_store VALUES ($1, 'gone', 'true', 2)`:             `value gone: row: log says none, row says exists`,
		`UPDATE runs SET store_seq = 0 WHERE id = $1`:                      `run: StoreSeq: log says 4, row says 0`,
	} {
		f.exec(t, damage, id)
		f.wantDifferences(t, id, report)
		f.mustRebuild(t, id)
		if diff := cmp.Diff(want, f.storeRows(t, id)); diff != "" {
			t.Errorf("%s: rows after the rebuild (-want +got):\n%s", damage, diff)
		}
	}
}

// TestVerifyFindsIllegalWritesToAStore, also one that the limits forbid.
func TestVerifyFindsIllegalWritesToAStore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, end := range map[string]bool{"after the end": true, "not JSON": false} {
		id := f.withStore(t)
		payload := `x`
		if end {
			payload = `{"a":2}`
			f.must(t, onRun(id, entities.EventRunCompleted))
		}
		f.exec(t, `
			INSERT INTO events (project, run_id, seq, type, correlation_id, spec_version, created_at, data, payload)
			SELECT project, id, last_seq + 1, 'store_set', 'x', 2, updated_at, '{}', convert_to($2, 'UTF8')
			FROM runs WHERE id = $1`, id, payload)
		f.exec(t, `UPDATE runs SET last_seq = last_seq + 1 WHERE id = $1`, id)
		if found := f.differences(t, id); len(found) != 1 {
			t.Errorf("%s: verify found %q", name, found)
		}
	}
}

// TestStoreIsExportedImportedAndDeletedWithItsRun: the rows follow from the log.
func TestStoreIsExportedImportedAndDeletedWithItsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.withStore(t)
	f.must(t, onRun(id, entities.EventRunCompleted))
	want := f.storeRows(t, id)
	var records []Record
	if _, err := f.Export(t.Context(), id, func(r Record) error {
		records = append(records, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := pg.InTx(t.Context(), f.pool, func(tx pgx.Tx) error {
		var b pgx.Batch
		store.DeleteRuns(&b, []entities.RunID{id})
		return tx.SendBatch(t.Context(), &b).Close()
	}); err != nil {
		t.Fatal(err)
	}
	if left := f.storeRows(t, id); len(left) > 0 {
		t.Errorf("after the deletion of the run, its store has %v", left)
	}
	if _, err := f.Import(t.Context(), func() (Record, error) {
		if len(records) == 0 {
			return Record{}, io.EOF
		}
		r := records[0]
		records = records[1:]
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, f.storeRows(t, id)); diff != "" || len(want) != 3 {
		t.Errorf("rows after the import (-want +got):\n%s", diff)
	}
	f.wantSound(t, id)
}
