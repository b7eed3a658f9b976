package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// breaking matches statements that servers of the previous version do not survive.
var breaking = regexp.MustCompile(`(?i)ALTER COLUMN \w+ (SET DATA )?TYPE|\bRENAME\b|DROP (TABLE|COLUMN)|SET NOT NULL`)

// TestMigrationsKeepThePreviousVersionRunning checks that migrations only add; see the package comment.
func TestMigrationsKeepThePreviousVersionRunning(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	// It is older than the rule. No other may be added here.
	want := []string{"sql/00016_enums.sql"}
	var got []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		if breaking.MatchString(up) {
			got = append(got, file)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("migrations that do more than add (-want +got):\n%s", diff)
	}
}
