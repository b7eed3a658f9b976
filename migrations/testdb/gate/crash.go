package gate

import (
	"testing"
	"time"
)

// Crash is a way for a session to end.
type Crash int

const (
	// None lets everything happen.
	None Crash = iota
	// Terminated is a backend that is killed before it gets the statement, as by a restart of Postgres.
	Terminated
	// Cut is a client that dies, or loses its connection, before it sends the statement.
	Cut
	// AnswerLost is a client that dies, or loses its connection, when the statement has been executed and
	// before it learns of that.
	AnswerLost
)

func (c Crash) String() string { return [...]string{"none", "terminated", "cut", "answer lost"}[c] }

// Run calls fn, which uses the session, and lets the crash happen at its statement n, counted from 0. It
// returns the statements that were begun. The session can be used again afterwards.
func (s *Session) Run(t testing.TB, n int, crash Crash, fn func()) []string {
	t.Helper()
	pid := s.pid(t)
	done := s.start(fn)
	var begun []string
	for {
		select {
		case <-done:
			return begun
		case sql := <-s.held:
			begun = append(begun, sql)
		case <-time.After(patience):
			t.Fatalf("nothing happens after %q", begun)
		}
		v := goOn
		if len(begun)-1 == n {
			switch crash {
			case Terminated:
				s.terminate(t, pid)
			case Cut:
				v = cutBefore
			case AnswerLost:
				v = loseAnswer
			case None:
			}
		}
		s.let <- v
	}
}

// terminate kills a backend and waits until it is gone, with its locks.
func (s *Session) terminate(t testing.TB, pid uint32) {
	t.Helper()
	var gone bool
	if err := s.observer.QueryRow(t.Context(),
		`SELECT pg_terminate_backend($1, $2)`, pid, patience.Milliseconds()).Scan(&gone); err != nil || !gone {
		t.Fatalf("terminate backend: %v, %v", gone, err)
	}
}
