package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// twoServers returns two servers on one database.
func twoServers(t *testing.T) []*server {
	t.Helper()
	dsn := testdb.New(t)
	servers := []*server{newServer(t, dsn), newServer(t, dsn)}
	servers[0].Register(t)
	return servers
}

// TestThousandDebouncedStartsAreOneRun sends them from eight clients to two servers, whose workers try to start the run
// meanwhile.
func TestThousandDebouncedStartsAreOneRun(t *testing.T) {
	t.Parallel()
	servers := twoServers(t)
	first := servers[0].add(t, debounced(collection.KeepLast), start(`"first"`))
	const clients, each = 8, 125
	var race sync.WaitGroup
	for client := range clients {
		s := servers[client%2]
		race.Go(func() {
			for i := range each {
				done, err := s.Add(t.Context(), project, debounced(collection.KeepLast), start(fmt.Sprintf(`"%d-%d"`, client, i)))
				if err != nil || runOf(done) != first {
					t.Errorf("got %+v, %v, want run %s", done, err, first)
					return
				}
			}
		})
	}
	d := servers[0].claim(t, first)
	race.Go(func() {
		if err := servers[0].handle(t.Context(), d); err != nil {
			t.Error(err)
		}
	})
	race.Wait()
	c, err := collection.ByID(t.Context(), pg.NewPool(servers[0].pool), project, first)
	if err != nil || c.Count != clients*each+1 || !strings.HasSuffix(string(c.Input), fmt.Sprintf(`-%d"`, each-1)) {
		t.Fatalf("got %d starts, the last with %s, %v", c.Count, c.Input, err)
	}
	servers[0].At(time.Minute)
	servers[0].deliver(t, first)
	servers[0].want(t, "run "+string(c.Input))
}

// TestRacersStartACollectionOnce lets deliveries, requests to flush and to drop, and further starts race.
func TestRacersStartACollectionOnce(t *testing.T) {
	t.Parallel()
	servers := twoServers(t)
	const rounds, racers = 10, 4
	for round := range rounds {
		now := time.Duration(round) * time.Hour
		servers[0].At(now)
		servers[1].At(now)
		id := servers[0].add(t, debounced(collection.KeepAll), start(fmt.Sprint(round*100)))
		servers[0].At(now + time.Minute)
		servers[1].At(now + time.Minute)
		d := servers[0].claim(t, id)
		var race sync.WaitGroup
		for i := range racers {
			s := servers[i%2]
			bound := s.Bind(t, d)
			race.Go(func() {
				if err := s.handle(t.Context(), bound); err != nil && !errors.Is(err, message.ErrStale) {
					t.Error(err)
				}
			})
			race.Go(func() {
				if _, err := s.Flush(t.Context(), project, id); err != nil && !errors.Is(err, collection.ErrNotFound) {
					t.Error(err)
				}
			})
			race.Go(func() { s.add(t, debounced(collection.KeepAll), start(fmt.Sprint(round*100+1+i))) })
		}
		race.Wait()
		if n := servers[0].Count(t, `SELECT count(*) FROM runs WHERE id = $1`, id); n != 1 {
			t.Fatalf("%d runs with the ID of the collection", n)
		}
		if servers[0].Count(t, `SELECT count(*) FROM collections`) == 1 {
			servers[0].flush(t)
		}
	}
	items := servers[0].items(t)
	slices.Sort(items)
	if n := len(slices.Compact(items)); n != rounds*(racers+1) || len(items) != n {
		t.Errorf("%d items are in runs, %d of them different, want %d", len(items), n, rounds*(racers+1))
	}
}

