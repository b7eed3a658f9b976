package limit

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Bounds of the settings.
const (
	// MaxLimits is how many limits a project may have.
	MaxLimits = 10_000
	// MaxSlots is the most slots that a limit may have.
	MaxSlots = 10_000
	// MaxUses is how many limits a run or a step may need.
	MaxUses = 8

	maxRate     = 1_000_000
	minPer      = time.Second
	maxPer      = 30 * 24 * time.Hour
	maxKey      = 256 // bytes
	maxPriority = time.Hour
)

var (
	// ErrNotFound means that the project has no such limit.
	ErrNotFound = errors.New("limit not found")
	// ErrPolicyNotFound means that the project has no policy for the workflow.
	ErrPolicyNotFound = errors.New("policy not found")
	// ErrTooMany means that the project already has as many limits or policies as it may.
	ErrTooMany = fmt.Errorf("the project has %d of them: remove one first", MaxLimits)
	// ErrInUse means that a limit cannot be deleted, because a policy names it or something holds it or waits for it.
	ErrInUse = errors.New("limit in use")
	// ErrFull means that a start was refused; a [FullError] names the limit.
	ErrFull = errors.New("limit full")
)

// OnFull is what happens to a start that finds no slot.
type OnFull string

// What a start does that finds no slot.
const (
	// Wait has it wait for one.
	Wait OnFull = "wait"
	// Reject refuses it with a [FullError]. Nothing is recorded.
	Reject OnFull = "reject"
	// ReplaceWaiting has it wait in place of the runs that wait with the same key: they are cancelled.
	ReplaceWaiting OnFull = "replaceWaiting"
	// CancelOldest cancels the runs that came first with the same key, as far as that makes room: those that hold slots,
	// then those that wait. It needs PerKey.
	CancelOldest OnFull = "cancelOldest"
)

// Spec is what a project says about a limit.
type Spec struct {
	// PerKey and Total are how many slots there are for one key, and in all; 0 for no bound.
	PerKey int
	Total  int
	// Rate is how many may begin with one key in any window of length Per; 0 for no bound. Burst of them may begin at
	// once; the others come one after another, Per/(Rate-Burst+1) apart. So a burst costs a part of the sustained rate,
	// and there is no window with more than Rate.
	Rate  int
	Per   time.Duration
	Burst int
	// Fair has tenants take turns at the slots.
	Fair   bool
	OnFull OnFull
	// Paused keeps everything from beginning. What holds a slot continues.
	Paused bool
}

