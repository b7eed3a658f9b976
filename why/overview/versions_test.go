package overview

import (
	"slices"
	"testing"

	"github.com/stepwell-dev/stepwell/eventlog/live"
)

// TestVersions changes the data of each topic, and sees no other version change.
func TestVersions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	read := func() live.Versions {
		t.Helper()
		v, err := f.Versions(t.Context(), home)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := read()
	if again := read(); len(again.Changed(before)) > 0 {
		t.Errorf("nothing has changed, got %v", again.Changed(before))
	}
	f.messages(t, "other", "shop", "theirs", 3, `due_at`, `now()`)
	f.exec(t, `UPDATE deployments SET answered_at = now() WHERE project = 'other'`)
	for _, change := range []struct {
		name, sql string
		topics    []string
	}{
		{"of another project", `INSERT INTO audit (project, actor, action, subject, detail) VALUES ('other', 'a', 'key.create', 'k', '{}')`, nil},
		{"a message", `INSERT INTO messages (id, project, topic, deployment_id, content_type, body, expires_at, due_at)
			VALUES ('msg_1', 'default', 't', 'shop', '', '', now() + interval '1 d', now() + interval '1 h')`, []string{TopicQueue}},
		{"a failure of it", `UPDATE messages SET unreached_count = unreached_count + 1 WHERE id = 'msg_1'`, []string{TopicQueue}},
		{"it is parked", `UPDATE messages SET parked_at = now() WHERE id = 'msg_1'`, []string{TopicAttention, TopicQueue}},
		{"a change by hand", `INSERT INTO audit (project, actor, action, subject, detail) VALUES ('default', 'a', 'key.create', 'k', '{}')`, []string{TopicSettings}},
		{"an answer", `UPDATE deployments SET answered_at = now() WHERE project = 'default'`, []string{TopicSettings}},
		{"counts", `INSERT INTO stats_progress (project) VALUES ('default')`, []string{TopicStats}},
		{"a server", `INSERT INTO processes (id, host, session_key) VALUES ('one', 'h', 1)`, []string{TopicServers}},
		{"its beat", `UPDATE processes SET beat_at = now() WHERE id = 'one'`, nil},
		{"its silence", `UPDATE processes SET beat_at = now() - interval '5 s' WHERE id = 'one'`, []string{TopicServers}},
	} {
		f.exec(t, change.sql)
		after := read()
		if got := slices.Sorted(slices.Values(after.Changed(before))); !slices.Equal(got, change.topics) {
			t.Errorf("%s: got the topics %v, want %v", change.name, got, change.topics)
		}
		before = after
	}
}
