package eventlog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// Beginning is work about a run that was leased to this very process as part of a transaction, and begins as soon as
// that is committed. So the log says in the same transaction that it begins, and whoever does the work is told what it
// begins with. A beginning that was not recorded, for its Run is nil, is for whoever does the work to record.
type Beginning struct {
	RunID entities.RunID
	// Work is an invocation of the run or the execution of the step that is the subject; what else there is to do
	// has no beginning in the log.
	Work    entities.Work
	Subject string
	// At is the time of the database, which says which waits are over.
	At time.Time
	// Events is how many events of the log an invocation brings along.
	Events int

	// Run is the run as the work begins. This and what follows is set by the log.
	Run *entities.Run
	// Step is what there is to know for executing a step.
	Step read.StepState
	// Log is the run's whole log as an invocation begins, if it was at hand; nil if it has to be read. It must not be
	// changed.
	Log []entities.Event
	// Size is how many bytes of payloads the events have that an invocation brings along.
	Size int64
}

// enqueue queues what was decided, and puts what follows from it on the queue. Of a run that the server continues
// the latter comes first, for it says what begins with the transaction: all of it is written at once.
func (l *Log) enqueue(
	ctx context.Context, tx pgx.Tx, last *pgx.Batch, f *facts, j *judgement, now time.Time, t terms,
) (ended func(error), err error) {
	if !j.goesOn() {
		write(last, *f, *j)
		if len(j.messages) == 0 {
			return nil, nil
		}
		_, ended, err = l.enqueuer.Enqueue(ctx, tx, last, j.messages)
		return ended, err
	}
	var before pgx.Batch
	own, messages := t.begins(&before, j.after.Run.ID, j.messages)
	due := map[entities.WaitID]entities.Wait{}
	if j.before.Run != nil && (own != nil || invokes(j.after.Run.ID, messages)) {
		store.LoadDueWaits(&before, j.after.Run.ID, due)
	}
	var begins []*Beginning
	if len(messages) > 0 {
		if begins, ended, err = l.enqueuer.Enqueue(ctx, tx, &before, messages); err != nil {
			return nil, err
		}
	}
	if err := pg.SendQueued(ctx, tx, &before); err != nil {
		return ended, err
	}
	if own != nil {
		begins = append(begins, own())
	}
	j.learn(due)
	for _, b := range begins {
		j.begin(b, now)
	}
	write(last, *f, *j)
	for _, b := range begins {
		l.measure(last, j.of(b.RunID), b)
	}
	return ended, nil
}

// goesOn reports whether the server continues the run.
func (j judgement) goesOn() bool {
	return j.after.Run != nil && j.after.Run.Driver == entities.DriverServer && !j.after.Run.Status.Ended()
}

// invokes reports whether the messages have the run invoked now.
func invokes(id entities.RunID, messages []entities.Message) bool {
	return slices.ContainsFunc(messages, func(m entities.Message) bool {
		return m.RunID == id && m.Work == entities.WorkRun && m.Delay == 0
	})
}

// learn adds waits of the run to what is known of it, but for those that are known already.
func (j *judgement) learn(waits map[entities.WaitID]entities.Wait) {
	for id, w := range waits {
		if _, ok := j.after.Waits[id]; !ok {
			j.before.Waits[id], j.after.Waits[id] = w, w
		}
	}
}

// of is the judgement on the run, which may be a child that is created; nil if there is none.
func (j *judgement) of(id entities.RunID) *judgement {
	if j.after.Run != nil && j.after.Run.ID == id {
		return j
	}
	for i := range j.children {
		if c := &j.children[i]; c.after.Run != nil && c.after.Run.ID == id {
			return c
		}
	}
	return nil
}

// begin records that work begins, as if all that was decided before had been written; if that cannot be, nothing. It
// is pure.
func (j *judgement) begin(b *Beginning, now time.Time) {
	of := j.of(b.RunID)
	if of == nil {
		return
	}
	switch b.Work {
	case entities.WorkRun:
		of.invoke(b, now)
	case entities.WorkStep:
		of.execute(b, now)
	default: // it does not begin by an event
	}
}

// invoke records that an invocation of the run begins: that the run has started, and which of its waits are over.
func (j *judgement) invoke(b *Beginning, now time.Time) {
	requests := []Request{{RunID: b.RunID, Type: entities.EventRunStarted, SpecVersion: entities.SpecDriven, Once: true}}
	for _, w := range j.after.due(b.At) {
		requests = append(requests, Request{
			RunID: b.RunID, Type: entities.EventWaitCompleted, CorrelationID: string(w.ID),
			SpecVersion: entities.SpecDriven, Once: true,
		})
	}
	for _, r := range requests {
		if j.add(facts{Snapshot: j.after}, r, now).Err != nil {
			return
		}
	}
	run := *j.after.Run
	b.Run = &run
}

// due are the waits that are over by then, the first of them first; no more than fit one transaction.
func (s *Snapshot) due(at time.Time) []entities.Wait {
	over := slices.DeleteFunc(slices.Collect(maps.Values(s.Waits)), func(w entities.Wait) bool {
		return w.Status != entities.WaitWaiting || w.ResumeAt == nil || w.ResumeAt.After(at)
	})
	slices.SortFunc(over, func(a, b entities.Wait) int {
		return cmp.Or(a.ResumeAt.Compare(*b.ResumeAt), cmp.Compare(a.ID, b.ID))
	})
	return over[:min(len(over), pg.MaxPage)]
}

// execute records that an attempt of a step begins that was just created. One whose time is over already fails
// without an attempt.
func (j *judgement) execute(b *Beginning, now time.Time) {
	i := slices.IndexFunc(j.events, func(e entities.Event) bool {
		return e.Type == entities.EventStepCreated && e.CorrelationID == b.Subject
	})
	if i < 0 || j.events[i].Data.Step == nil || j.events[i].Data.Step.Late(now) {
		return
	}
	created := j.events[i]
	o := j.add(facts{Snapshot: j.after}, Request{
		RunID: b.RunID, Type: entities.EventStepStarted, CorrelationID: b.Subject, SpecVersion: entities.SpecDriven,
		Data: entities.EventData{StepName: created.Data.StepName},
	}, now)
	if o.Err != nil {
		return
	}
	run := *j.after.Run
	b.Run, b.Step = &run, read.StepState{Step: *o.Step, Created: created, Run: run}
}

// measure finds out how large the log is that an invocation brings along, and which if it is remembered.
func (l *Log) measure(last *pgx.Batch, of *judgement, b *Beginning) {
	if b.Run != nil && b.Work == entities.WorkRun && !l.bringLog(b, of) {
		read.Measure(last, b.RunID, b.Events, &b.Size)
	}
}

// bringLog has an invocation bring the log along that is remembered, and reports whether it is.
func (l *Log) bringLog(b *Beginning, of *judgement) bool {
	b.Log = l.memory.logWith(of)
	for _, e := range b.Log[:min(len(b.Log), b.Events)] {
		b.Size += int64(len(e.Payload))
	}
	b.Size = min(b.Size, read.MaxPageBytes)
	return b.Log != nil
}
