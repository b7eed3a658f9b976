package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

// rows counts messages, keys and tickets, after tickets have been issued for all messages that are due.
func (r *replica) rows(t testing.TB) [3]int {
	t.Helper()
	r.issue(t)
	var n [3]int
	r.scan(t, `
		SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM message_keys), (SELECT count(*) FROM river_job)`,
		nil, &n[0], &n[1], &n[2])
	return n
}

func TestSendStoresMessageAndKeyTogether(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		if _, _, err := r.Enqueue(t.Context(), tx, &pgx.Batch{}, []message.Message{newMessage(keyed("k"))}); err != nil {
			return err
		}
		if got, want := r.rows(t), [3]int{}; got != want {
			t.Errorf("before the commit others see %v messages, keys and tickets, want %v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.rows(t), [3]int{1, 1, 1}; got != want {
		t.Errorf("after the commit there are %v messages, keys and tickets, want %v", got, want)
	}
}

func TestEnqueueLeavesNothingWhenTransactionFails(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	boom := errors.New("boom")
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		_, _, err := r.Enqueue(t.Context(), tx, &pgx.Batch{}, []message.Message{newMessage(keyed("k")), newMessage(delayed(time.Hour))})
		if err != nil {
			return err
		}
		return boom
	})
	wantError(t, "transaction", err, boom)
	if got, want := r.rows(t), [3]int{}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
	// The key is free, since the message was never stored.
	id := r.send(t, keyed("k"))
	r.stored(t, id)
}

func TestEnqueueIsAtomic(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		bad := newMessage(func(m *message.Message) { m.Topic = "" })
		_, _, err := r.Enqueue(t.Context(), tx, &pgx.Batch{}, []message.Message{newMessage(), bad})
		return err
	})
	wantError(t, "enqueue a good and a bad message", err, entities.ErrInvalid)
	if got, want := r.rows(t), [3]int{}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
}

func TestSendRejectsInvalidMessages(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for name, change := range map[string]func(*message.Message){
		"no topic":           func(m *message.Message) { m.Topic = "" },
		"topic with newline": func(m *message.Message) { m.Topic = "a\nb" },
		"no deployment":      func(m *message.Message) { m.DeploymentID = "" },
		"run ID with slash":  func(m *message.Message) { m.RunID = "a/b" },
		"key with NUL":       keyed("a\x00b"),
		"endless key":        keyed(strings.Repeat("k", 100_000)),
		"negative delay":     delayed(-time.Nanosecond),
		"delay too long":     delayed(maxDelay + 1),
		"negative retention": func(m *message.Message) { m.Retention = -1 },
		"retention too long": func(m *message.Message) { m.Retention = maxRetention + 1 },
	} {
		_, err := r.Send(t.Context(), newMessage(change))
		wantError(t, name, err, entities.ErrInvalid)
	}
	if got, want := r.rows(t), [3]int{}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
}

func TestSendAcceptsBounds(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	id := r.send(t, delayed(maxDelay), func(m *message.Message) { m.Retention, m.Key = maxRetention, "k" })
	var delay, expiry, memory time.Duration
	r.scan(t, `
		SELECT due_at - created_at, m.expires_at - created_at, k.expires_at - created_at
		FROM messages m JOIN message_keys k ON k.message_id = m.id WHERE id = $1`, []any{id}, &delay, &expiry, &memory)
	got := []time.Duration{delay, expiry, memory}
	want := []time.Duration{maxDelay, maxDelay + maxRetention, maxDelay + maxRetention}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delay, expiry and memory of the key (-want +got):\n%s", diff)
	}
}

func TestKeyIsRememberedForRetentionAfterDelay(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.send(t, keyed("usual"), delayed(time.Hour))
	r.send(t, keyed("own"), func(m *message.Message) { m.Retention = 2 * time.Hour })
	got := map[string]time.Duration{}
	for _, key := range []string{"usual", "own"} {
		var d time.Duration
		r.scan(t, `
			SELECT k.expires_at - m.created_at FROM message_keys k JOIN messages m ON m.id = k.message_id
			WHERE key = $1`, []any{key}, &d)
		got[key] = d
	}
	want := map[string]time.Duration{"usual": time.Hour + defaultRetention, "own": 2 * time.Hour}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys are remembered for (-want +got):\n%s", diff)
	}
}

func TestDuplicateReturnsFirstID(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	first := r.send(t, keyed("k"))
	if got := r.send(t, keyed("k"), body("other"), delayed(time.Hour)); got != first {
		t.Errorf("duplicate: got ID %s, want %s", got, first)
	}
	if got, want := r.rows(t), [3]int{1, 1, 1}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
}

