// Package schedule has schedules: when they tick, what a tick starts, and the rows of both.
package schedule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
)

// ID identifies a schedule for ever: one that is deleted and created again has another ID.
type ID string

// NewID returns a new ID.
func NewID() ID { return ID("sched_" + ulid.Make().String()) }

// Overlap says what a tick does while the run that the schedule started last has not ended.
type Overlap string

// The ways to treat overlap.
const (
	// OverlapSkip starts nothing.
	OverlapSkip Overlap = "skip"
	// OverlapWait starts a run when the other one has ended. One tick can wait; those after it are skipped.
	OverlapWait Overlap = "wait"
	// OverlapWaitAll is [OverlapWait] for up to [MaxWaiting] ticks, whose runs follow each other.
	OverlapWaitAll Overlap = "waitAll"
	// OverlapCancel cancels the other run, and starts one.
	OverlapCancel Overlap = "cancel"
	// OverlapAllow starts a run beside it.
	OverlapAllow Overlap = "allow"
)

// CatchUp says which ticks start a run that are late because no server was there.
type CatchUp string

// The ways to catch up.
const (
	// CatchUpLatest starts a run for the latest tick only.
	CatchUpLatest CatchUp = "latest"
	// CatchUpAll starts one for each, as far as the overlap lets it.
	CatchUpAll CatchUp = "all"
)

// Defaults, and limits.
const (
	DefaultWindow = 24 * time.Hour
	// MaxSchedules is how many schedules a project may have.
	MaxSchedules = 10_000
	// MaxBackfill is the most ticks of one backfill.
	MaxBackfill = 1000
	// MaxWaiting is the most ticks that wait for the end of a run.
	MaxWaiting = 1000

	minEvery  = 10 * time.Second
	maxEvery  = 366 * 24 * time.Hour
	minWindow = time.Minute
	maxWindow = 30 * 24 * time.Hour
	maxJitter = time.Hour
	maxInput  = 1 << 20
	maxSpan   = 10 * 365 * 24 * time.Hour
	maxNote   = 1024
	maxCron   = 256
)

// The attributes with which a schedule starts its runs.
const (
	// AttributeName has the name of the schedule.
	AttributeName = "$schedule"
	// AttributeTick has the time of the tick in RFC 3339, in the schedule's time zone.
	AttributeTick = "$scheduledAt"
)

var (
	// ErrNotFound means that the project has no such schedule.
	ErrNotFound = errors.New("schedule not found")
	// ErrTooMany means that the project already has as many schedules as it may.
	ErrTooMany = fmt.Errorf("the project has %d schedules: remove one first", MaxSchedules)
	// ErrChanged means that the schedule was changed by somebody else at the same time.
	ErrChanged = fmt.Errorf("the schedule was changed at the same time: %w", entities.ErrConflict)
)

// Spec is what a project says about a schedule.
type Spec struct {
	// Cron or Every says when the schedule ticks. Ticks of Every are multiples of it: one of 24h ticks at midnight UTC.
	Cron  string
	Every time.Duration
	// TimeZone is the IANA name of the zone whose clock Cron means; empty for UTC.
	TimeZone string
	// FromAt and UntilAt are the first and the last moment at which the schedule may tick; nil for no bound.
	FromAt, UntilAt *time.Time
	// Workflow, Deployment, Input, Attributes and Timeout are those of the runs. An empty deployment is the newest one of
	// the workflow at the tick, and no timeout is 0.
	Workflow   string
	Deployment string
	Input      []byte
	Attributes map[string]string
	Timeout    time.Duration
	Overlap    Overlap
	CatchUp    CatchUp
	// CatchUpWindow is how late a tick may be.
	CatchUpWindow time.Duration
	// Jitter is the time in which the starts are spread: each tick starts after a part of it that never changes.
	Jitter time.Duration
}

