package eventlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/migrations/testdb/gate"
)

// crashTest is a write that is interrupted, and repeated by its client.
type crashTest struct {
	clientPair

	// again is the error of the repeated write if the first was committed, and grows what the repetition appends
	// to the log, which the SDK's clients tolerate.
	again error
	grows types
}

// crashTests has all requests that write. See [TestCrashAtAnyStatementOfAppend].
func crashTests() map[string]crashTest {
	is := func(r ...Request) []Request { return r }
	resumed := hook("hook_received")
	resumed.Data.ResumeID, resumed.Data.ResumeDigest = "resume_1", "digest"
	lazy := step("step_started")
	lazy.Data.StepName, lazy.Payload = "charge", []byte("step input")
	retained := hookCreated(theRun, "hook_1", contestedToken)
	retained.Data.TokenRetentionUntil = ptr(day.Add(time.Hour))
	late := [2]time.Duration{2 * time.Hour, 2 * time.Hour}
	withStep := is(started, step("step_created"), step("step_started"))
	withHook := is(started, hook("hook_created"))
	full := is(started, step("step_created"), hook("hook_created"), retained, sleep("wait_created"))
	full[3].CorrelationID = "hook_2"
	batch := is(on(theRun, "step_created", "step_2"), on(theRun, "step_started", "step_2"), step("step_completed"),
		sleep("wait_created"))
	conflict, missing := entities.ErrConflict, entities.ErrHookNotFound
	return map[string]crashTest{
		"run_created":            {clientPair: clientPair{one: is(created)}, again: conflict},
		"resilient start":        {clientPair: clientPair{one: is(runRepaired(theRun))}},
		"run_started":            {clientPair: clientPair{before: []Request{}, one: is(started)}},
		"run_completed":          {clientPair: clientPair{before: full, one: is(completed)}, again: conflict},
		"run_failed":             {clientPair: clientPair{before: full, one: is(failed)}, again: conflict},
		"run_cancelled":          {clientPair: clientPair{before: full, one: is(cancelled)}, grows: types{"run_cancelled"}},
		"attr_set":               {clientPair: clientPair{before: is(started), one: is(on(theRun, "attr_set", ""))}, grows: types{"attr_set"}},
		"attr_set with an ID":    {clientPair: clientPair{before: is(started), one: is(on(theRun, "attr_set", "attr_1"))}, again: conflict},
		"store_set":              {clientPair: clientPair{driver: driven, before: is(started), one: is(storeSet("s", `{"k":1}`))}, again: conflict},
		"store_set that removes": {clientPair: clientPair{driver: driven, before: is(started, storeSet("s", `{"k":1}`)), one: is(storeSet("t", `{"k":null}`))}, again: conflict},
		"step_completed with a store_set": {
			clientPair: clientPair{driver: driven, atomic: true, before: withStep, one: is(writtenBy("step_1", `{"k":1}`), step("step_completed"))},
			again:      conflict,
		},
		"start with an inbox": {
			clientPair: clientPair{driver: driven, atomic: true, one: is(startedDriven(), opened, sent("m1"), sent("m2"))},
			again:      conflict,
		},
		"messages to an inbox": {
			clientPair: clientPair{driver: driven, atomic: true, before: is(opened), one: is(sent("m1"), sent("m2"))},
		},
		"end of a run that continues": {
			clientPair: clientPair{
				driven: true, before: is(started, opened, sent("m1"), sent("m2"), storeSet("s", `{"k":1}`)), one: is(continued),
			},
			again: conflict,
		},
		"in-band write": {
			clientPair: clientPair{fenced: true, before: is(inBand(started, 1)), one: is(inBand(step("step_created"), 2))},
			again:      entities.ErrSuperseded,
		},
		"in-band batch": {
			clientPair: clientPair{
				fenced: true, before: is(inBand(started, 1)), one: inBandAll(step("step_created"), step("step_started")),
			},
			again: entities.ErrSuperseded,
		},
		"step_created":           {clientPair: clientPair{before: is(started), one: is(step("step_created"))}, again: conflict},
		"step_started":           {clientPair: clientPair{before: withStep, one: is(step("step_started"))}, grows: types{"step_started"}},
		"lazy start":             {clientPair: clientPair{before: is(started), one: is(lazy)}, again: conflict},
		"step_completed":         {clientPair: clientPair{before: withStep, one: is(step("step_completed"))}, again: conflict},
		"step_failed":            {clientPair: clientPair{before: withStep, one: is(step("step_failed"))}, again: conflict},
		"step_retrying":          {clientPair: clientPair{before: withStep, one: is(step("step_retrying"))}, grows: types{"step_retrying"}},
		"hook_created":           {clientPair: clientPair{before: is(started), one: is(hook("hook_created"))}, again: conflict},
		"hook_received":          {clientPair: clientPair{before: withHook, one: is(hook("hook_received"))}, grows: types{"hook_received"}},
		"resumption":             {clientPair: clientPair{before: withHook, one: is(resumed)}},
		"hook_disposed":          {clientPair: clientPair{before: withHook, one: is(hook("hook_disposed"))}, again: missing},
		"wait_created":           {clientPair: clientPair{before: is(started), one: is(sleep("wait_created"))}, again: conflict},
		"wait_completed":         {clientPair: clientPair{before: full, one: is(sleep("wait_completed"))}, again: conflict},
		"wait_cancelled":         {clientPair: clientPair{before: full, one: is(sleep("wait_cancelled"))}, again: conflict},
		"cancel_requested":       {clientPair: clientPair{driven: true, before: full, one: is(asked)}},
		"end as asked":           {clientPair: clientPair{driven: true, before: is(started, asked), one: is(asAsked)}, again: conflict},
		"cancelled step":         {clientPair: clientPair{driven: true, before: withStep, one: is(dropped)}, again: conflict},
		"batch":                  {clientPair: clientPair{before: withStep, one: batch}, again: conflict},
		"batch that ends":        {clientPair: clientPair{before: withStep, one: is(step("step_completed"), completed)}, again: conflict},
		"claim of a taken token": {clientPair: clientPair{before: is(started), holder: is(started, retained), one: is(retained)}, again: conflict},
		"takeover": {
			clientPair: clientPair{
				forced: true, before: is(started), holder: is(started, retained), one: is(takingOver("hook_1", contestedToken)),
			},
			again: conflict,
		},
		"takeover from an ended run": {
			clientPair: clientPair{before: is(started), holder: is(started, retained, completed), one: is(takingOver("hook_1", contestedToken))},
			again:      conflict,
		},
		"claim of an expired token": {
			clientPair: clientPair{before: is(started), holder: is(started, retained, completed), late: late, one: is(retained)},
			again:      conflict,
		},
	}
}

