package triggers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/flow"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/starts/trigger"
)

// Put creates a trigger or replaces what is said about one, and reports whether it is new. It counts for every event
// that comes after Put has returned, and perhaps for some that came shortly before. A webhook keeps its token. Saying
// the same again changes nothing.
//
// It fails with [entities.ErrInvalid], with [message.ErrDeploymentNotFound] if no app has the workflow, and with
// [trigger.ErrTooMany].
func (t *Triggers) Put(
	ctx context.Context, p entities.Project, name string, spec trigger.Spec,
) (trg trigger.Trigger, created bool, err error) {
	if err := trigger.ValidateName(name); err != nil {
		return trg, false, err
	}
	if err := spec.Validate(); err != nil {
		return trg, false, err
	}
	if err := t.checkCondition(ctx, p, spec); err != nil {
		return trg, false, err
	}
	if err := checkTemplates(spec); err != nil {
		return trg, false, err
	}
	wanted := trigger.Trigger{Spec: spec, Project: p, Name: name}
	if _, err := t.queue.StartDeployment(ctx, p, spec.Workflow, spec.Deployment); err != nil {
		return trg, false, err
	}
	err = untilUnchanged(func() (err error) {
		trg, err = trigger.ByName(ctx, pg.NewPool(t.pool), p, name)
		if created = errors.Is(err, trigger.ErrNotFound); created {
			trg, err = t.create(ctx, wanted)
			return err
		}
		if err != nil {
			return err
		}
		before := trg.Spec
		spec.Source = source(spec, before)
		if same(before, spec) {
			return nil
		}
		trg.Spec = spec
		trg, err = t.change(ctx, trg, admin.ActionTriggerPut)
		return err
	})
	return trg, created && err == nil, err
}

// checkCondition fails with an *[entities.FieldError] if the condition is invalid.
func (t *Triggers) checkCondition(ctx context.Context, p entities.Project, spec trigger.Spec) error {
	if spec.Condition == "" {
		return nil
	}
	err := t.conditions.Check(ctx, p, spec.Condition)
	if errors.Is(err, entities.ErrInvalid) {
		return &entities.FieldError{Field: "on." + string(spec.Kind) + ".condition", Err: err}
	}
	return err
}

// checkTemplates fails with an *[entities.FieldError] if an expression in the start is invalid.
func checkTemplates(spec trigger.Spec) error {
	if err := flow.CheckFill(spec.Input); err != nil {
		return &entities.FieldError{Field: "start.input", Err: err}
	}
	return spec.EachText(func(text string) (string, error) {
		quoted, err := json.Marshal(text)
		if err != nil {
			return "", fmt.Errorf("encode text: %w", err)
		}
		return text, flow.CheckFill(quoted)
	})
}

// source returns what a trigger waits for, whose spec was another one before. A webhook gets a token, and keeps it.
func source(spec, before trigger.Spec) string {
	switch {
	case spec.Kind != trigger.KindWebhook:
		return spec.Source
	case before.Kind == trigger.KindWebhook:
		return before.Source
	default:
		return trigger.NewToken()
	}
}

// same reports whether both say the same.
func same(a, b trigger.Spec) bool {
	return bytes.Equal(a.Input, b.Input) && maps.Equal(a.Attributes, b.Attributes) &&
		slices.Equal(a.Statuses, b.Statuses) && a.Kind == b.Kind && a.Source == b.Source && a.Condition == b.Condition &&
		a.Verify == b.Verify && a.Secret == b.Secret && a.Workflow == b.Workflow && a.Deployment == b.Deployment &&
		a.UniqueKey == b.UniqueKey && a.Joins == b.Joins && a.Timeout == b.Timeout &&
		sameOptions(a.Options, b.Options)
}

func sameOptions(a, b trigger.Options) bool {
	return a.IdempotencyKey == b.IdempotencyKey && slices.Equal(a.Limits, b.Limits) && a.Priority == b.Priority &&
		a.Delay == b.Delay && a.Respond == b.Respond && reflect.DeepEqual(a.Collect, b.Collect)
}