// Schedule is a schedule with its state.
type Schedule struct {
	Spec

	Project entities.Project
	Name    string
	ID      ID
	// PausedAt is set while the schedule is paused.
	PausedAt  *time.Time
	PauseNote string
	// DecidedUntil is the time up to which all ticks have been decided.
	DecidedUntil time.Time
	// NextAt is the next tick; nil if there is none.
	NextAt *time.Time
	// WaitingAt is the tick that waits for the end of the last run, RunID, and WaitingMore are those behind it. A run that
	// continues as another one is replaced by that.
	WaitingAt   *time.Time
	WaitingMore []time.Time
	RunID       entities.RunID
	// The backfill under way. All of its ticks up to BackfillAt have been decided; it ends with BackfillUntil.
	BackfillAt     *time.Time
	BackfillUntil  *time.Time
	BackfillRepeat bool
	BackfillRunID  entities.RunID
	// Ticks counts the recorded decisions.
	Ticks     int64
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Kind says where a tick comes from.
type Kind string

// The kinds of ticks.
const (
	KindTick     Kind = "tick"
	KindTrigger  Kind = "trigger"
	KindBackfill Kind = "backfill"
)

// Decision is what was decided about a tick.
type Decision string

// The decisions. All but waiting are final.
const (
	Started Decision = "started"
	Waiting Decision = "waiting"
	Skipped Decision = "skipped"
	Missed  Decision = "missed"
	Refused Decision = "refused"
)

// Tick is the decision about a tick. One that was missed may stand for several ticks.
type Tick struct {
	Kind     Kind
	At       time.Time
	Decision Decision
	// RunID is the run that was started, or because of which the tick waits or was skipped.
	RunID  entities.RunID
	Reason string
	// Count is for how many ticks it stands, and LastAt the last of them.
	Count  int64
	LastAt time.Time
	// Seq numbers the decisions of a schedule.
	Seq       int64
	DecidedAt time.Time
}

func bad(field, format string, args ...any) error {
	return &entities.FieldError{Field: field, Err: entities.Invalid(format, args...)}
}

// Validate checks the schedule, except for whether its deployment exists. It fails with an *[entities.FieldError].
func (s Spec) Validate() error {
	timing, err := s.Timing()
	if err != nil {
		return err
	}
	if err := entities.ValidateWorkflowName("workflow", s.Workflow); err != nil {
		return &entities.FieldError{Field: "workflow", Err: err}
	}
	if err := cmp.Or(
		entities.ValidateAttributes(s.Attributes, false),
		entities.ValidateAttributes(Schedule{Spec: s}.RunAttributes(Tick{}), true),
	); err != nil {
		return &entities.FieldError{Field: "attributes", Err: err}
	}
	switch {
	case !slices.Contains([]Overlap{OverlapSkip, OverlapWait, OverlapWaitAll, OverlapCancel, OverlapAllow}, s.Overlap):
		return bad("overlap", "%q is none of skip, wait, waitAll, cancel and allow", s.Overlap)
	case s.CatchUp != CatchUpLatest && s.CatchUp != CatchUpAll:
		return bad("catchUp", "%q is neither latest nor all", s.CatchUp)
	case len(s.Input) > maxInput:
		return bad("input", "it has %d bytes; the limit is %d", len(s.Input), maxInput)
	case len(s.Input) > 0 && !json.Valid(s.Input):
		return bad("input", "it is not JSON")
	default:
		return s.validateSpans(timing)
	}
}

// validateSpans checks the durations that do not say when the schedule ticks.
func (s Spec) validateSpans(timing Timing) error {
	switch {
	case s.CatchUpWindow < minWindow || s.CatchUpWindow > maxWindow:
		return bad("catchUpWindow", "%s is not between %s and %s", s.CatchUpWindow, minWindow, maxWindow)
	case s.Jitter < 0 || s.Jitter > maxJitter:
		return bad("jitter", "%s is not between 0 and %s", s.Jitter, maxJitter)
	case s.Jitter > 0 && s.Jitter >= timing.every && timing.every > 0:
		return bad("jitter", "%s is not shorter than every, which is %s", s.Jitter, timing.every)
	case s.FromAt != nil && s.UntilAt != nil && s.UntilAt.Before(*s.FromAt):
		return bad("until", "%s is before from, which is %s",
			s.UntilAt.Format(time.RFC3339), s.FromAt.Format(time.RFC3339))
	case s.Timeout < 0 || s.Timeout > maxSpan:
		return bad("timeout", "%s is not between 0 and %s", s.Timeout, maxSpan)
	default:
		return nil
	}
}

// ValidateNote checks why a schedule is paused.
func ValidateNote(note string) error {
	if note == "" {
		return nil
	}
	return entities.ValidateText("note", note, maxNote)
}

// RunAttributes returns the attributes of the run that a tick starts.
func (s Schedule) RunAttributes(t Tick) map[string]string {
	zone, err := location(s.TimeZone)
	if err != nil {
		zone = time.UTC // this server does not know the zone any more
	}
	all := map[string]string{AttributeName: s.Name, AttributeTick: t.At.In(zone).Format(time.RFC3339Nano)}
	for key, value := range s.Attributes {
		all[key] = value
	}
	return all
}

// StartsAt returns when a tick starts its run: after a part of the jitter that is the same on every server.
func (s Schedule) StartsAt(tick time.Time) time.Time {
	if s.Jitter == 0 {
		return tick
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", s.ID, tick.UnixMilli())
	return tick.Add((time.Duration(h.Sum64()>>1) % s.Jitter).Truncate(time.Millisecond))
}
