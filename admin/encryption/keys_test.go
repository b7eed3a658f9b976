package encryption_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/admin/encryption/awskms"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const home = entities.DefaultProject

// master returns master keys in the form of the setting, made from their names.
func master(t testing.TB, names ...string) encryption.MasterKeys {
	t.Helper()
	var text strings.Builder
	for _, name := range names {
		key := bytes.Repeat([]byte(name[:1]), 32)
		fmt.Fprintf(&text, "%s=%s\n", name, base64.StdEncoding.EncodeToString(key))
	}
	keys, err := encryption.ParseMasterKeys(text.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// process is a server's keys with its pool, and a clock that only the test moves.
type process struct {
	*encryption.Keys
	pool *pgxpool.Pool
	late atomic.Int64
}

func newProcess(t testing.TB, dsn string, masters encryption.MasterKeys) *process {
	t.Helper()
	p := &process{}
	began := time.Now()
	p.Keys = encryption.New(masters, func() time.Time { return began.Add(time.Duration(p.late.Load())) })
	pool, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema, pg.InstallPayloads(p.Keys))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p.pool = pool
	p.Use(pool)
	t.Cleanup(p.Close)
	return p
}

func (p *process) apply(t testing.TB, c encryption.Change) {
	t.Helper()
	if err := p.Apply(t.Context(), home, c); err != nil {
		t.Fatal(err)
	}
}

func (p *process) state(t *testing.T) admin.Encryption {
	t.Helper()
	project, err := admin.ProjectByName(t.Context(), p.pool, home, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return project.Encryption
}

// note is a row of a table of the test.
type note struct {
	ID   int64
	Text []byte
}

func (n *note) place() atrest.Place {
	return atrest.Place{Kind: atrest.Event, Owner: "wrun_1", Seq: n.ID}
}

func (n *note) Payloads(o *atrest.Opener) { o.Bytes(n.place(), &n.Text) }

func (p *process) write(ctx context.Context, id int64, text string) error {
	if err := p.Prepare(string(home)); err != nil {
		return err
	}
	n := note{ID: id}
	_, err := p.pool.Exec(ctx, `INSERT INTO notes VALUES ($1, $2)`,
		id, atrest.Payload{Place: n.place(), Project: string(home), Bytes: []byte(text)})
	return err
}

func (p *process) read(ctx context.Context, id int64) (string, error) {
	rows, err := p.pool.Query(ctx, `SELECT * FROM notes WHERE id = $1`, id)
	n, err := pg.CollectOne[note](rows, err, errors.New("no note"))
	return string(n.Text), err
}

func (p *process) wants(t *testing.T, id int64, want string) {
	t.Helper()
	if got, err := p.read(t.Context(), id); err != nil || got != want {
		t.Errorf("note %d is %q, %v, want %q", id, got, err, want)
	}
}

func newNotes(t *testing.T, masters encryption.MasterKeys) (*process, string) {
	t.Helper()
	dsn := testdb.New(t)
	p := newProcess(t, dsn, masters)
	if _, err := p.pool.Exec(t.Context(), `CREATE TABLE notes (id bigint, text bytea)`); err != nil {
		t.Fatal(err)
	}
	return p, dsn
}

func mustWrite(t *testing.T, p *process, id int64, text string) {
	t.Helper()
	if err := p.write(t.Context(), id, text); err != nil {
		t.Fatal(err)
	}
}

func TestPayloadsAreEncryptedWhereTheyAreStored(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	mustWrite(t, p, 1, "before")
	p.apply(t, encryption.Encrypt)
	mustWrite(t, p, 2, "secret")
	mustWrite(t, p, 3, "secret")
	mustWrite(t, p, 4, "")
	for id, want := range map[int64]string{1: "before", 2: "secret", 4: ""} {
		p.wants(t, id, want)
		newProcess(t, dsn, master(t, "a")).wants(t, id, want)
	}
	var stored [][]byte
	rows, _ := p.pool.Query(t.Context(), `SELECT text FROM notes WHERE id > 1 ORDER BY id`)
	stored, err := pg.CollectColumn[[]byte](rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(stored[0], []byte("secret")) || bytes.Equal(stored[0], stored[1]) ||
		len(stored[0]) != len("secret")+encryption.Overhead {
		t.Errorf("stored are %q and %q", stored[0], stored[1])
	}
	for name, change := range map[string]string{
		"moved":     `UPDATE notes SET text = (SELECT text FROM notes WHERE id = 2) WHERE id = 3`,
		"changed":   `UPDATE notes SET text = set_byte(text, 50, get_byte(text, 50) # 1) WHERE id = 3`,
		"shortened": `UPDATE notes SET text = substr(text, 1, 40) WHERE id = 3`,
	} {
		if _, err := p.pool.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		if got, err := p.read(t.Context(), 3); !errors.Is(err, atrest.ErrAltered) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := p.pool.Exec(t.Context(), `UPDATE notes SET text = $1 WHERE id = 3`, stored[1]); err != nil {
			t.Fatal(err)
		}
	}
	p.wants(t, 3, "secret")
}

// Many processes that encrypt a project at once make one key for it.
func TestRacersMakeOneKey(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	var racers sync.WaitGroup
	for i := range int64(8) {
		racer := newProcess(t, dsn, master(t, "a"))
		racers.Go(func() {
			if err := racer.Apply(t.Context(), home, encryption.Encrypt); err != nil {
				t.Error(err)
			}
			if err := racer.write(t.Context(), i, "secret"); err != nil {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	if s := p.state(t); s.DataKeys != 1 || *s.MasterKey != "a" {
		t.Errorf("the project has %d keys", s.DataKeys)
	}
	for i := range int64(8) {
		p.wants(t, i, "secret")
	}
}

// While writers write, the key is rotated again and again: all that they write is readable, by earlier keys, too.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	const writers, each = 8, 25
	processes := []*process{p, newProcess(t, dsn, master(t, "a"))}
	var writing sync.WaitGroup
	for w := range int64(writers) {
		writer := processes[w%2]
		writing.Go(func() {
			for i := range int64(each) {
				if err := writer.write(t.Context(), w*each+i, "secret"); err != nil {
					t.Error(err)
				}
				writer.late.Add(int64(time.Second)) // it asks for changes again after some
			}
		})
	}
	for range 5 {
		p.apply(t, encryption.Rotate)
	}
	writing.Wait()
	for i := range int64(writers * each) {
		p.wants(t, i, "secret")
	}
	if s := p.state(t); s.DataKeys != 6 || s.DestroyedKeys != 0 {
		t.Errorf("the project has %+v", s)
	}
}

// What destroyed keys have encrypted stays as it is stored, in each process after a few seconds; what comes after is
// readable.
func TestShredding(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	other := newProcess(t, dsn, master(t, "a"))
	mustWrite(t, p, 1, "secret")
	p.apply(t, encryption.Rotate)
	mustWrite(t, p, 2, "secret")
	other.wants(t, 1, "secret")
	p.apply(t, encryption.Shred)
	other.late.Add(int64(6 * time.Second))
	mustWrite(t, other, 3, "after")
	for _, reader := range []*process{p, other, newProcess(t, dsn, master(t, "a"))} {
		reader.wants(t, 3, "after")
		for id := range int64(2) {
			if got, err := reader.read(t.Context(), 1+id); err != nil || !atrest.IsMade([]byte(got)) {
				t.Errorf("note %d is %q, %v", 1+id, got, err)
			}
		}
	}
	if s := p.state(t); s.DataKeys != 1 || s.DestroyedKeys != 2 {
		t.Errorf("the project has %+v", s)
	}
	var left int
	if err := p.pool.QueryRow(t.Context(), `SELECT count(wrapped) FROM data_keys`).Scan(&left); err != nil || left != 1 {
		t.Errorf("%d keys are left, %v", left, err)
	}
}

// A new master key wraps what the old one has wrapped; then the old one is needed no more.
func TestMasterKeysAreReplaced(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	p.apply(t, encryption.Encrypt)
	mustWrite(t, p, 1, "secret")
	both := newProcess(t, dsn, master(t, "b", "a"))
	both.wants(t, 1, "secret")
	both.apply(t, encryption.Rewrap)
	both.apply(t, encryption.Rewrap)
	var entries int
	if err := p.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM audit WHERE action = 'project.rewrap'`).Scan(&entries); err != nil || entries != 1 {
		t.Errorf("there are %d entries in the audit, %v", entries, err)
	}
	newProcess(t, dsn, master(t, "b")).wants(t, 1, "secret")
	without := newProcess(t, dsn, master(t, "a"))
	if _, err := without.read(t.Context(), 1); !errors.Is(err, encryption.ErrUnavailable) ||
		!strings.Contains(err.Error(), `"b"`) {
		t.Errorf("without the key: %v", err)
	}
	if err := without.write(t.Context(), 2, "lost"); !errors.Is(err, encryption.ErrUnavailable) {
		t.Errorf("without the key: %v", err)
	}
}

// distant is a master key in a service that is away now and then.
type distant struct {
	encryption.MasterKey
	away atomic.Bool
}

func (d *distant) Unwrap(ctx context.Context, wrapped []byte, about encryption.About) ([]byte, error) {
	if d.away.Load() {
		return nil, errors.New("no answer")
	}
	return d.MasterKey.Unwrap(ctx, wrapped, about)
}

// While the master key is away, a process goes on with the keys that it has. One that has none refuses to read and to
// write, stores nothing, and goes on once the master key is back.
func TestMasterKeyIsAway(t *testing.T) {
	t.Parallel()
	local := master(t, "a")
	p, dsn := newNotes(t, local)
	p.apply(t, encryption.Encrypt)
	mustWrite(t, p, 1, "secret")
	service := &distant{MasterKey: local[0].MasterKey}
	service.away.Store(true)
	late := newProcess(t, dsn, encryption.MasterKeys{{Name: "a", MasterKey: service}})
	if _, err := late.read(t.Context(), 1); !errors.Is(err, encryption.ErrUnavailable) {
		t.Errorf("reading: %v", err)
	}
	if err := late.write(t.Context(), 2, "plain"); !errors.Is(err, encryption.ErrUnavailable) {
		t.Errorf("writing: %v", err)
	}
	if _, err := late.pool.Exec(t.Context(), `INSERT INTO notes VALUES (2, $1)`,
		atrest.Payload{Project: string(home), Bytes: []byte("plain")}); err == nil {
		t.Error("a payload was stored without its key")
	}
	service.away.Store(false)
	late.wants(t, 1, "secret")
	mustWrite(t, late, 3, "secret")
	service.away.Store(true)
	mustWrite(t, late, 4, "secret")
	for _, id := range []int64{1, 3, 4} {
		late.wants(t, id, "secret")
	}
	if _, err := p.read(t.Context(), 2); err == nil {
		t.Error("there is a note that was refused")
	}
}

// A change whose last statement fails leaves nothing behind.
func TestFailedChangeLeavesNoTrace(t *testing.T) {
	t.Parallel()
	p, _ := newNotes(t, master(t, "a"))
	for _, sql := range []string{
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''full''; END'`,
		`CREATE TRIGGER refuse BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION refuse()`,
	} {
		if _, err := p.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Apply(t.Context(), home, encryption.Encrypt); err == nil {
		t.Fatal("the change succeeded")
	}
	if s := p.state(t); s.EncryptedSince != nil {
		t.Errorf("the project has %+v", s)
	}
	mustWrite(t, p, 1, "plain")
	if _, err := p.pool.Exec(t.Context(), `DROP TRIGGER refuse ON audit`); err != nil {
		t.Fatal(err)
	}
	p.apply(t, encryption.Encrypt)
	p.wants(t, 1, "plain")
}

func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	for _, tt := range []struct {
		by      *process
		project entities.Project
		change  encryption.Change
		want    error
	}{
		{newProcess(t, dsn, nil), home, encryption.Encrypt, encryption.ErrNoMasterKey},
		{p, "nobody", encryption.Encrypt, admin.ErrProjectNotFound},
		{p, home, encryption.Rotate, encryption.ErrNotEncrypted},
		{p, home, encryption.Shred, encryption.ErrNotEncrypted},
		{p, home, encryption.Rewrap, encryption.ErrNotEncrypted},
		{p, home, "off", entities.ErrInvalid},
	} {
		if err := tt.by.Apply(t.Context(), tt.project, tt.change); !errors.Is(err, tt.want) {
			t.Errorf("%s of %s: %v, want %v", tt.change, tt.project, err, tt.want)
		}
	}
	p.apply(t, encryption.Encrypt)
	for range 99 {
		p.apply(t, encryption.Rotate)
	}
	if err := p.Apply(t.Context(), home, encryption.Rotate); !errors.Is(err, encryption.ErrTooManyKeys) {
		t.Errorf("one more: %v", err)
	}
	p.apply(t, encryption.Shred) // makes room
	p.apply(t, encryption.Rotate)
}

func TestMasterKeysAreParsed(t *testing.T) {
	t.Parallel()
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	for text, want := range map[string]int{
		"": 0, "2026=" + key: 1, "# old\n2026=" + key + ",\n2025=" + key + "\n": 2, "a=aws-kms:arn:1:alias/a,b=" + key: 2,
	} {
		if keys, err := encryption.ParseMasterKeys(text, awskms.Config{}); err != nil || len(keys) != want {
			t.Errorf("%q: %v, %v", text, keys, err)
		}
	}
	for _, text := range []string{key, "a=" + key[:20], "a=" + key + " a=" + key, "a b=" + key, "a=", "a=aws-kms:"} {
		_, err := encryption.ParseMasterKeys(text, awskms.Config{})
		if err == nil || strings.Contains(err.Error(), key[:20]) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if keys, err := encryption.ParseMasterKeys("a=aws-kms:alias/a", nil); err == nil {
		t.Errorf("without a service: %v", keys)
	}
}

// BenchmarkPayload encrypts and decrypts a payload of 1 KiB.
func BenchmarkPayload(b *testing.B) {
	p := newProcess(b, testdb.New(b), master(b, "a"))
	p.apply(b, encryption.Encrypt)
	if err := p.Prepare(string(home)); err != nil {
		b.Fatal(err)
	}
	n := note{ID: 1}
	payload := atrest.Payload{Place: n.place(), Project: string(home), Bytes: make([]byte, 1<<10)}
	b.ReportAllocs()
	for b.Loop() {
		stored, err := p.Seal(payload)
		if err != nil {
			b.Fatal(err)
		}
		n.Text = stored
		var o atrest.Opener
		n.Payloads(&o)
		if err := o.Open(p); err != nil {
			b.Fatal(err)
		}
	}
}
