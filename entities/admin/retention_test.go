package admin

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestRetentionSettings(t *testing.T) {
	t.Parallel()
	pool := openPool(t)
	r := NewRetentionSettings(pool)
	put := func(project entities.Project, keep *time.Duration) error {
		return r.Put(t.Context(), Retention{Project: project, Keep: keep})
	}
	want := []Retention{{Project: "a", Keep: ptr(90*24*time.Hour + time.Microsecond)}, {Project: "b"}}
	for _, err := range []error{put("b", ptr(time.Second)), put("b", nil), put("a", want[0].Keep), put("c", nil),
		r.Remove(t.Context(), "c"), r.Remove(t.Context(), "c")} {
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
	got, err := r.List(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ages differ (-want +got), error %v:\n%s", err, diff)
	}
}

func ptr[T any](v T) *T { return &v }