// Limit is a limit of a project.
type Limit struct {
	Spec

	Project   entities.Project
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// WithDefaults returns the settings with the defaults of those that are not set.
func (s Spec) WithDefaults() Spec {
	if s.OnFull == "" {
		s.OnFull = Wait
	}
	if s.Rate > 0 && s.Burst == 0 {
		s.Burst = 1
	}
	return s
}

// Validate validates the settings. It fails with [entities.ErrInvalid].
func (s Spec) Validate() error {
	switch {
	case s.PerKey < 0 || s.PerKey > MaxSlots:
		return entities.Invalid("perKey %d is not between 0 and %d", s.PerKey, MaxSlots)
	case s.Total < 0 || s.Total > MaxSlots:
		return entities.Invalid("total %d is not between 0 and %d", s.Total, MaxSlots)
	case s.PerKey == 0 && s.Total == 0 && s.Rate == 0:
		return entities.Invalid("the limit bounds nothing: set perKey, total or rate")
	case s.OnFull == CancelOldest && s.PerKey == 0:
		return entities.Invalid("onFull cancelOldest cancels runs with the same key: set perKey")
	}
	if err := s.validateRate(); err != nil {
		return err
	}
	switch s.OnFull {
	case Wait, Reject, ReplaceWaiting, CancelOldest:
		return nil
	default:
		return entities.Invalid("onFull %q is none of wait, reject, replaceWaiting and cancelOldest", s.OnFull)
	}
}

func (s Spec) validateRate() error {
	switch {
	case s.Rate < 0 || s.Rate > maxRate:
		return entities.Invalid("rate.limit %d is not between 1 and %d", s.Rate, maxRate)
	case s.Rate == 0 && (s.Per != 0 || s.Burst != 0):
		return entities.Invalid("rate.limit is missing")
	case s.Rate > 0 && (s.Per < minPer || s.Per > maxPer):
		return entities.Invalid("rate.per %s is not between %s and %s", s.Per, minPer, maxPer)
	case s.Rate > 0 && (s.Burst < 1 || s.Burst > s.Rate):
		return entities.Invalid("rate.burst %d is not between 1 and rate.limit, which is %d", s.Burst, s.Rate)
	case s.Rate > 0 && s.Per/time.Duration(s.Rate) < time.Microsecond:
		return entities.Invalid("rate: %d in %s is more than one in a microsecond", s.Rate, s.Per)
	default:
		return nil
	}
}

// Interval is the time between the starts with one key that follow a burst; 0 without a rate. It is rounded up to the
// microseconds of the database.
func (s Spec) Interval() time.Duration {
	if s.Rate == 0 {
		return 0
	}
	n := time.Duration(s.Rate - s.Burst + 1)
	return ((s.Per+n-1)/n + time.Microsecond - 1).Truncate(time.Microsecond)
}

// Sustained is how many may begin with one key in the length of a window in the long run: less than Rate if there is a
// burst.
func (s Spec) Sustained() int {
	if s.Rate == 0 {
		return 0
	}
	return s.Rate - s.Burst + 1
}

// Most is the most slots that something may take of the limit; 0 if that is not bounded.
func (s Spec) Most() int {
	most := 0
	for _, n := range []int{s.PerKey, s.Total, s.Burst} {
		if n > 0 && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}

// ValidateUses validates the limits that a run or a step names, as far as that does not depend on the limits, and its
// priority. It fails with [entities.ErrInvalid].
func ValidateUses(uses []entities.LimitUse, priority time.Duration) error {
	if len(uses) > MaxUses {
		return entities.Invalid("%d limits are named; the most is %d", len(uses), MaxUses)
	}
	if priority.Abs() > maxPriority {
		return entities.Invalid("a priority of %s is not between -%s and %s", priority, maxPriority, maxPriority)
	}
	seen := map[string]bool{}
	for _, u := range uses {
		if err := validateUse(u); err != nil {
			return err
		}
		if seen[u.Name] {
			return entities.Invalid("limit %s is named twice", u.Name)
		}
		seen[u.Name] = true
	}
	return nil
}

func validateUse(u entities.LimitUse) error {
	if err := entities.ValidateID("limit name", u.Name); err != nil {
		return err
	}
	for _, of := range [][2]string{{"key", u.Key}, {"tenant", u.Tenant}} {
		if of[1] == "" {
			continue
		}
		if err := entities.ValidateText(of[0]+" of limit "+u.Name, of[1], maxKey); err != nil {
			return err
		}
	}
	if u.Cost < 0 || u.Cost > MaxSlots {
		return entities.Invalid("a cost of %d of limit %s is not between 1 and %d", u.Cost, u.Name, MaxSlots)
	}
	return nil
}

// FullError is an [ErrFull] with the limit that had no slot.
type FullError struct {
	Use entities.LimitUse
	// Held is how many slots of the limit are taken with the key.
	Held int
	// RetryAfter is when trying again may help: when the rate allows it, or a guess. It is always positive.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	return fmt.Sprintf("limit %s has no slot for key %q, of which %d are taken: try again later, or raise the limit",
		e.Use.Name, e.Use.Key, e.Held)
}

// Is makes errors.Is(err, ErrFull) true.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Details returns the machine-readable part of the error.
func (e *FullError) Details() map[string]any {
	return map[string]any{"limit": e.Use.Name, "key": e.Use.Key, "held": e.Held}
}
