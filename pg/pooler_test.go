package pg_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
)

// TestSettingsOfAPooler: a role without the settings is refused with the statements that set them; after these it is
// not.
func TestSettingsOfAPooler(t *testing.T) {
	t.Parallel()
	config := check.Value(pgxpool.ParseConfig(testdb.Empty(t)))(t)
	config.ConnConfig.RuntimeParams = map[string]string{
		"application_name": "stepwell", "search_path": `"odd name"`, "jit": "off", "statement_timeout": "61s",
		"lock_timeout": "120000", "DateStyle": "ISO, MDY", // the default
	}
	var p pg.Pooler
	p.Install(config)
	pool := check.Value(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	refused := p.Check(t.Context())
	if !errors.Is(refused, pg.ErrPoolerSettings) {
		t.Fatalf("got %v, want that settings are missing", refused)
	}
	statements := regexp.MustCompile(`ALTER ROLE [^;]*?( SET (\w+) = ("[^"]*"|'[^']*'))`).FindAllStringSubmatch(refused.Error(), -1)
	var names []string
	for _, statement := range statements {
		names = append(names, statement[2])
		if _, err := pool.Exec(t.Context(), statement[0]); err != nil {
			t.Errorf("%s: %v", statement[0], err)
		}
	}
	if got, want := strings.Join(names, " "), "jit lock_timeout search_path statement_timeout"; got != want {
		t.Errorf("got statements for %s, want %s", got, want)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Errorf("got %v after them", err)
	}
}

func TestSessionsMustBeOfTheSameDatabase(t *testing.T) {
	t.Parallel()
	one, other := testdb.Empty(t), testdb.Empty(t)
	sessions := testdb.Connect(t, one)
	if err := pg.CheckSameDatabase(t.Context(), sessions, testdb.Connect(t, one)); err != nil {
		t.Errorf("got %v for one database", err)
	}
	if err := pg.CheckSameDatabase(t.Context(), sessions, testdb.Connect(t, other)); !errors.Is(err, pg.ErrOtherDatabase) {
		t.Errorf("got %v for another database", err)
	}
}
