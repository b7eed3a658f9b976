package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestAuditRecordsSecretsAndRetention(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	secrets := NewSecrets(pool, now)
	ctx, keep := WithActor(t.Context(), "key_1"), time.Hour
	do := []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := secrets.Put(ctx, home, "stripe", []SecretValue{"hush"})
			return err
		},
		func(ctx context.Context) error { return secrets.Delete(ctx, home, "stripe") },
		func(ctx context.Context) error {
			return PutRetention(ctx, pool, Retention{Project: home, Keep: &keep})
		},
		func(ctx context.Context) error { return RemoveRetention(ctx, pool, home) },
	}
	for _, d := range do {
		if err := d(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := secrets.Delete(ctx, home, "stripe"); !errors.Is(err, ErrSecretNotFound) {
		t.Error(err) // and it is not in the audit log
	}
	list, _, err := ListActions(t.Context(), pool, home, ActionFilter{}, pg.Page{Limit: 10, Descending: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range list {
		got = append(got, strings.Join([]string{string(a.Actor), string(a.Action), a.Subject, string(a.Detail)}, " "))
	}
	want := []string{
		"key_1 retention.remove " + string(home) + " {}", "key_1 retention.put " + string(home) + ` {"keep": "1h0m0s"}`,
		"key_1 secret.remove stripe {}", "key_1 secret.put stripe {}",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

// TestChangesThatCannotBeAuditedAreRolledBack has the last write of each action fail.
func TestChangesThatCannotBeAuditedAreRolledBack(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	secrets := NewSecrets(pool, now)
	ctx, keep := t.Context(), time.Hour
	if _, err := secrets.Put(ctx, home, "stripe", []SecretValue{"old"}); err != nil {
		t.Fatal(err)
	}
	if err := PutRetention(ctx, pool, Retention{Project: home}); err != nil {
		t.Fatal(err)
	}
	rows := func() string {
		t.Helper()
		all, err := pool.Query(ctx, `SELECT s::text || r::text FROM secrets s, retention r`)
		if err != nil {
			t.Fatal(err)
		}
		text, err := pgx.CollectExactlyOneRow(all, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := rows()
	if _, err := pool.Exec(ctx, `ALTER TABLE audit ADD CONSTRAINT silent CHECK (false) NOT VALID`); err != nil {
		t.Fatal(err)
	}
	_, put := secrets.Put(ctx, home, "stripe", []SecretValue{"new"})
	for name, err := range map[string]error{
		"put secret": put, "delete secret": secrets.Delete(ctx, home, "stripe"),
		"put retention":    PutRetention(ctx, pool, Retention{Project: home, Keep: &keep}),
		"remove retention": RemoveRetention(ctx, pool, home),
	} {
		if err == nil || !strings.Contains(err.Error(), "silent") {
			t.Errorf("%s: got %v, want the constraint's refusal", name, err)
		}
	}
	if diff := cmp.Diff(before, rows()); diff != "" {
		t.Errorf("rows (-before +after):\n%s", diff)
	}
}

func TestAuditIsPaged(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	for range 5 {
		for _, project := range []entities.Project{home, stranger} {
			if err := PutRetention(t.Context(), pool, Retention{Project: project}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, descending := range []bool{false, true} {
		p, seen := pg.Page{Limit: 2, Descending: descending}, []int64{}
		for {
			list, next, err := ListActions(t.Context(), pool, home, ActionFilter{}, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range list {
				if n := len(seen); a.Project != home || n > 0 && (a.Seq < seen[n-1]) != descending {
					t.Errorf("got %+v after %v", a, seen)
				}
				seen = append(seen, a.Seq)
			}
			if p.Cursor = next; next == "" {
				break
			}
		}
		if len(seen) != 5 {
			t.Errorf("got %v, want five", seen)
		}
	}
	for _, cursor := range []string{"0", "-1", "x", "1:2"} {
		_, _, err := ListActions(t.Context(), pool, home, ActionFilter{}, pg.Page{Limit: 1, Cursor: cursor})
		if !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("cursor %q: got %v, want ErrInvalid", cursor, err)
		}
	}
}