// TestRacersFillBatches has batches that are full at once, so that each start races to fill one, on two servers.
func TestRacersFillBatches(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			servers := twoServers(t)
			const clients, each = 8, 35
			var mu sync.Mutex
			runs := map[entities.RunID]int{} // by the answers
			var race sync.WaitGroup
			for client := range clients {
				s := servers[client%2]
				race.Go(func() {
					for i := range each {
						n := client*each + i
						key := once("")
						if n%3 == 0 {
							key = once(fmt.Sprint(n))
						}
						for range 1 + n%2 { // some of those with a key are repeated
							done, err := s.Add(t.Context(), project, batches(size), start(fmt.Sprint(n), key))
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							runs[runOf(done)]++
							mu.Unlock()
							if n%3 != 0 {
								break
							}
						}
					}
				})
			}
			race.Wait()
			items := servers[0].items(t)
			slices.Sort(items)
			if n := len(slices.Compact(items)); n != clients*each || len(items) != n {
				t.Errorf("%d items are in runs, %d of them different, want %d", len(items), n, clients*each)
			}
			if n := servers[0].Count(t, `SELECT count(*) FROM runs`); n != clients*each/size || len(runs) != n {
				t.Errorf("%d runs, and %d in the answers, want %d", n, len(runs), clients*each/size)
			}
			if n := servers[0].Count(t, `SELECT count(*) FROM collected WHERE idempotency_key <> ''`); n != (clients*each+2)/3 {
				t.Errorf("%d keys are remembered, want %d", n, (clients*each+2)/3)
			}
			servers[0].want(t, servers[0].state(t))
		})
	}
}

// TestSurvivesACrashAtAnyStatement interrupts each way in which collections change at each statement: it kills the
// session before it, or cuts the connection after it, the commit included. Afterwards everything is as before or as
// after. Then the client or the worker tries again, and each start is in one run.
func TestSurvivesACrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	const keepAll = collection.KeepAll
	for name, tt := range map[string]struct {
		before func(t *testing.T, s *server) // how it comes to the change
		change func(t *testing.T, s *server, home *server) error
		// What there is before the change, and after it.
		was, is string
	}{
		"opens": {
			func(*testing.T, *server) {},
			func(t *testing.T, s, _ *server) error {
				_, err := s.Add(t.Context(), project, batches(3), start("1", once("1")))
				return err
			},
			"", "1 until 1m0s",
		},
		"adds": {
			func(t *testing.T, s *server) { s.add(t, batches(3), start("1", once("1"))) },
			func(t *testing.T, s, _ *server) error {
				_, err := s.Add(t.Context(), project, batches(3), start("2", once("2")))
				return err
			},
			"1 until 1m0s", "2 until 1m0s",
		},
		"fills": {
			func(t *testing.T, s *server) { s.add(t, batches(2), start("1", once("1"))) },
			func(t *testing.T, s, _ *server) error {
				_, err := s.Add(t.Context(), project, batches(2), start("2", once("2")))
				return err
			},
			"1 until 1m0s", "run [1,2]",
		},
		"is due": {
			func(t *testing.T, s *server) {
				s.add(t, debounced(keepAll), start("1", once("1")))
				s.add(t, debounced(keepAll), start("2"))
			},
			func(t *testing.T, s, home *server) error {
				s.At(time.Minute)
				return s.handle(t.Context(), s.Bind(t, home.claim(t, home.onlyID(t))))
			},
			"2 until 10s", "run [1,2]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.New(t)
			home := newServer(t, dsn)
			home.Register(t)
			session := gate.Open(t, dsn, home.pool, nil)
			broken := serverOn(t, session.Pool)
			attempt := func(n int, crash gate.Crash) (statements []string, err error) {
				for _, table := range []string{"messages", "runs", "collections", "collected"} {
					home.Exec(t, `DELETE FROM `+table)
				}
				broken.At(0)
				tt.before(t, home)
				statements = session.Run(t, n, crash, func() { err = tt.change(t, broken, home) })
				return statements, err
			}
			var statements []string
			for range 2 { // the first also reads the project's limits, which are then known
				var err error
				if statements, err = attempt(-1, gate.None); err != nil {
					t.Fatal(err)
				}
			}
			home.want(t, tt.is)
			commit := -1
			for n, sql := range statements {
				if sql == "COMMIT" {
					commit = n
				}
			}
			if commit < 3 {
				t.Fatalf("no transaction in %q", statements)
			}
			for n, sql := range statements {
				for _, how := range gate.Crashes(sql) {
					what := fmt.Sprintf("%s at %d, %.40s", how, n, strings.TrimSpace(sql))
					_, err := attempt(n, how)
					committed := n == commit && how == gate.AnswerLost || n > commit
					if err == nil && n <= commit && sql != "ROLLBACK" { // what a rollback undoes is undone without it
						t.Errorf("%s: got no error", what)
					}
					want := tt.was
					if committed || err == nil {
						want = tt.is
					}
					if got := home.state(t); got != want {
						t.Errorf("%s: got %s, want %s", what, got, want)
					}
					if name == "is due" && committed {
						continue // there is no work any more
					}
					if err := tt.change(t, home, home); err != nil {
						t.Errorf("%s: again: %v", what, err)
					}
					home.want(t, tt.is)
					home.At(0)
				}
			}
			t.Logf("%d statements", len(statements))
		})
	}
}

