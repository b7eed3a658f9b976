package eventlog

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/limit"
	"github.com/stepwell-dev/stepwell/entities/memo"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// memoOf returns what the request says about outputs that are known, if it creates a step; else nil.
func (f facts) memoOf(r Request) *entities.MemoSpec {
	if spec := f.newStep(r); spec != nil {
		return spec.Memo
	}
	return nil
}

// usesMemos reports whether the requests need to know outputs of other runs, or to write what is known. Those that do
// take the lock: a conditional statement reads nothing, and the ones that share a transaction would wait for each
// other's rows.
func (f facts) usesMemos(requests []Request) bool {
	return slices.ContainsFunc(requests, func(r Request) bool { return r.Keep != nil || f.memoOf(r) != nil })
}

// findKnown reads the outputs that are known of the steps that the call creates, and sets them in the requests.
func (c *call) findKnown(ctx context.Context, tx pgx.Tx, f *facts) error {
	var hashes []string
	var of []int
	for i, r := range c.requests {
		if spec := f.memoOf(r); spec != nil {
			hashes, of = append(hashes, spec.Hash), append(of, i)
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	var b pgx.Batch
	memo.Load(&b, c.project, hashes, func(k memo.Known) { c.requests[of[k.Nth-1]].known = &k })
	return pg.SendQueued(ctx, tx, &b)
}

// withKnownOutput returns a step_created and the step_completed with the known output.
func withKnownOutput(created entities.Event, known memo.Known) []entities.Event {
	completed := created
	completed.Type, completed.Seq, completed.Payload = entities.EventStepCompleted, created.Seq+1, known.Output
	completed.Data = entities.EventData{StepName: created.Data.StepName, Memo: &known.MemoRef}
	return []entities.Event{created, completed}
}

// keepOutputs queues the writes that make outputs known, unless they are large.
func (c call) keepOutputs(b *pgx.Batch, d decision) {
	for i, r := range c.requests {
		o := d.outcomes[i]
		if r.Keep == nil || o.Err != nil || o.Repeated || len(r.Payload) > memo.MaxOutput {
			continue
		}
		memo.Keep(b, c.project, *r.Keep, entities.MemoRef{RunID: c.runID, Seq: o.Event.Seq})
	}
}

// withShare returns what is known about a step, with the limit that lets it wait for an equal one.
func withShare(spec entities.StepSpec) *entities.StepSpec {
	if spec.Memo != nil && spec.Memo.Share {
		spec.Limits = limit.Join(spec.Limits, []entities.LimitUse{limit.OfMemo(spec.Memo.Hash)})
	}
	return &spec
}
