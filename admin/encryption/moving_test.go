package encryption_test

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// The keys of a project go with it to another cell. The next changes of other projects then have the revisions that its
// changes had.
func TestChangesAreNoticedAfterAProjectHasLeft(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	for _, project := range []string{"leaves", "stays"} {
		testdb.Exec(t, p.pool, `INSERT INTO projects (name) VALUES ('`+project+`')`)
	}
	idle := newProcess(t, dsn, master(t, "a"))
	sealed := func() bool {
		t.Helper()
		idle.late.Add(int64(6 * time.Second))
		if err := idle.Prepare("stays"); err != nil {
			t.Fatal(err)
		}
		stored, err := idle.Seal(atrest.Payload{Project: "stays", Bytes: []byte("secret")})
		if err != nil {
			t.Fatal(err)
		}
		return atrest.IsMade(stored)
	}
	for _, c := range []encryption.Change{encryption.Encrypt, encryption.Rotate} {
		if err := p.Apply(t.Context(), "leaves", c); err != nil {
			t.Fatal(err)
		}
	}
	if sealed() {
		t.Error("a project without a key is encrypted")
	}
	testdb.Exec(t, p.pool, `DELETE FROM data_keys WHERE project = 'leaves'`)
	for _, c := range []encryption.Change{encryption.Encrypt, encryption.Rotate} {
		if err := p.Apply(t.Context(), "stays", c); err != nil {
			t.Fatal(err)
		}
	}
	if !sealed() {
		t.Error("a payload of an encrypted project is stored as it is")
	}
}

// A project that comes from another cell has its keys already. A process that has just read those of others does not
// know them, and stores no payload as it is.
func TestProjectsComeWithTheirKeys(t *testing.T) {
	t.Parallel()
	p, dsn := newNotes(t, master(t, "a"))
	there := newProcess(t, dsn, master(t, "a"))
	if err := there.Prepare(string(home)); err != nil {
		t.Fatal(err)
	}
	testdb.Exec(t, p.pool, `INSERT INTO projects (name) VALUES ('comes')`)
	if err := p.Apply(t.Context(), "comes", encryption.Encrypt); err != nil {
		t.Fatal(err)
	}
	for _, project := range []string{"comes", string(home)} {
		if err := there.Prepare(project); err != nil {
			t.Fatal(err)
		}
		stored, err := there.Seal(atrest.Payload{Project: project, Bytes: []byte("secret")})
		if err != nil || atrest.IsMade(stored) != (project == "comes") {
			t.Errorf("%s has %q, %v", project, stored, err)
		}
	}
}