// TestKeyThatComesMeanwhile: after a collection was read to start its run, and before it is locked, a start gives it a
// key that a run has.
func TestKeyThatComesMeanwhile(t *testing.T) {
	t.Parallel()
	s := registered(t)
	data := entities.EventData{DeploymentID: "dpl", WorkflowName: "w", UniqueKey: "u"}
	if _, _, err := s.Log.Start(t.Context(), project, eventlog.NewRun(noon, nil, data)); err != nil {
		t.Fatal(err)
	}
	rule := debounced(collection.KeepLast)
	id := s.add(t, rule, start("1"))
	found, err := collection.ByID(t.Context(), pg.NewPool(s.pool), project, id)
	if err != nil {
		t.Fatal(err)
	}
	s.add(t, rule, start("2", uniqueKey))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.start(ctx, found, s.byRequest(found)); !errors.Is(err, collection.ErrChanged) {
		t.Errorf("got error %v, want ErrChanged", err)
	}
	if _, err := s.Flush(t.Context(), project, id); !errors.Is(err, entities.ErrKeyTaken) {
		t.Errorf("got error %v, want ErrKeyTaken", err)
	}
}

// TestFailedStartLeavesNoTrace makes the last statements fail, which end the collection's work, and remember the key of
// the start that fills a batch.
func TestFailedStartLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := registered(t)
	s.add(t, batches(2), start("1", once("1")))
	s.Exec(t, `
		CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''broken''; END';
		CREATE TRIGGER broken BEFORE DELETE ON messages FOR EACH ROW WHEN (OLD.work = 'collection')
		EXECUTE FUNCTION broken()`)
	id := s.onlyID(t)
	for name, change := range map[string]func() error{
		"fill": func() error {
			_, err := s.Add(t.Context(), project, batches(2), start("2", once("2")))
			return err
		},
		"flush": func() error { _, err := s.Flush(t.Context(), project, id); return err },
		"drop":  func() error { return s.Drop(t.Context(), project, id) },
		"work": func() error {
			s.At(time.Minute)
			return s.handle(t.Context(), s.claim(t, id))
		},
	} {
		if err := change(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%s: got %v", name, err)
		}
		s.want(t, "1 until 1m0s")
		if n := s.Count(t, `SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM collected) + (SELECT count(*) FROM audit
			WHERE action LIKE 'collection.%')`); n != 1 {
			t.Errorf("%s: %d events, starts and entries in the audit, want the one start", name, n)
		}
	}
	s.Exec(t, `DROP TRIGGER broken ON messages`)
	s.add(t, batches(2), start("2", once("2")))
	s.want(t, "run [1,2]")
}
