package pg_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// labels is a codec that stores each payload with its place, and opens it at that place only.
type labels struct{ atrest.Identity }

func label(p atrest.Place) string { return fmt.Sprintf("%s %s %d:", p.Kind, p.Owner, p.Seq) }

func (labels) Seal(p atrest.Payload) ([]byte, error) {
	if p.Project == "broken" {
		return nil, errors.New("no key")
	}
	return append(append(atrest.Begin(atrest.Sealed), label(p.Place)...), p.Bytes...), nil
}

func (labels) Open(list []atrest.Item) error {
	for _, item := range list {
		_, rest := atrest.Split(item.Get())
		payload, ok := strings.CutPrefix(string(rest), label(item.Place))
		if !ok {
			return fmt.Errorf("%q is not at %s", rest, label(item.Place))
		}
		item.Set([]byte(payload))
	}
	return nil
}

// note is a row with payloads.
type note struct {
	ID    int64
	Bytes []byte
	Words string
}

func (n *note) Payloads(o *atrest.Opener) {
	at := atrest.Place{Kind: atrest.Event, Owner: "notes", Seq: n.ID}
	o.Bytes(at, &n.Bytes)
	o.Text(at, &n.Words)
}

func notes(t *testing.T, install ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool, err := migrations.Pool(t.Context(), testdb.Empty(t), "public", install...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE notes (id bigint, bytes bytea, words text)`); err != nil {
		t.Fatal(err)
	}
	return pool
}

func place(id int64, text string) atrest.Payload {
	p := atrest.Payload{Place: atrest.Place{Kind: atrest.Event, Owner: "notes", Seq: id}, Project: "home"}
	if text != "NULL" {
		p.Bytes = []byte(text)
	}
	return p
}

// Whatever passes a payload to a statement, alone or in a list, stores what the codec makes of it, and whatever collects
// rows gets the payload.
func TestPayloadsGoThroughTheCodec(t *testing.T) {
	t.Parallel()
	pool := notes(t, pg.InstallPayloads(labels{}))
	q := pg.NewPool(pool)
	if _, err := q.Exec(t.Context(), `INSERT INTO notes VALUES (1, $1, $2)`,
		place(1, "one"), atrest.Text(place(1, "eins"))); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Exec(t.Context(), `
		INSERT INTO notes SELECT id, b, w FROM unnest('{2,3,4}'::int[], $1::bytea[], $2::text[]) AS n (id, b, w)`,
		[]atrest.Payload{place(2, "two"), place(3, ""), place(4, "NULL")},
		[]atrest.Text{atrest.Text(place(2, "zwei")), atrest.Text(place(3, "")), atrest.Text(place(4, ""))}); err != nil {
		t.Fatal(err)
	}
	const all = `SELECT id, bytes, coalesce(words, '') AS words FROM notes ORDER BY id`
	want := []string{"1 one eins", "2 two zwei", "3  ", "4  "}
	check := func(how string, got []note, err error) {
		t.Helper()
		if err != nil || len(got) != len(want) {
			t.Fatalf("%s: %v, %v", how, got, err)
		}
		for i, n := range got {
			if line := fmt.Sprintf("%d %s %s", n.ID, n.Bytes, n.Words); line != want[i] {
				t.Errorf("%s: %q, want %q", how, line, want[i])
			}
		}
	}
	got, err := pg.CollectAll[note](q.Query(t.Context(), all))
	check("CollectAll", got, err)
	if got[2].Bytes == nil || got[3].Bytes != nil {
		t.Errorf("empty and NULL are %v and %v", got[2].Bytes, got[3].Bytes)
	}
	var b pgx.Batch
	var loaded []note
	pg.LoadEach(&b, func(n note) { loaded = append(loaded, n) }, all)
	check("LoadEach", loaded, q.Run(t.Context(), &b))
	check("LoadEach", loaded, nil)
	var bytes []byte
	var words string
	if err := pool.QueryRow(t.Context(), `SELECT bytes, words FROM notes WHERE id = 2`).Scan(&bytes, &words); err != nil ||
		!strings.Contains(string(bytes), "event notes 2:two") || strings.Contains(words, "zwei") || words[0] != '~' {
		t.Errorf("stored are %q and %q, %v", bytes, words, err)
	}
	if _, err := q.Exec(t.Context(), `UPDATE notes SET bytes = (SELECT bytes FROM notes WHERE id = 1) WHERE id = 2`); err != nil {
		t.Fatal(err)
	}
	if got, err := pg.CollectAll[note](q.Query(t.Context(), all)); err == nil {
		t.Errorf("a payload at another place was opened: %v", got)
	}
	broken := place(5, "five")
	broken.Project = "broken"
	if _, err := q.Exec(t.Context(), `INSERT INTO notes (id, bytes) VALUES (5, $1)`, broken); err == nil ||
		!strings.Contains(err.Error(), "no key") || strings.Contains(err.Error(), "five") ||
		strings.Contains(err.Error(), "0x66") {
		t.Errorf("a payload without a key: %v", err)
	}
}

// Without a codec payloads are stored as they are, also those that look like what a codec makes, and what a codec has
// made is not taken for a payload.
func TestPayloadsWithoutACodec(t *testing.T) {
	t.Parallel()
	for name, install := range map[string][]func(*pgxpool.Config){
		"none": nil, "identity": {pg.InstallPayloads(atrest.Identity{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := notes(t, install...)
			for id, text := range []string{"plain", atrest.Magic + "\x01forged", atrest.Magic, ""} {
				if _, err := pool.Exec(t.Context(), `INSERT INTO notes VALUES ($1, $2, $3)`,
					id, place(int64(id), text), atrest.Text(place(int64(id), "{}"))); err != nil {
					t.Fatal(err)
				}
				n, err := pg.CollectOne[note](firstRows(pool.Query(t.Context(), `SELECT * FROM notes WHERE id = $1`, id)))
				if err != nil || string(n.Bytes) != text || n.Words != "{}" {
					t.Errorf("%q was read as %q and %q, %v", text, n.Bytes, n.Words, err)
				}
			}
			if _, err := pool.Exec(t.Context(), `UPDATE notes SET bytes = $1`, append(atrest.Begin(atrest.Sealed), "x"...)); err != nil {
				t.Fatal(err)
			}
			_, err := pg.CollectAll[note](pool.Query(t.Context(), `SELECT * FROM notes`))
			if !errors.Is(err, atrest.ErrUnreadable) {
				t.Errorf("an encrypted payload: %v", err)
			}
		})
	}
}

func firstRows(rows pgx.Rows, err error) (pgx.Rows, error, error) { return rows, err, pgx.ErrNoRows }

// joined is a value to which each scan adds.
type joined string

func (j *joined) Scan(v any) error {
	*j += joined(fmt.Sprint(v))
	return nil
}

// TestRowsShareNothing: the fields of a row have nothing of the row before.
func TestRowsShareNothing(t *testing.T) {
	t.Parallel()
	type row struct {
		ID     int
		Labels map[string]string
		At     *string
		Bytes  []byte
		Joined joined
	}
	got, err := pg.CollectAll[row](notes(t).Query(t.Context(), `
		SELECT *, id::text AS joined FROM (VALUES
			(1, '{"a": "1"}'::jsonb, 'x', '\x01'::bytea), (2, '{"b": "2"}', NULL, NULL), (3, NULL, 'y', '\x02')
		) AS rows (id, labels, at, bytes) ORDER BY id`))
	want := []row{
		{1, map[string]string{"a": "1"}, new("x"), []byte{1}, "1"}, {2, map[string]string{"b": "2"}, nil, nil, "2"},
		{3, nil, new("y"), []byte{2}, "3"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if got, err := pg.CollectAll[row](notes(t).Query(t.Context(), `SELECT 1 AS id`)); err == nil {
		t.Errorf("columns are missing: got %v, want an error", got)
	}
}