// opened opens an inbox.
var opened = func() Request {
	r := on(theRun, entities.EventHookCreated, "inbox:notes")
	r.FreshToken = true
	return r
}()

// continued ends a run that goes on as the third one.
var continued = func() Request {
	r := completed
	r.Continue = &Continuation{Next: runCreated(theRun), Read: map[entities.HookID]int64{"inbox:notes": 4}}
	r.Continue.Next.Data.Driver = driven
	return r
}()

// startedDriven creates a run that the server continues.
func startedDriven() Request {
	r := created
	r.Data.Driver = driven
	return r
}

// sent sends a message to the inbox.
func sent(id string) Request {
	r := on(theRun, entities.EventHookReceived, "inbox:notes")
	r.Data.MessageID, r.Data.ResumeID, r.Data.ResumeDigest = id, "inbox:notes "+id, "digest"
	return r
}

// TestCrashAtAnyStatementOfAppend interrupts every write at each of its statements: by terminating the server's session
// before the statement, and by closing the connection after the statement was executed, including the commit.
// Then the log is dense, the rows are its fold, and the write is there as a whole or not at all, as the commit was
// executed or not. The client repeats the write on another server: if the first was lost, all is as if nothing
// had happened; if only its answer was, the client gets the error for a repetition, and the outcome is the same.
func TestCrashAtAnyStatementOfAppend(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	for name, test := range crashTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.crashAtAnyStatement(t, dsn, f, noCache)
		})
		t.Run(name+", cached", func(t *testing.T) {
			t.Parallel()
			test.crashAtAnyStatement(t, dsn, f, [2]bool{true, true})
		})
	}
}

func (test crashTest) crashAtAnyStatement(t *testing.T, dsn string, f *fixture, cached [2]bool) {
	t.Helper()
	session := gate.Open(t, dsn, f.pool, nil)
	st := f.newRunner(f.logOver(session.Pool, test.late[0]), f.logOver(f.pool, test.late[1]))
	st.cached = cached
	clean := test.newScenario(t, st)
	untouched := clean.state(t)
	statements := session.Run(t, -1, gate.None, func() { clean.ask(t, 0) })
	done := clean.state(t)
	commit := len(statements) - 1
	if untouched == done || commit < 1 || statements[commit] != "COMMIT" {
		t.Fatalf("the write is not one transaction: %q", statements)
	}
	for n, sql := range statements {
		for _, crash := range gate.Crashes(sql) {
			t.Run(fmt.Sprintf("%s at %d, %.20s", crash, n, sql), func(t *testing.T) {
				s := test.newScenario(t, st)
				session.Run(t, n, crash, func() { s.ask(t, 0) })
				if err := s.errs[0]; err == nil || isRefusal(err) {
					t.Errorf("the client got %v", err)
				}
				want := untouched
				if committed := n == commit && crash == gate.AnswerLost; committed {
					want = done
				}
				if diff := cmp.Diff(want, s.state(t)); diff != "" {
					t.Fatalf("the crash left something behind (-want +got):\n%s", diff)
				}
				s.askOf(t, 0, s.logs[1])
				if want == untouched {
					s.wantSameResult(t, clean, done)
				} else {
					s.wantRepeatedResult(t, test, done)
				}
			})
		}
	}
}