func TestDuplicateInOneTransaction(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	err := pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		_, _, err := r.Enqueue(t.Context(), tx, &pgx.Batch{}, []message.Message{newMessage(keyed("k")), newMessage(keyed("k"))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.rows(t), [3]int{1, 1, 1}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
}

func TestKeyOutlivesAcknowledgedMessage(t *testing.T) {
	t.Parallel()
	a := newApp(t, nil)
	r := start(t, a)
	first := r.send(t, keyed("k"))
	r.ack(t, a.next(t))
	r.gone(t, first)
	if got := r.send(t, keyed("k")); got != first {
		t.Errorf("duplicate after the acknowledgement: got ID %s, want %s", got, first)
	}
	if got, want := r.count(t, `SELECT count(*) FROM messages`), 0; got != want {
		t.Errorf("got %d messages, want %d", got, want)
	}
}

func TestKeyExpiresAfterRetention(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	first := r.send(t, keyed("k"))
	r.exec(t, `UPDATE message_keys SET expires_at = now() - interval '1 ms'`)
	second := r.send(t, keyed("k"))
	if second == first {
		t.Fatalf("got the first ID %s again, want a new one", first)
	}
	if got := r.send(t, keyed("k")); got != second {
		t.Errorf("duplicate of the second: got ID %s, want %s", got, second)
	}
	r.stored(t, first)
	r.stored(t, second)
}

func TestOnlyExpiredKeysAreDeleted(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.send(t, keyed("old"))
	r.send(t, keyed("new"))
	r.exec(t, `UPDATE message_keys SET expires_at = now() - interval '1 hour' WHERE key = 'old'`)
	if err := deleteExpiredKeys(t.Context(), r.pool); err != nil {
		t.Fatal(err)
	}
	var left string
	r.scan(t, `SELECT string_agg(key, ' ' ORDER BY key) FROM message_keys`, nil, &left)
	if want := "new"; left != want {
		t.Errorf("left: got keys %q, want %q", left, want)
	}
}

func TestKeyScope(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	ids := map[string]string{r.send(t, keyed("k")): "first"}
	for name, change := range map[string]func(*message.Message){
		"other project":    func(m *message.Message) { m.Project = "other" },
		"other topic":      func(m *message.Message) { m.Topic = "other" },
		"other deployment": func(m *message.Message) { m.DeploymentID = "other" },
		"other key":        keyed("other"),
	} {
		id := r.send(t, keyed("k"), change)
		if same, ok := ids[id]; ok {
			t.Errorf("%s: got the ID of %s, want a new one", name, same)
		}
		ids[id] = name
	}
}

func TestMessagesWithoutKeyAreNeverDuplicates(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	if first, second := r.send(t), r.send(t); first == second {
		t.Errorf("got ID %s twice, want two", first)
	}
	if got, want := r.rows(t), [3]int{2, 0, 2}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
}

// race calls fn from n goroutines at once and returns their results.
func race[T any](n int, fn func(i int) T) []T {
	results := make([]T, n)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			results[i] = fn(i)
		})
	}
	close(begin)
	wg.Wait()
	return results
}

func TestRacersWithOneKeySendOneMessage(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	replicas := []*replica{withoutHints(t, dsn), withoutHints(t, dsn)}
	for round := range 5 {
		key := fmt.Sprint("k", round)
		ids := race(16, func(i int) string {
			id, err := replicas[i%2].Send(context.Background(), newMessage(keyed(key)))
			if err != nil {
				t.Error(err)
			}
			return id
		})
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("racers got IDs %s and %s, want one", ids[0], id)
			}
		}
		if got, want := replicas[0].rows(t), [3]int{round + 1, round + 1, round + 1}; got != want {
			t.Errorf("got %v messages, keys and tickets, want %v", got, want)
		}
	}
}

func TestRacersForExpiredKeySendOneMessage(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	old := r.send(t, keyed("k"))
	r.exec(t, `UPDATE message_keys SET expires_at = now() - interval '1 s'`)
	ids := race(16, func(int) string {
		id, err := r.Send(context.Background(), newMessage(keyed("k")))
		if err != nil {
			t.Error(err)
		}
		return id
	})
	for _, id := range ids {
		if id != ids[0] || id == old {
			t.Errorf("racers got IDs %s and %s after %s, want one new one", ids[0], id, old)
		}
	}
	if got, want := r.count(t, `SELECT count(*) FROM messages`), 2; got != want {
		t.Errorf("got %d messages, want %d", got, want)
	}
}
