package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// rows counts messages, keys and tickets, after tickets have been issued for all messages that are due.
func (r *replica) rows(t testing.TB) [3]int {
	t.Helper()
	r.issue(t)
	var n [3]int
	r.Scan(t, `
		SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM message_keys), (SELECT count(*) FROM river_job)`,
		nil, &n[0], &n[1], &n[2])
	return n
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
		testdb.WantError(t, name, err, entities.ErrInvalid)
		_, err = r.SendAll(t.Context(), []message.Message{newMessage(), newMessage(change)})
		testdb.WantError(t, name+", beside a good one", err, entities.ErrInvalid)
	}
	if got, want := r.rows(t), [3]int{}; got != want {
		t.Errorf("got %v messages, keys and tickets, want %v", got, want)
	}
}

// TestKeysAreRememberedForTheirRetention after the delay of their message.
func TestKeysAreRememberedForTheirRetention(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	for key, tt := range map[string]struct{ delay, retention, want time.Duration }{
		"usual":   {time.Hour, 0, time.Hour + defaultRetention},
		"own":     {0, 2 * time.Hour, 2 * time.Hour},
		"longest": {maxDelay, maxRetention, maxDelay + maxRetention},
	} {
		id := r.send(t, keyed(key), delayed(tt.delay), func(m *message.Message) { m.Retention = tt.retention })
		var delay, expiry, memory time.Duration
		r.Scan(t, `
			SELECT due_at - created_at, m.expires_at - created_at, k.expires_at - created_at
			FROM messages m JOIN message_keys k ON k.message_id = m.id WHERE id = $1`, []any{id}, &delay, &expiry, &memory)
		if delay != tt.delay || expiry != tt.want || memory != tt.want {
			t.Errorf("%s: got delay %s, expiry %s and memory of the key %s, want %+v", key, delay, expiry, memory, tt)
		}
	}
}

func TestDuplicateReturnsFirstID(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	first := r.send(t, keyed("k"))
	if got := r.send(t, keyed("k"), body("other"), delayed(time.Hour)); got != first {
		t.Errorf("duplicate: got ID %s, want %s", got, first)
	}
	twice := []message.Message{newMessage(keyed("twice")), newMessage(keyed("twice"))}
	if got, err := r.SendAll(t.Context(), twice); err != nil || got[0] != got[1] {
		t.Errorf("in one transaction: got IDs %v, error %v, want one ID", got, err)
	}
	if got, want := r.rows(t), [3]int{2, 2, 2}; got != want {
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
	r.Want(t, "messages", 0, `SELECT count(*) FROM messages`)
}

func TestKeyExpiresAfterRetention(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	first := r.send(t, keyed("k"))
	r.Exec(t, `UPDATE message_keys SET expires_at = now() - interval '1 ms'`)
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
	if first, second := r.send(t), r.send(t); first == second {
		t.Errorf("without a key: got ID %s twice, want two", first)
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

// TestRacersWithOneKeySendOneMessage, also if another message had the key, which has expired.
func TestRacersWithOneKeySendOneMessage(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	replicas := []*replica{withoutHints(t, dsn), withoutHints(t, dsn)}
	expired := replicas[0].send(t, keyed("k0"))
	replicas[0].Exec(t, `UPDATE message_keys SET expires_at = now() - interval '1 s'`)
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
			if id != ids[0] || id == expired {
				t.Errorf("racers got IDs %s and %s after %s, want one new one", ids[0], id, expired)
			}
		}
		if got, want := replicas[0].rows(t), [3]int{round + 2, round + 1, round + 2}; got != want {
			t.Errorf("got %v messages, keys and tickets, want %v", got, want)
		}
	}
}
