package admin

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestOriginsOfSecretsAreKept when its values are replaced, unless others are given, or none.
func TestOriginsOfSecretsAreKept(t *testing.T) {
	t.Parallel()
	s := NewSecrets(testdb.Pool(t), func() time.Time { return day })
	const mail, other = "https://mail.example.com", "https://other.example.com"
	for _, tt := range []struct{ origins, want []string }{
		{nil, []string{}},
		{[]string{mail}, []string{mail}},
		{nil, []string{mail}},
		{[]string{other, mail}, []string{other, mail}},
		{[]string{}, []string{}},
		{nil, []string{}},
	} {
		got, err := s.Put(t.Context(), home, "mail", []SecretValue{"v"}, tt.origins...)
		if diff := cmp.Diff(tt.want, got.Origins); err != nil || diff != "" {
			t.Errorf("put %q: %v (-want +got):\n%s", tt.origins, err, diff)
		}
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	pool, now := testdb.Pool(t), day
	s := NewSecrets(pool, func() time.Time { return now })
	put := func(project entities.Project, name string, values ...SecretValue) {
		t.Helper()
		if _, err := s.Put(t.Context(), project, name, values); err != nil {
			t.Fatal(err)
		}
	}
	values := func(project entities.Project, name string, want ...SecretValue) {
		t.Helper()
		got, err := s.Values(t.Context(), project, name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s of %s: error %v, values differ: %v", name, project, err, diff != "")
		}
	}
	put(home, "stripe", "old")
	put(stranger, "stripe", "theirs")
	now = now.Add(1)
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
		if !errors.Is(err, ErrSecretNotFound) {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	values(stranger, "stripe", "theirs")
}
