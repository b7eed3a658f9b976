package admin

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestConcurrentSigningKeyChanges: of concurrent creations of keys, as many succeed as the limit allows.
func TestConcurrentSigningKeyChanges(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	keys := NewSigningKeys(pool, time.Now)
	for round := range 3 {
		const racers = 12
		errs := make([]error, racers)
		begin := make(chan struct{})
		var running sync.WaitGroup
		for i := range racers {
			running.Go(func() {
				<-begin
				_, _, errs[i] = keys.Create(t.Context(), "race")
			})
		}
		close(begin)
		running.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
			} else if !errors.Is(err, ErrTooManySigningKeys) {
				t.Errorf("round %d: %v", round, err)
			}
		}
		list, err := keys.List(t.Context(), "race")
		if err != nil || len(list) != maxSigningKeys {
			t.Fatalf("round %d: got %v, %v", round, list, err)
		}
		want := 1 // one was deleted
		if round == 0 {
			want = maxSigningKeys
		}
		if made != want {
			t.Errorf("round %d: %d keys were created, want %d", round, made, want)
		}
		if err := keys.Delete(t.Context(), "race", list[round%2].ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSigningKeysAreScopedToProject(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	keys := NewSigningKeys(pool, time.Now)
	var made []SigningKey
	for _, project := range []entities.Project{"a", "a", "b"} {
		k, _, err := keys.Create(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, k)
	}
	if err := keys.Delete(t.Context(), "b", made[0].ID); !errors.Is(err, ErrSigningKeyNotFound) {
		t.Errorf("delete a key of another project: %v", err)
	}
	for project, want := range map[entities.Project][]SigningKey{"a": made[:2], "b": made[2:], "c": nil} {
		got, err := keys.List(t.Context(), project)
		secrets, secretsErr := SigningKeySecrets(t.Context(), pool, project)
		if err != nil || secretsErr != nil || len(got) != len(want) || len(secrets) != len(want) {
			t.Fatalf("%s: got %v and %v, %v, %v", project, got, secrets, err, secretsErr)
		}
		for i := range want {
			if got[i].ID != want[i].ID || secrets[i].ID != want[i].ID || !got[i].CreatedAt.Equal(want[i].CreatedAt) {
				t.Errorf("%s: got %v, want %v", project, got[i], want[i])
			}
		}
	}
}

// TestSigningKeyConstraints: the table's constraints enforce the rules too.
func TestSigningKeyConstraints(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	insert := func(id string, slot, size int) error {
		_, err := pool.Exec(t.Context(), `INSERT INTO signing_keys (project, id, slot, secret, created_at)
			VALUES ('p', $1, $2, decode(repeat('00', $3), 'hex'), now())`, id, slot, size)
		return err
	}
	for _, tt := range []struct {
		id         string
		slot, size int
		constraint string
	}{
		{"1", 1, 32, ""}, {"2", 1, 32, "signing_keys_slot_key"}, {"2", 3, 32, "signing_keys_slot_check"},
		{"2", 0, 32, "signing_keys_slot_check"}, {"2", 2, 31, "signing_keys_secret_check"}, {"1", 2, 32, "signing_keys_pkey"},
	} {
		err := insert(tt.id, tt.slot, tt.size)
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			if refused.ConstraintName != tt.constraint {
				t.Errorf("%+v: got %v", tt, err)
			}
		} else if err != nil || tt.constraint != "" {
			t.Errorf("%+v: got %v", tt, err)
		}
	}
}
