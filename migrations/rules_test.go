package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// baseline is the first migration.
const baseline = "00132_baseline.sql"

// breaking matches statements that servers of the previous version do not survive.
var breaking = regexp.MustCompile(`(?i)ALTER COLUMN \w+ (SET DATA )?TYPE|\bRENAME\b|DROP (TABLE|COLUMN)|SET NOT NULL`)

// TestMigrationsKeepThePreviousVersionRunning checks that migrations only add; see the package comment.
func TestMigrationsKeepThePreviousVersionRunning(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		if breaking.MatchString(up) {
			t.Errorf("%s does more than add, see the package comment", file)
		}
	}
}

// locking matches the creation of an index that blocks the writers of a table that grows.
var locking = regexp.MustCompile(`CREATE (UNIQUE )?INDEX \w+\s+ON ` +
	`(events|runs|steps|hooks|waits|messages|message_keys|streams|stream_chunks)\b`)

// TestIndexesOfLargeTablesDoNotLockThem checks that migrations build them concurrently, one in a file.
func TestIndexesOfLargeTablesDoNotLockThem(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file == "sql/"+baseline { // it creates the tables
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		if index := locking.FindString(up); index != "" {
			t.Errorf("%s: %q locks the table: build the index concurrently, see the package comment", file, index)
		}
		if n := strings.Count(up, "CONCURRENTLY"); n > 1 || n == 1 && !strings.Contains(up, "+goose NO TRANSACTION") {
			t.Errorf("%s: want one concurrent index, in a file without a transaction", file)
		}
	}
}
