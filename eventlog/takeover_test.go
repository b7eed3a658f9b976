package eventlog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// runWith creates and starts a run that knows takeovers, with a hook for the token unless that is empty.
func (f *fixture) runWith(t tb, token string) entities.RunID {
	t.Helper()
	id := newRunID()
	first := runCreated(id)
	first.SpecVersion = entities.SpecTakeover
	f.must(t, first)
	f.must(t, onRun(id, "run_started"))
	if token != "" {
		f.must(t, hookCreated(id, "hook_1", token))
	}
	return id
}

// forced returns a hook_created of a run that may take the token over.
func forced(id entities.RunID, hookID, token string) Request {
	return forRun(takingOver(hookID, token), id)
}

func TestDecideTakeover(t *testing.T) {
	t.Parallel()
	victim := func(version int, events ...Request) *Snapshot {
		first := runCreated("wrun_victim")
		first.SpecVersion = version
		s := newMemoryRun(t, first)
		for _, r := range append([]Request{hookRetained("wrun_victim", "hook_9", "T", time.Hour)}, events...) {
			if _, err := s.append(forRun(r, "wrun_victim")); err != nil {
				t.Fatal(err)
			}
		}
		return s.snapshot
	}
	claim := func(version int) *entities.HookClaim {
		return &entities.HookClaim{
			HookRef:      entities.HookRef{RunID: "wrun_victim", HookID: "hook_9"},
			WorkflowName: "order", DeploymentID: "dpl_1", SpecVersion: version,
		}
	}
	won := func(from *entities.HookClaim) entities.EventData {
		return entities.EventData{Token: "T", Force: true, ForceClaimedFrom: from}
	}
	lost := func(reason string) entities.EventData {
		return entities.EventData{Token: "T", ConflictingRunID: "wrun_victim", ForceRefused: reason}
	}
	plain := hookCreated(theRun, "hook_1", "T")
	for name, test := range map[string]struct {
		ask    Request
		victim *Snapshot
		at     time.Duration
		want   entities.EventType
		data   entities.EventData
	}{
		"of a free token":                     {takingOver("hook_1", "T"), nil, 0, "hook_created", won(nil)},
		"of a live run":                       {takingOver("hook_1", "T"), victim(8), 0, "hook_created", won(claim(8))},
		"of a live run of a later version":    {takingOver("hook_1", "T"), victim(9), 0, "hook_created", won(claim(9))},
		"of a live run of an earlier version": {takingOver("hook_1", "T"), victim(7), 0, "hook_conflict", lost("victim-spec-version")},
		"of an ended run":                     {takingOver("hook_1", "T"), victim(3, completed), 0, "hook_created", won(claim(3))},
		"of an ended run whose token is free": {takingOver("hook_1", "T"), victim(3, completed), 2 * time.Hour, "hook_created", won(nil)},
		"without force":                       {plain, victim(8), 0, "hook_conflict", lost("")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newMemoryRun(t, created)
			at := day.Add(time.Minute + test.at)
			f := facts{Snapshot: s.snapshot, holders: map[string]*entities.Hook{}}
			before := 0
			if test.victim != nil {
				d := newDecision(facts{Snapshot: test.victim})
				f.victims = map[entities.RunID]*decision{"wrun_victim": &d}
				f.holders["T"] = copyOf(test.victim.Hooks, "hook_9")
				before = int(test.victim.Run.LastSeq)
			}
			d := decideAll(f, []Request{test.ask, forRun(plain, theRun)}, at)
			if d.outcomes[0].Err != nil || d.events[0].Type != test.want {
				t.Fatalf("got %v and error %v, want %s", typesOf(d.events), d.outcomes[0].Err, test.want)
			}
			if diff := cmp.Diff(test.data, d.events[0].Data); diff != "" {
				t.Errorf("data differ (-want +got):\n%s", diff)
			}
			if test.data.ForceClaimedFrom == nil {
				if len(d.victims) != 0 {
					t.Errorf("%d runs lose a token, want none", len(d.victims))
				}
				return
			}
			want := entities.Event{
				RunID: "wrun_victim", Seq: int64(before) + 1, Type: "hook_disposed", CorrelationID: "hook_9",
				SpecVersion: test.victim.Run.SpecVersion, CreatedAt: at, Data: entities.EventData{
					Token: "T", ForceClaimedBy: &entities.HookRef{RunID: theRun, HookID: "hook_1"},
				},
			}
			if diff := cmp.Diff([]entities.Event{want}, d.victims[0].events); diff != "" {
				t.Errorf("events of the victim differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTakeoverIsInBothLogs and in the rows; what is sent to the old hook afterwards is refused with the new one.
func TestTakeoverIsInBothLogs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	victim, claimer, next := f.runWith(t, "T"), f.runWith(t, ""), f.runWith(t, "")
	f.must(t, resumption(victim, "hook_1", "res_1", "d"))
	got := f.must(t, forced(claimer, "hook_2", "T"))
	from := &entities.HookClaim{
		HookRef:      entities.HookRef{RunID: victim, HookID: "hook_1"},
		WorkflowName: "order", DeploymentID: "dpl_1", SpecVersion: 8,
	}
	if got.Event.Type != "hook_created" || !cmp.Equal(got.Event.Data.ForceClaimedFrom, from) || got.Hook == nil ||
		!cmp.Equal(got.Hook.ClaimedFrom, from) {
		t.Fatalf("got %+v with hook %+v, want a claim from %+v", got.Event, got.Hook, from)
	}
	holder, err := store.HookByToken(t.Context(), f.pool, home, "T", f.Now())
	if err != nil || holder.RunID != claimer || !cmp.Equal(holder.ClaimedFrom, from) {
		t.Errorf("by token: got %+v, error %v", holder, err)
	}
	wantTypes := types{"run_created", "run_started", "hook_created", "hook_received", "hook_disposed"}
	if diff := cmp.Diff(wantTypes, f.types(t, victim)); diff != "" {
		t.Errorf("log of the victim differs (-want +got):\n%s", diff)
	}

	for _, r := range []Request{hook("hook_received"), resumption(victim, "hook_1", "res_2", "d")} {
		_, err := f.Append(t.Context(), home, forRun(r, victim))
		var claimed *entities.HookClaimedError
		if !errors.As(err, &claimed) || claimed.By != (entities.HookRef{RunID: claimer, HookID: "hook_2"}) {
			t.Errorf("a payload for the old hook: got %v, want that the new one has the token", err)
		}
	}
	if again := f.must(t, resumption(victim, "hook_1", "res_1", "d")); !again.Repeated {
		t.Error("the repetition of a resumption that came before is not one")
	}
	f.refused(t, forRun(hook("hook_disposed"), victim), entities.ErrHookNotFound)
	f.refused(t, forced(claimer, "hook_2", "T"), entities.ErrConflict)

	// The claimer loses the token in turn: its repetition must not take it back.
	f.must(t, forced(next, "hook_3", "T"))
	f.refused(t, forced(claimer, "hook_2", "T"), entities.ErrConflict)
	f.must(t, resumption(next, "hook_3", "res_2", "d"))
	for _, id := range []entities.RunID{victim, claimer, next} {
		f.wantFold(t, id)
		f.exec(t, `DELETE FROM hooks WHERE run_id = $1`, id)
		f.exec(t, `UPDATE runs SET last_seq = last_seq + 7 WHERE id = $1`, id)
		if err := Rebuild(t.Context(), f.pool, f.clock.now, id); err != nil {
			t.Fatal(err)
		}
		f.wantVerified(t, id)
	}
	f.wantPaired(t, victim, claimer, next)
}

// wantPaired fails the test unless each takeover is in both logs, and nothing was received for a hook without its token.
func (f *fixture) wantPaired(t tb, ids ...entities.RunID) {
	t.Helper()
	type pair struct{ from, to entities.HookRef }
	claims, losses := map[pair]int{}, map[pair]int{}
	for _, id := range ids {
		lost := map[string]bool{}
		for _, e := range f.events(t, id) {
			of := entities.HookRef{RunID: id, HookID: entities.HookID(e.CorrelationID)}
			if from := e.Data.ForceClaimedFrom; from != nil && e.Type == "hook_created" {
				claims[pair{from.HookRef, of}]++
			}
			if by := e.Data.ForceClaimedBy; by != nil {
				losses[pair{of, *by}]++
				lost[e.CorrelationID] = true
			}
			if e.Type == "hook_received" && lost[e.CorrelationID] {
				t.Errorf("run %s received something for a hook that has lost its token", id)
			}
		}
	}
	if diff := cmp.Diff(claims, losses); diff != "" {
		t.Errorf("takeovers by the claimers' logs and by the victims' (-claimers +victims):\n%s", diff)
	}
}

// TestI4ConcurrentTakeoversFollowEachOther: every claimer takes the token from the one before it, whatever happens to
// the first holder meanwhile.
func TestI4ConcurrentTakeoversFollowEachOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, other := range map[string]Request{
		"alone": {}, "and the hook is disposed of": hook("hook_disposed"), "and payloads arrive": hook("hook_received"),
		"and the run ends": completed, "and plain claims": hookCreated(theRun, "hook_9", "T"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := "T " + name
			victim := f.runWith(t, token)
			ids := []entities.RunID{victim}
			for range racers {
				ids = append(ids, f.runWith(t, ""))
			}
			for i, err := range race(func(i int) error {
				if i%3 == 2 && other.Type != "" {
					r := forRun(other, victim)
					if r.Type == "hook_created" {
						r = hookCreated(ids[i+1], "hook_1", token)
					}
					_, err := f.Append(t.Context(), home, r)
					return err
				}
				got, err := f.Append(t.Context(), home, forced(ids[i+1], "hook_1", token))
				if err == nil && got.Event.Type != "hook_created" {
					err = fmt.Errorf("the takeover became %s", got.Event.Type)
				}
				return err
			}) {
				late := errors.Is(err, entities.ErrConflict) || errors.Is(err, entities.ErrRunEnded) ||
					errors.Is(err, entities.ErrHookNotFound)
				if err != nil && (i%3 != 2 || other.Type == "" || !late) {
					t.Errorf("racer %d: %v", i, err)
				}
			}
			holders := 0
			for _, id := range ids {
				holders += len(f.rows(t, id).Hooks)
				f.wantFold(t, id)
			}
			if holders != 1 {
				t.Errorf("%d hooks have the token, want 1", holders)
			}
			f.wantPaired(t, ids...)
		})
	}
}

// TestI4RunsThatTakeOverEachOthersTokensDoNotBlock: they lock each other in one order.
func TestI4RunsThatTakeOverEachOthersTokensDoNotBlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := make([]entities.RunID, racers)
	for i := range ids {
		ids[i] = f.runWith(t, fmt.Sprint("T", i))
	}
	for round := range 3 {
		for i, err := range race(func(i int) error {
			_, err := f.Append(t.Context(), home,
				forced(ids[i], fmt.Sprint("hook_", round+2), fmt.Sprint("T", (i+round+1)%racers)))
			return err
		}) {
			if err != nil {
				t.Errorf("round %d, racer %d: %v", round, i, err)
			}
		}
	}
	for _, id := range ids {
		f.wantFold(t, id)
	}
	f.wantPaired(t, ids...)
}

// TestI4TakeoversDoNotDeadlock: those of one token follow each other, instead of waiting for a run that the token has
// come to while they waited for another.
func TestI4TakeoversDoNotDeadlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := make([]entities.RunID, racers)
	for i := range ids {
		ids[i] = f.runWith(t, "")
	}
	for round := range 6 {
		token := fmt.Sprint("T", round)
		f.must(t, hookCreated(ids[round], "first_"+token, token))
		for i, err := range race(func(i int) error {
			_, err := f.Append(t.Context(), home, forced(ids[i], fmt.Sprint("hook_", round), token))
			return err
		}) {
			if i != round && err != nil {
				t.Errorf("round %d, racer %d: %v", round, i, err)
			}
		}
	}
	f.wantPaired(t, ids...)

	const sessions = `SELECT count(*), coalesce(array_agg(pid), '{}') FROM pg_stat_activity
		WHERE datname = current_database() AND pid = ANY (coalesce($1, ARRAY[pid]))`
	var left, deadlocks int
	var all, some []int32
	f.scan(t, sessions, []any{nil}, &left, &all)
	f.pool.Reset() // a session that has ended has reported its deadlocks
	for left > 0 {
		f.scan(t, sessions, []any{all}, &left, &some)
	}
	f.scan(t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`, nil, &deadlocks)
	if deadlocks != 0 {
		t.Errorf("%d deadlocks, want none", deadlocks)
	}
}

// scan reads the only row of a query.
func (f *fixture) scan(t tb, sql string, args []any, into ...any) {
	t.Helper()
	if err := f.pool.QueryRow(t.Context(), sql, args...).Scan(into...); err != nil {
		t.Fatal(err)
	}
}
