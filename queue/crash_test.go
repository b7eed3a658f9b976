package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// sendsAll sends a batch of two messages, one of them with a key.
func sendsAll(ctx context.Context, s *site) (any, error) {
	return s.SendAll(ctx, []message.Message{newMessage(keyed("key"), body("1")), newMessage(body("2"))})
}

// starts creates a run and sends the message that starts it, in one transaction.
func starts(ctx context.Context, s *site) (any, error) {
	result, err := s.log.Append(ctx, project, eventlog.Request{
		RunID: entities.RunID(s.id), Type: entities.EventRunCreated, SpecVersion: 3,
		Data: entities.EventData{DeploymentID: deployment, WorkflowName: "order"}, Payload: []byte("input"),
		Messages: []message.Message{newMessage(keyed("key"))},
	})
	return result.Event != nil, err
}

// noRun sets up a site whose run does not exist yet.
func (s *site) noRun(t *testing.T) {
	t.Helper()
	s.empty(t)
	s.Exec(t, `DELETE FROM runs`)
	s.id = "wrun_" + ulid.MustNew(ulid.Timestamp(time.Now()), rand.Reader).String()
}

// TestQueueSurvivesACrashAtAnyStatement interrupts every write of the queue at each of its statements, the commit
// included: by killing the database session before the statement, and by cutting the connection after it. Either all of
// the write is stored or nothing, including message, key and ticket. The caller then repeats the call: if the write was
// lost, the repetition has the full effect; if only the response was lost, the repetition reports that.
func TestQueueSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	home := on(t, withoutHints(t, dsn).pool)
	for name, test := range map[string]struct {
		setup func(*site, *testing.T)
		do    operation
		// again is the error of repeating a call that had succeeded, and grows is how many messages the repetition
		// adds: without a key it cannot be distinguished from a new message.
		again error
		grows int
	}{
		"send":              {setup: (*site).empty, do: sends(), grows: 1},
		"send with a key":   {setup: (*site).empty, do: sends(keyed("key"))},
		"send later":        {setup: (*site).empty, do: sends(keyed("key"), delayed(time.Hour))},
		"send a forgotten":  {setup: (*site).forgotten, do: sends(keyed("key"))},
		"send a batch":      {setup: (*site).empty, do: sendsAll, grows: 1},
		"start a run":       {setup: (*site).noRun, do: starts, again: entities.ErrConflict},
		"answer":            {setup: (*site).delivered, do: answers, again: entities.ErrConflict},
		"claim":             {setup: (*site).ready, do: claims("rh_1")},
		"receive":           {setup: (*site).ready, do: receives, again: entities.ErrConflict},
		"acknowledge":       {setup: (*site).leased, do: acknowledges, again: message.ErrLeaseNotFound},
		"extend":            {setup: (*site).leased, do: extends},
		"release":           {setup: (*site).leased, do: releases},
		"take over":         {setup: (*site).leased, do: reaps},
		"take over tickets": {setup: (*site).fetched, do: reaps},
		"hand out a ticket": {setup: (*site).lost, do: issuesTickets},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: a timer reads all messages
			session := gate.Open(t, dsn, home.pool, nil)
			broken := on(t, session.Pool)
			// crash executes the operation with a crash at statement n.
			crash := func(t *testing.T, n int, crash gate.Crash) (statements []string, err error) {
				t.Helper()
				test.setup(home, t)
				// The limits of the project are read once in a while, which would be a further statement.
				if err := broken.log.CheckMessage(t.Context(), project, "wrun_none"); err != nil {
					t.Fatal(err)
				}
				statements = session.Run(t, n, crash, func() { _, err = test.do(t.Context(), home.with(broken)) })
				return statements, err
			}
			statements, err := crash(t, -1, gate.None)
			if err != nil {
				t.Fatal(err)
			}
			done := home.state(t)
			test.setup(home, t)
			untouched := home.state(t)
			commit := len(statements) - 1
			if untouched == done || commit < 1 || statements[commit] != "COMMIT" {
				t.Fatalf("got statements %q, want a write", statements)
			}
			for n, sql := range statements {
				for _, how := range gate.Crashes(sql) {
					t.Run(fmt.Sprintf("%s at %d, %.20s", how, n, sql), func(t *testing.T) {
						if _, err := crash(t, n, how); err == nil || errors.Is(err, test.again) && test.again != nil {
							t.Errorf("the caller got %v", err)
						}
						want, again := untouched, error(nil)
						committed := n == commit && how == gate.AnswerLost
						if committed {
							want, again = done, test.again
						}
						if diff := cmp.Diff(want, home.state(t)); diff != "" {
							t.Fatalf("state after the crash (-want +got):\n%s", diff)
						}
						before := home.Count(t, `SELECT count(*) FROM messages`)
						_, err := test.do(t.Context(), home)
						testdb.WantError(t, "the repetition", err, again)
						if committed && test.grows > 0 {
							if got := home.Count(t, `SELECT count(*) FROM messages`) - before; got != test.grows {
								t.Errorf("the repetition added %d messages, want %d", got, test.grows)
							}
							return
						}
						if diff := cmp.Diff(done, home.state(t)); diff != "" {
							t.Errorf("state after crash and repetition (-want +got):\n%s", diff)
						}
					})
				}
			}
		})
	}
}
