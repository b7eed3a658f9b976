package queue

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// sendTogether sends messages that meet in one transaction, in a process that delivers nothing. It returns their IDs
// and errors.
func (r *replica) sendTogether(t *testing.T, messages ...message.Message) ([]string, []error) {
	t.Helper()
	ids, errs := make([]string, len(messages)), make([]error, len(messages))
	resume := r.Group().Pause()
	var senders sync.WaitGroup
	for i, m := range messages {
		senders.Go(func() { ids[i], errs[i] = r.Send(t.Context(), m) })
	}
	testdb.Eventually(t, "all messages wait for a transaction", func() bool {
		_, waiting := r.Group().Load()
		return waiting == len(messages)
	})
	resume()
	senders.Wait()
	return ids, errs
}

// transactions returns how many transactions have written the messages.
func (r *replica) transactions(t *testing.T) int {
	t.Helper()
	return r.Count(t, `SELECT count(DISTINCT xmin::text) FROM messages`)
}

func TestSendsOfManyClientsShareACommit(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	due, cancel := r.hub.Subscribe(dueTopic)
	defer cancel()
	var all []message.Message
	for i := range 20 {
		all = append(all, newMessage(body(strings.Repeat("x", i)), delayed(time.Duration(i)*time.Minute)))
	}
	ids, errs := r.sendTogether(t, all...)
	for i, id := range ids {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		r.Want(t, "bytes of the body", i, `SELECT octet_length(body) FROM messages WHERE id = $1 AND lease = ''`, id)
	}
	if n := r.transactions(t); n != 1 {
		t.Errorf("%d transactions wrote the messages, want 1", n)
	}
	if len(due) == 0 {
		t.Error("the workers got no hint of the message that is due")
	}
}

// TestRacersForAKeyInOneTransaction: all get the ID of the message that is stored.
func TestRacersForAKeyInOneTransaction(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	before := r.send(t, keyed("before"))
	var all []message.Message
	for i := range 24 {
		all = append(all, newMessage(keyed([]string{"one", "two", "before"}[i%3])))
	}
	ids, errs := r.sendTogether(t, all...)
	for i, id := range ids {
		if errs[i] != nil || id != ids[i%3] {
			t.Errorf("key %s: got %s, error %v; want %s", all[i].Key, id, errs[i], ids[i%3])
		}
	}
	if ids[2] != before || ids[0] == ids[1] {
		t.Errorf("got %s, %s and %s, want two new messages and %s", ids[0], ids[1], ids[2], before)
	}
	stored := r.Count(t, `SELECT count(*) FROM messages WHERE id = ANY ($1)`, []string{ids[0], ids[1], before})
	if n := r.Count(t, `SELECT count(*) FROM messages`); n != 3 || stored != 3 {
		t.Errorf("%d messages are stored, %d of them under the returned IDs; want 3", n, stored)
	}
}

// TestFailedSendDoesNotFailTheOthers: the database refuses one message of a transaction.
func TestFailedSendDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	bad := newMessage(keyed("bad"))
	bad.ContentType = "not storable: \x00"
	ids, errs := r.sendTogether(t, newMessage(keyed("a")), bad, newMessage(keyed("z")), newMessage())
	for i, err := range errs {
		if failed := i == 1; (err != nil) != failed {
			t.Errorf("message %d: got error %v, want one: %t", i, err, failed)
		}
	}
	ids = slices.Delete(ids, 1, 2)
	r.Want(t, "messages are stored", len(ids), `SELECT count(*) FROM messages WHERE id = ANY ($1)`, ids)
	r.Want(t, "keys of the refused message", 0, `SELECT count(*) FROM message_keys WHERE key = 'bad'`)
}

// TestLostCommitOfSharedSendsStoresNothing: the last statement of the transaction ends its connection.
func TestLostCommitOfSharedSendsStoresNothing(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	r.Exec(t, `
		CREATE FUNCTION crash() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END';
		CREATE TRIGGER crash BEFORE INSERT ON message_keys FOR EACH ROW WHEN (NEW.key = 'z') EXECUTE FUNCTION crash()`)
	_, errs := r.sendTogether(t, newMessage(keyed("a")), newMessage(keyed("z")), newMessage(keyed("b")), newMessage())
	for i, err := range errs {
		if err == nil {
			t.Errorf("message %d: got no error", i)
		}
	}
	r.Want(t, "messages", 0, `SELECT count(*) FROM messages`)
	r.Want(t, "keys", 0, `SELECT count(*) FROM message_keys`)
}

// TestLargeMessagesAreSentAlone: others do not wait until a large body has reached the database.
func TestLargeMessagesAreSentAlone(t *testing.T) {
	t.Parallel()
	r := withoutHints(t, testdb.New(t))
	resume := r.Group().Pause()
	defer resume()
	id := r.send(t, body(strings.Repeat("x", smallBody+1)))
	r.Want(t, "bytes of the stored body", smallBody+1, `SELECT octet_length(body) FROM messages WHERE id = $1`, id)
}
