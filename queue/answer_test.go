package queue

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// TestAnswerIsOneStatement: its events, its message with the key, and the acknowledgement.
func TestAnswerIsOneStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := on(t, withoutHints(t, dsn).pool)
	session := gate.Open(t, dsn, home.pool, nil)
	server := on(t, session.Pool)
	home.delivered(t)
	if err := server.log.CheckMessage(t.Context(), project, "wrun_none"); err != nil { // reads the project's limits
		t.Fatal(err)
	}
	var err error
	statements := session.Run(t, -1, gate.None, func() { _, err = answers(t.Context(), home.with(server)) })
	if err != nil || len(statements) != 2 || !strings.HasPrefix(statements[0], "WITH run AS") || statements[1] != "COMMIT" {
		t.Errorf("got statements %.40q and error %v, want a single one", statements, err)
	}
	for what, want := range map[string]int{
		`runs`: 1, `messages WHERE body = 'next' AND lease = ''`: 1, `messages WHERE body = 'body'`: 0,
		`message_keys WHERE message_id = (SELECT id FROM messages)`: 1,
	} {
		if got := home.Count(t, `SELECT count(*) FROM `+what); got != want {
			t.Errorf("got %d rows of %s, want %d", got, what, want)
		}
	}
}

// TestAcknowledgementNotesWhatADeliveryHasSeen: of a run with a hook, also as part of an answer.
func TestAcknowledgementNotesWhatADeliveryHasSeen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		topic  string
		hooked bool
		notes  int
	}{{topic, true, 1}, {topic, false, 0}, {"__wkf_step_charge", true, 0}} {
		t.Run(fmt.Sprintf("%s, hook %v", test.topic, test.hooked), func(t *testing.T) {
			t.Parallel()
			s := on(t, withoutHints(t, testdb.New(t)).pool)
			s.delivered(t)
			s.Exec(t, `UPDATE messages SET run_id = 'wrun_other', leased_seq = 7, topic = $1`, test.topic)
			s.newRun(t, "wrun_other", 0)
			if test.hooked {
				s.Exec(t, `
					INSERT INTO hooks (run_id, id, project, token, is_webhook, spec_version, created_seq, created_at)
					VALUES ('wrun_other', 'hook_1', $1, 'token', false, 3, 1, now())`, project)
			}
			if _, err := answersOn(t.Context(), s, test.topic); err != nil {
				t.Fatal(err)
			}
			got := s.Count(t, `SELECT count(*) FROM run_wakes WHERE run_id = 'wrun_other' AND acked_seq = 7`)
			if left := s.Count(t, `SELECT count(*) FROM messages WHERE body = 'body'`); got != test.notes || left != 0 {
				t.Errorf("got %d notes, and %d messages are left; want %d and none", got, left, test.notes)
			}
		})
	}
}

// TestRacersClaimAKeyOnce: answers of many runs and plain sends, on two servers. All learn of the one message, and all
// events are stored.
func TestRacersClaimAKeyOnce(t *testing.T) {
	t.Parallel()
	const racers = 16
	dsn := testdb.New(t)
	servers := []*site{on(t, withoutHints(t, dsn).pool), on(t, withoutHints(t, dsn).pool)}
	servers[0].empty(t)
	var all sync.WaitGroup
	begin := make(chan struct{})
	ids := make([]any, racers)
	for i := range racers {
		all.Go(func() {
			s := *servers[i%2]
			s.run, s.handle = entities.RunID("wrun_"+ulid.Make().String()), fmt.Sprint("rh_none_", i)
			do := answers
			if i%4 > 1 {
				do = sends(keyed("key"))
			}
			<-begin
			var err error
			if ids[i], err = do(t.Context(), &s); err != nil {
				t.Error(err)
			}
		})
	}
	close(begin)
	all.Wait()
	for i, id := range ids {
		if id == "" || id != ids[0] {
			t.Errorf("racer %d got the message %q, and racer 0 %q", i, id, ids[0])
		}
	}
	servers[0].Want(t, "messages", 1, `SELECT count(*) FROM messages`)
	servers[0].Want(t, "events", racers/2, `SELECT count(*) FROM events`)
}
