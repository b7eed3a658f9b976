package eventlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// A hook may take the token over from the hook of another run, the victim. Its hook_created, which names the victim,
// and the hook_disposed of the victim's hook, which names the new one, are written in one transaction. That holds the
// locks of both runs, so nothing is received for a hook that has lost its token, and the fold of either log alone tells
// who has it (protocol §3.16).

// forces reports whether the request may take a token over.
func (r *Request) forces() bool { return r.Type == entities.EventHookCreated && r.Data.Force }

// lockHolders queues the locks that a takeover needs, before all others, and adds the runs that they are on.
func (c call) lockHolders(b *pgx.Batch, locked map[entities.RunID]bool) {
	var tokens []string
	for i := range c.requests {
		r := &c.requests[i]
		if r.forces() {
			tokens = append(tokens, r.Data.Token)
		}
	}
	if len(tokens) > 0 {
		store.LockHolders(b, c.project, c.runID, tokens, locked)
	}
}

// readVictims reads the runs from which the requests may take tokens over, in the transaction that holds the tokens.
// They are locked, unless a token has changed hands since: then the transaction begins again, because runs are locked
// before tokens.
func (c call) readVictims(ctx context.Context, tx pgx.Tx, f *facts) error {
	read := map[entities.RunID]*Snapshot{}
	var b pgx.Batch
	for i := range c.requests {
		r := &c.requests[i]
		holder := f.holders[r.Data.Token]
		if !r.forces() || holder == nil || holder.RunID == c.runID {
			continue
		}
		if !f.locked[holder.RunID] {
			return fmt.Errorf("take over token %q: its holder changed meanwhile: %w", r.Data.Token, pg.ErrTryAgain)
		}
		if read[holder.RunID] == nil {
			read[holder.RunID] = NewSnapshot(c.project)
			store.LockRun(&b, c.project, holder.RunID, &read[holder.RunID].Run)
		}
		store.LoadHook(&b, holder.RunID, holder.ID, read[holder.RunID].Hooks)
	}
	if err := pg.SendQueued(ctx, tx, &b); err != nil {
		return err
	}
	for token, holder := range f.holders {
		if victim := read[holder.RunID]; victim != nil {
			f.holders[token] = copyOf(victim.Hooks, holder.ID)
		}
	}
	f.victims = map[entities.RunID]*decision{}
	for id, victim := range read {
		d := newDecision(facts{Snapshot: victim})
		f.victims[id] = &d
	}
	return nil
}

// forceRefused returns why the run keeps the tokens of its hooks. Its client must understand that it loses one, unless
// the run has ended, and only retains them.
func forceRefused(victim *entities.Run) string {
	if victim.Status.Ended() || victim.SpecVersion >= entities.SpecTakeover {
		return ""
	}
	return "victim-spec-version"
}

// claimOf returns the claim to the token of a run's hook.
func claimOf(victim *entities.Run, hook entities.HookID) *entities.HookClaim {
	return &entities.HookClaim{
		HookRef:      entities.HookRef{RunID: victim.ID, HookID: hook},
		WorkflowName: victim.WorkflowName, DeploymentID: victim.DeploymentID, SpecVersion: victim.SpecVersion,
	}
}

// takeOver adds to the decision what a hook_created that takes a token over writes to the victim's log.
func (d *decision) takeOver(f facts, e *entities.Event, now time.Time) {
	from := e.Data.ForceClaimedFrom
	if from == nil {
		return
	}
	victim := f.victims[from.RunID]
	of := facts{Snapshot: victim.after}
	lost := of.newEvent(&Request{
		RunID: from.RunID, Type: entities.EventHookDisposed, CorrelationID: string(from.HookID),
		SpecVersion: victim.after.Run.SpecVersion, Data: entities.EventData{
			Token: e.Data.Token, ForceClaimedBy: &entities.HookRef{RunID: e.RunID, HookID: entities.HookID(e.CorrelationID)},
		},
	}, of.eventTime(now))
	if len(victim.events) == 0 {
		d.victims = append(d.victims, victim)
	}
	victim.after.Apply(&lost)
	victim.events = append(victim.events, lost)
	delete(f.holders, e.Data.Token)
}