// isRefusal reports whether an error means that the request was refused.
func isRefusal(err error) bool {
	return errors.Is(err, entities.ErrConflict) || errors.Is(err, entities.ErrInvalid) || errors.Is(err, entities.ErrRunEnded)
}

// wantSameResult fails the test unless the answer and the state are those of a write without a crash.
func (s *scenario) wantSameResult(t *testing.T, clean *scenario, done string) {
	t.Helper()
	if diff := cmp.Diff(clean.normalized(t, clean.answers), s.normalized(t, s.answers)); diff != "" {
		t.Errorf("the second answer differs from that without a crash (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(done, s.state(t)); diff != "" {
		t.Errorf("the outcome differs from that without a crash (-want +got):\n%s", diff)
	}
}

// wantRepeatedResult fails the test unless the client got the error for a repetition, and the log grew by no more than
// it may.
func (s *scenario) wantRepeatedResult(t *testing.T, test crashTest, done string) {
	t.Helper()
	if err := s.errs[0]; !errors.Is(err, test.again) {
		t.Errorf("the client got %v, want %v", err, test.again)
	}
	state := s.state(t)
	if test.grows == nil {
		if diff := cmp.Diff(done, state); diff != "" {
			t.Errorf("the repetition changed something (-want +got):\n%s", diff)
		}
		return
	}
	log := s.types(t, s.ids[0])
	if got := types(log[len(log)-len(test.grows):]); !slices.Equal(got, test.grows) {
		t.Errorf("the repetition appended %v, want %v", got, test.grows)
	}
	if got, want := len(log), 1+len(test.before)+len(test.one)+len(test.grows); got != want {
		t.Errorf("the log has %d events, want %d: %s", got, want, strings.Join(strings.Fields(fmt.Sprint(log)), ", "))
	}
}

// TestCrashAtAnyStatementOfStreamWrite checks that all chunks of a write are stored, or none. A repeated write cannot
// be recognized; clients do not repeat it, but fail the write (protocol §4).
func TestCrashAtAnyStatementOfStreamWrite(t *testing.T) {
	t.Parallel()
	dsn := testdb.New(t)
	f := fixtureOn(t, dsn)
	session := gate.Open(t, dsn, f.pool, nil)
	broken, sound := read.NewStreams(session.Pool, f.hub, f.clock.now), read.NewStreams(f.pool, f.hub, f.clock.now)
	chunks := func(name entities.StreamName) (all []string, closed bool) {
		t.Helper()
		read, stream, err := sound.Chunks(t.Context(), home, name, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range read {
			if c.Idx != int64(i) {
				t.Errorf("chunk %d has index %d", i, c.Idx)
			}
			all = append(all, string(c.Data))
		}
		return all, stream.ClosedAt != nil
	}
	writes := map[string]func(*read.Streams, entities.StreamName) error{
		"write": func(s *read.Streams, name entities.StreamName) error {
			return s.Write(t.Context(), home, "wrun_1", name, [][]byte{[]byte("b"), {}, []byte("c")})
		},
		"close": func(s *read.Streams, name entities.StreamName) error {
			return s.Close(t.Context(), home, "wrun_1", name)
		},
	}
	begin := func(name entities.StreamName, begun bool) (chunks []string) {
		if begun {
			chunks = []string{"a"}
			if err := sound.Write(t.Context(), home, "wrun_1", name, [][]byte{[]byte("a")}); err != nil {
				t.Fatal(err)
			}
		}
		return chunks
	}
	for kind, write := range writes {
		for begun, count := range map[bool]int{false: 4, true: 2} { // new streams of no run are counted
			clean := entities.StreamName(fmt.Sprint("clean ", kind, begun))
			begin(clean, begun)
			statements := session.Run(t, -1, gate.None, func() {
				if err := write(broken, clean); err != nil {
					t.Error(err)
				}
			})
			if len(statements) != count || statements[count-1] != "COMMIT" {
				t.Fatalf("a stream write has the statements %q", statements)
			}
			for n, sql := range statements {
				for _, crash := range gate.Crashes(sql) {
					t.Run(fmt.Sprintf("%s at %d of %s, begun %v", crash, n, kind, begun), func(t *testing.T) {
						name := entities.StreamName(t.Name())
						before := begin(name, begun)
						after, closed := before, false
						if n == count-1 && crash == gate.AnswerLost {
							if closed = kind == "close"; !closed {
								after = append(before[:len(before):len(before)], "b", "", "c")
							}
						}
						session.Run(t, n, crash, func() {
							if err := write(broken, name); err == nil {
								t.Error("the client got no error")
							}
						})
						got, gotClosed := chunks(name)
						if diff := cmp.Diff(after, got); diff != "" || gotClosed != closed {
							t.Errorf("closed %v, want %v; chunks differ (-want +got):\n%s", gotClosed, closed, diff)
						}
						if err := sound.Close(t.Context(), home, "wrun_1", name); err != nil {
							t.Errorf("the stream cannot be closed afterwards: %v", err)
						}
					})
				}
			}
		}
	}
}
