package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// refused sends a request that must be refused with the code.
func (e *encrypted) refused(path, body, code string) {
	e.t.Helper()
	resp := servertest.Request(e.t, http.MethodPost, "http://"+e.addr+path, body, "Content-Type", "application/json")
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `"`+code+`"`) {
		e.t.Errorf("%s: %s: %s, %v, want %s", path, resp.Status, text, err, code)
	}
}

// exec changes the database.
func (e *encrypted) exec(sql string, args ...any) {
	e.t.Helper()
	if _, err := e.pool.Exec(e.t.Context(), sql, args...); err != nil {
		e.t.Fatal(err)
	}
}

func (e *encrypted) count(sql string, args ...any) (n int) {
	e.t.Helper()
	if err := e.pool.QueryRow(e.t.Context(), sql, args...).Scan(&n); err != nil {
		e.t.Fatal(err)
	}
	return n
}

// exported returns the records of a run.
func (e *encrypted) exported(run string) (records []upkeep.Record) {
	e.t.Helper()
	_, err := upkeep.NewMaintainer(e.pool, time.Now).Export(e.t.Context(), entities.RunID(run), func(r upkeep.Record) error {
		records = append(records, r)
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return records
}

// imported imports records.
func (e *encrypted) imported(records []upkeep.Record) error {
	_, err := upkeep.NewMaintainer(e.pool, time.Now).Import(e.t.Context(), func() (upkeep.Record, error) {
		if len(records) == 0 {
			return upkeep.Record{}, io.EOF
		}
		r := records[0]
		records = records[1:]
		return r, nil
	})
	return err
}

// paths are those of a run that show payloads.
var paths = []string{"", "/events?payloads=true", "/steps", "/hooks", "/store", "/why", "/timeline"}

// Of a shredded run nobody reads a payload: not in a server that has read it before, not in another one, and not in an
// export. Another run of the project is as it was. Nothing goes on from the shredded one, and its log is sound.
func TestShreddedRun(t *testing.T) {
	t.Parallel()
	e := newEncrypted(t)
	e.call(http.MethodPut, "/v1/projects/default", `{"encryption":"run-keys"}`)
	e.exec(`UPDATE data_keys SET created_at = created_at - interval '1 minute'`)
	e.call(http.MethodPut, "/v1/deployments/shop", `{"url":"`+function(t).URL+`","workflows":["order"]}`)
	var runs [2]string
	for i := range runs {
		runs[i] = e.start(`{"workflow":"order","deployment":"shop","input":"` + marker + `input of the run"}`)
		e.logged(runs[i], "hook_created")
	}
	e.refused("/v1/runs/"+runs[0]+"/shred", "", "run_not_ended")
	e.call(http.MethodPost, "/v1/signals/paid", `{"data":"`+marker+`data of the signal"}`)
	for _, run := range runs {
		has(t, "the run", e.ended(run), "input of the run", "output of the run")
	}
	shredded, kept := runs[0], runs[1]
	e.call(http.MethodPut, "/sdk/v2/runs/"+shredded+"/stream/strm_1", marker+"chunk")
	before := e.exported(shredded)
	e.checkDump()

	e.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON run_store FOR EACH STATEMENT EXECUTE FUNCTION refuse()`)
	e.refused("/v1/runs/"+shredded+"/shred", "", "internal")
	has(t, "a run whose shredding has failed", e.call(http.MethodGet, "/v1/runs/"+shredded+"/store", ""), "value of the store")
	if n := e.count(`SELECT count(*) FROM streams WHERE run_id = $1`, shredded) +
		e.count(`SELECT count(secret) FROM run_keys WHERE run_id = $1`, shredded); n != 2 {
		t.Errorf("a failed shredding leaves %d rows, want 2", n)
	}
	e.exec(`DROP TRIGGER refuse ON run_store`)
	for range 2 {
		e.call(http.MethodPost, "/v1/runs/"+shredded+"/shred", "")
	}
	if n := e.count(`SELECT count(*) FROM audit WHERE action = 'run.shred' AND subject = $1`, shredded); n != 1 {
		t.Errorf("the audit has %d entries", n)
	}

	e.checkShredded(shredded, kept)
	e.refused("/v1/runs/"+shredded+"/rerun", `{}`, "payloads_shredded")
	e.refused("/v1/runs/"+shredded+"/rerun", `{"at":2}`, "payloads_shredded")
	err := upkeep.NewMaintainer(e.pool, time.Now).Verify(t.Context(), entities.RunID(shredded), func(d upkeep.Difference) {
		t.Errorf("verify: %v", d)
	})
	if err != nil {
		t.Error(err)
	}
	for _, r := range e.exported(shredded) {
		if r.Event != nil && r.Event.Payload != nil && !atrest.IsUnreadable(r.Event.Payload) {
			t.Errorf("the export has %q", r.Event.Payload)
		}
	}
	e.exec(`DELETE FROM runs WHERE id = $1`, shredded)
	if err := e.imported(before); !errors.Is(err, atrest.ErrShredded) {
		t.Errorf("an export of before is imported: %v", err)
	}
}

// checkShredded reads the runs from this server, which has had their keys, and from another one.
func (e *encrypted) checkShredded(shredded, kept string) {
	e.t.Helper()
	other := newServer(e.t, e.dsn, RoleAPI)
	other.EncryptionKeys = e.EncryptionKeys
	mustStart(e.t, other)
	for _, s := range []*Server{e.Server, other} {
		from := &encrypted{s, e.t, e.dsn}
		for _, path := range paths {
			if text := from.call(http.MethodGet, "/v1/runs/"+shredded+path, ""); strings.Contains(text, marker) || !json.Valid([]byte(text)) {
				e.t.Errorf("%s of a shredded run is %s", path, text)
			}
		}
		if text := from.call(http.MethodGet, "/sdk/v2/runs/"+shredded, ""); strings.Contains(text, marker) {
			e.t.Errorf("the SDK gets %q", text)
		}
		has(e.t, "the other run", from.call(http.MethodGet, "/v1/runs/"+kept, ""), "input of the run", "output of the run")
	}
}
