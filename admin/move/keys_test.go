package move

import (
	"testing"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestKeysChangeBesideAMove: a change of the target's keys that is under way when those of the project come.
func TestKeysChangeBesideAMove(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	tx, err := m.To.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rollBack(t.Context(), tx)
	for _, sql := range []string{encryption.LockKeys, `
		INSERT INTO data_keys (id, project, wrapped_by, wrapped, revision)
		VALUES (substr(sha256('c'), 1, 16), 'x', 'm', '\x01', 1)`} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	moved := make(chan error, 1)
	go func() { moved <- m.Move(t.Context(), shop, "eu2") }()
	testdb.Eventually(t, "the move waits for the change", func() bool {
		return testdb.In(m.To).Count(t, `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testdb.Receive(t, "the move", moved); err != nil {
		t.Error(err)
	}
	testdb.In(m.To).Want(t, "keys", 2, `SELECT count(*) FROM data_keys WHERE (project, revision) IN (('x', 1), ('shop', 2))`)
}
