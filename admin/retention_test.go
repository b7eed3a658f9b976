package admin

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestRetentions(t *testing.T) {
	t.Parallel()
	pool := testdb.Pool(t)
	put := func(project entities.Project, keep *time.Duration) error {
		return PutRetention(t.Context(), pool, Retention{Project: project, Keep: keep})
	}
	want := []Retention{{Project: "a", Keep: ptr(90*24*time.Hour + time.Microsecond)}, {Project: "b"}}
	for _, err := range []error{put("b", ptr(time.Second)), put("b", nil), put("a", want[0].Keep), put("c", nil),
		RemoveRetention(t.Context(), pool, "c"), RemoveRetention(t.Context(), pool, "c")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{put("", nil), put("a b", nil), put("a", ptr(time.Duration(0))), put("a", ptr(-time.Second)),
		put("a", ptr(time.Nanosecond)), put("a", ptr(time.Second-1))} {
		if !errors.Is(err, entities.ErrInvalid) {
			t.Errorf("got error %v, want a refusal", err)
		}
	}
	got, err := Retentions(t.Context(), pool)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ages differ (-want +got), error %v:\n%s", err, diff)
	}
}

func ptr[T any](v T) *T { return &v }
