package eventlog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/admin"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := admin.NewSecrets(f.pool, f.clock.now)
	put := func(project entities.Project, name string, values ...admin.SecretValue) {
		t.Helper()
		if _, err := s.Put(t.Context(), project, name, values); err != nil {
			t.Fatal(err)
		}
	}
	values := func(project entities.Project, name string, want ...admin.SecretValue) {
		t.Helper()
		got, err := s.Values(t.Context(), project, name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s of %s: error %v, values differ: %v", name, project, err, diff != "")
		}
	}
	put(home, "stripe", "old")
	put(stranger, "stripe", "theirs")
	f.clock.move(1)
	put(home, "stripe", "new", "old")
	values(home, "stripe", "new", "old")
	values(stranger, "stripe", "theirs")
	list, err := s.List(t.Context(), home)
	if err != nil || len(list) != 1 || list[0].Name != "stripe" || !list[0].CreatedAt.Equal(day) {
		t.Errorf("list: %v, %v", list, err)
	}
	if err := s.Delete(t.Context(), home, "stripe"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"delete again": s.Delete(t.Context(), home, "stripe"),
		"read":         func() error { _, err := s.Values(t.Context(), home, "stripe"); return err }(),
	} {
		if !errors.Is(err, admin.ErrSecretNotFound) {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	values(stranger, "stripe", "theirs")
}