// create stores a new trigger.
func (t *Triggers) create(ctx context.Context, trg trigger.Trigger) (trigger.Trigger, error) {
	now := t.log.Now()
	trg.ID, trg.Revision, trg.CreatedAt, trg.UpdatedAt = trigger.NewID(), 1, now, now
	trg.Source = source(trg.Spec, trigger.Spec{})
	return trg, t.store(ctx, trg, admin.ActionTriggerPut,
		func(b *pgx.Batch) func() error { return trigger.Reserve(b, trg) },
		func(b *pgx.Batch) { trigger.Insert(b, trg) })
}

// change writes a trigger that was read and edited, if it is still as it was read, and returns it as written.
func (t *Triggers) change(
	ctx context.Context, trg trigger.Trigger, kind admin.ActionKind,
) (trigger.Trigger, error) {
	was := trg
	trg.Revision++
	trg.UpdatedAt = t.log.Now()
	return trg, t.store(ctx, trg, kind, func(b *pgx.Batch) func() error {
		room, unchanged := trigger.Reserve(b, trg), trigger.Lock(b, was)
		return func() error { return errors.Join(unchanged(), room()) }
	}, func(b *pgx.Batch) { trigger.Update(b, trg) })
}

// store executes the check and the write of a trigger in one transaction with an entry in the audit.
func (t *Triggers) store(
	ctx context.Context, trg trigger.Trigger, kind admin.ActionKind,
	lock func(*pgx.Batch) (check func() error), write func(*pgx.Batch),
) error {
	err := pg.CheckThen(ctx, t.pool, lock, func(b *pgx.Batch) {
		write(b)
		admin.InsertAction(ctx, b, trg.Project, kind, trg.Name, nil)
	})
	return pg.Wrap(err, "write trigger %s", trg.Name)
}

// Delete deletes a trigger with its history. Its runs go on; what it has not started yet is not started. It fails with
// [trigger.ErrNotFound].
func (t *Triggers) Delete(ctx context.Context, p entities.Project, name string) error {
	return untilUnchanged(func() error {
		trg, err := trigger.ByName(ctx, pg.NewPool(t.pool), p, name)
		if err != nil {
			return err
		}
		return t.store(ctx, trg, admin.ActionTriggerRemove,
			func(b *pgx.Batch) func() error { return trigger.Lock(b, trg) },
			func(b *pgx.Batch) { trigger.Delete(b, trg) })
	})
}

// Pause stops a trigger until it is resumed: events that come meanwhile start nothing and leave no trace. The note,
// which may be empty, says why; that of a paused trigger is replaced. It fails with [entities.ErrInvalid] and
// [trigger.ErrNotFound].
func (t *Triggers) Pause(ctx context.Context, p entities.Project, name, note string) (trigger.Trigger, error) {
	if err := trigger.ValidateNote(note); err != nil {
		return trigger.Trigger{}, err
	}
	return t.changeNamed(ctx, p, name, admin.ActionTriggerPause, func(trg *trigger.Trigger) bool {
		if trg.PausedAt != nil && trg.PauseNote == note {
			return false
		}
		if trg.PausedAt == nil {
			trg.PausedAt = new(t.log.Now())
		}
		trg.PauseNote = note
		return true
	})
}

// Resume lets a paused trigger go on with the next event. It fails with [trigger.ErrNotFound].
func (t *Triggers) Resume(ctx context.Context, p entities.Project, name string) (trigger.Trigger, error) {
	return t.changeNamed(ctx, p, name, admin.ActionTriggerResume, func(trg *trigger.Trigger) bool {
		paused := trg.PausedAt != nil
		trg.PausedAt, trg.PauseNote = nil, ""
		return paused
	})
}

// changeNamed reads a trigger and changes it unless edit reports that it is as wanted, again if it changes meanwhile.
func (t *Triggers) changeNamed(
	ctx context.Context, p entities.Project, name string, kind admin.ActionKind, edit func(*trigger.Trigger) bool,
) (trg trigger.Trigger, err error) {
	err = untilUnchanged(func() (err error) {
		if trg, err = trigger.ByName(ctx, pg.NewPool(t.pool), p, name); err != nil || !edit(&trg) {
			return err
		}
		trg, err = t.change(ctx, trg, kind)
		return err
	})
	return trg, err
}
