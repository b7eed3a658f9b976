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
// returns the statements that were begun. The session can be used again afterwards; its old backend is gone,
// with its locks.
func (s *Session) Run(t testing.TB, n int, crash Crash, fn func()) []string {
	t.Helper()
	pid := s.pid(t)
	done := s.start(fn)
	var begun []string
	for {
		select {
		case <-done:
			if n >= 0 && n < len(begun) && crash != None {
				s.outlive(t, pid)
			}
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

// terminate kills a backend.
func (s *Session) terminate(t testing.TB, pid uint32) {
	t.Helper()
	if _, err := s.observer.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil {
		t.Fatalf("terminate backend: %v", err)
	}
	s.outlive(t, pid)
}

// outlive waits until a backend is gone. One whose client is gone takes a moment to notice.
func (s *Session) outlive(t testing.TB, pid uint32) {
	t.Helper()
	deadline, poll := time.After(patience), time.NewTicker(time.Millisecond)
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
			t.Fatalf("backend %d does not go", pid)
		}
	}
}
