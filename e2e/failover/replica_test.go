package failover

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/cluster"
)

// lists asks for the list of runs, and returns whether it has the run, and what it says of its lag; "" from the primary.
func (s *server) lists(run string) (found bool, lag string) {
	a := s.send(context.Background(), http.MethodGet, "/v1/runs", nil).Want(s.t, http.StatusOK)
	return strings.Contains(string(a.Body), run), a.Header.Get("Stepwell-Replica-Lag")
}

// awaitReplica waits until lists are read from the replica, or from the primary, and have the run.
func (s *server) awaitReplica(used bool, run string) {
	s.t.Helper()
	eventually(s.t, "lists of the replica: "+strconv.FormatBool(used), func() bool {
		found, lag := s.lists(run)
		return found && (lag != "") == used
	})
}

// TestListsAreReadFromAReplica: a list is read from a replica while it follows, and says how far it is behind. What one
// has started is found at once by its ID. A replica that falls behind or dies is left out, and used again when it is back.
func TestListsAreReadFromAReplica(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	b := a.newStandby()
	a.awaitStandby("async")
	s := startServer(t, databaseURL(t, "", a), "STEPWELL_READ_DATABASE_URL="+databaseURL(t, "", b))
	first := s.mustStartRun("first", time.Second)
	s.awaitReplica(true, first)
	if n := b.sessions(); n == 0 {
		t.Error("the server has no session on the replica")
	}

	b.exec(`SELECT pg_wal_replay_pause()`)
	second := s.mustStartRun("second", time.Second)
	s.send(t.Context(), http.MethodGet, "/v1/runs/"+second, nil).Want(t, http.StatusOK)
	s.send(t.Context(), http.MethodGet, "/v1/runs/"+second+"/events", nil).Want(t, http.StatusOK)
	longest := 0.0
	eventually(t, "lists are read from the primary", func() bool {
		found, text := s.lists(second)
		lag, _ := strconv.ParseFloat(text, 64)
		if found != (text == "") {
			t.Errorf("the list has the new run: %t, at a lag of %q", found, text)
		}
		longest = max(longest, lag)
		return text == ""
	})
	if longest < 3 || longest > cluster.MaxReplicaLag.Seconds() {
		t.Errorf("the longest lag of a list was %g s", longest)
	}
	if ready := s.awaitReadiness(http.StatusOK); !strings.Contains(ready, "too far behind") {
		t.Errorf("ready: %s", ready)
	}
	b.exec(`SELECT pg_wal_replay_resume()`)
	s.awaitReplica(true, second)

	b.kill()
	if found, lag := s.lists(second); !found || lag != "" {
		t.Errorf("after the death of the replica: %t, lag %q", found, lag)
	}
	third := s.mustStartRun("third", time.Second)
	b.start()
	s.awaitReplica(true, third)
	for _, line := range []string{"lists and statistics are read from the replica", "lists and statistics are read from the primary"} {
		if !strings.Contains(s.Output(), line) {
			t.Errorf("the log lacks %q", line)
		}
	}
}

// TestCancelledReadIsThePrimarys: a replica cancels statements that see what the primary has removed. The primary answers
// them, and the replica stays in use.
func TestCancelledReadIsThePrimarys(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	b := a.newStandby()
	s := startServer(t, databaseURL(t, "", a))
	a.awaitWorker()
	b.exec(`ALTER SYSTEM SET max_standby_streaming_delay = 0`)
	b.exec(`SELECT pg_reload_conf()`)
	pools := map[*node]*pgxpool.Pool{}
	for _, n := range []*node{a, b} {
		pool := check.Value(migrations.Pool(t.Context(), databaseURL(t, "", n), migrations.DefaultSchema))(t)
		t.Cleanup(pool.Close)
		pools[n] = pool
	}
	r := cluster.NewReplica(pools[b], pools[a], func(context.Context) error { return nil }, time.Now, slog.New(slog.DiscardHandler))
	eventually(t, "the replica is read from", func() bool {
		r.Look(t.Context())
		return r.Problem() == nil
	})
	s.mustStartRun("run", time.Second)
	read := make(chan bool, 1)
	go func() {
		read <- r.Read(t.Context(), func(ctx context.Context, _ time.Duration) error {
			_, err := pg.CollectColumn[int](pg.NewPool(pools[a]).Query(ctx, `
				SELECT count(pg_sleep(0.01))::int FROM projects, generate_series(1, 1000)`))
			return err
		})
	}()
	for len(read) == 0 { // the read sees what nobody sees on the primary
		a.exec(`UPDATE stepwell.projects SET daily_starts = daily_starts`)
		a.exec(`VACUUM stepwell.projects`)
	}
	check.Equal(t, "the replica has answered", <-read, false)
	check.Equal(t, "reads that failed", r.Answers(cluster.FailedThere), int64(1))
	check.Equal(t, "problem of the replica", r.Problem(), nil)
}

// TestIdleReplicaIsCurrent: a replica that has all is not behind, also if no server delivers and nothing is written. It
// is as far behind as what it lacks.
func TestIdleReplicaIsCurrent(t *testing.T) {
	t.Parallel()
	a := newNode(t, nil)
	b := a.newStandby()
	startServer(t, databaseURL(t, "", a), "STEPWELL_ROLE=api") // has no heartbeat
	pools := map[*node]*pgxpool.Pool{}
	for _, n := range []*node{a, b} {
		pool := check.Value(migrations.Pool(t.Context(), databaseURL(t, "", n), migrations.DefaultSchema))(t)
		t.Cleanup(pool.Close)
		pools[n] = pool
	}
	now := time.Now()
	r := cluster.NewReplica(pools[b], pools[a], func(context.Context) error { return nil },
		func() time.Time { return now }, slog.New(slog.DiscardHandler))
	isCurrent := func() bool {
		r.Look(t.Context())
		return r.Problem() == nil && r.Lag() == 0
	}
	eventually(t, "the replica is current", isCurrent)
	now = now.Add(time.Hour)
	eventually(t, "the replica is current an hour later", isCurrent)
	b.exec(`SELECT pg_wal_replay_pause()`)
	eventually(t, "the replay is paused", func() bool {
		return check.Value(pg.CollectValue[string](pools[b].Query(t.Context(), `SELECT pg_get_wal_replay_pause_state()`)))(t) == "paused"
	})
	a.exec(`UPDATE stepwell.projects SET daily_starts = daily_starts`)
	for _, behind := range []time.Duration{0, 3 * time.Second, cluster.MaxReplicaLag, cluster.MaxReplicaLag + time.Second} {
		at := now
		now = at.Add(behind)
		r.Look(t.Context())
		check.Equal(t, "lag", r.Lag(), behind)
		check.Equal(t, "the replica is read from", r.Problem() == nil, behind <= cluster.MaxReplicaLag)
		now = at
	}
	b.exec(`SELECT pg_wal_replay_resume()`)
	now = now.Add(time.Hour)
	eventually(t, "the replica has caught up", isCurrent)
}
