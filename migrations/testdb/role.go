package testdb

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Role returns a new role without rights. Roles outlive a test's database; this one and its rights are removed when the
// test ends.
func Role(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	role := "role_" + strings.ToLower(rand.Text())
	for _, sql := range []string{`CREATE ROLE ` + role, `GRANT ` + role + ` TO CURRENT_USER`} { // who need be no superuser
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := pool.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	return role
}
