package gate

import (
	"testing"
	"time"
)

// Crash is how a session dies at a statement.
type Crash int

const (
	// None is no crash.
	None Crash = iota
	// Terminated kills the backend before it receives the statement, as a restart of Postgres does.
	Terminated
	// Cut closes the connection before the client sends the statement.
	Cut
	// AnswerLost closes the connection after Postgres has executed the statement and before the client receives the
	// answer.
	AnswerLost
	// Away closes the connection before the client sends the statement, and each later connection before its first
	// statement, as if the database stayed away.
	Away
)

func (c Crash) String() string {
	return [...]string{"none", "terminated", "cut", "answer lost", "away"}[c]
}

// Crashes returns the ways to crash a session at a statement. Until a transaction ends, the loss of an answer leaves
// what the termination before the next statement leaves, and is tried only if STEPWELL_TEST_LONG is set.
func Crashes(sql string) []Crash {
	if ends(sql) || isLong() {
		return []Crash{Terminated, AnswerLost}
	}
	return []Crash{Terminated}
}

// Run calls fn, which uses the session, and crashes the session at statement n of fn, counted from 0. It returns the
// statements that fn started. Afterwards the old backend is gone, with its locks, and the session can be used again.
func (s *Session) Run(t testing.TB, n int, crash Crash, fn func()) []string {
	t.Helper()
	pid := s.pid(t)
	done := s.start(fn)
	var started []string
	for {
		select {
		case <-done:
			if n >= 0 && n < len(started) && crash != None {
				s.awaitGone(t, pid)
			}
			return started
		case sql := <-s.statements:
			started = append(started, sql)
		case <-time.After(timeout):
			t.Fatalf("the session hangs after %q", started)
		}
		next := proceed
		if len(started)-1 == n {
			switch crash {
			case Terminated:
				s.terminate(t, pid)
			case Cut:
				next = disconnect
			case AnswerLost:
				next = loseAnswer
			case Away:
				next = stayAway
			case None:
			}
		}
		s.resume <- next
	}
}

// terminate kills a backend.
func (s *Session) terminate(t testing.TB, pid uint32) {
	t.Helper()
	if _, err := s.observer.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil {
		t.Fatalf("terminate backend: %v", err)
	}
	s.awaitGone(t, pid)
}

// awaitGone waits until a backend has ended. Postgres takes a moment to notice that a client has disconnected.
func (s *Session) awaitGone(t testing.TB, pid uint32) {
	t.Helper()
	deadline, poll := time.After(timeout), time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		var alive bool
		if err := s.observer.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid).Scan(&alive); err != nil {
			t.Fatal(err)
		}
		if !alive {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("backend %d does not end", pid)
		}
	}
}
