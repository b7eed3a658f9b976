package admin

import (
	"errors"
	"fmt"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// The reasons for which a project may not start a run. See [QuotaError].
var (
	// ErrStartQuota means that the project has started as many runs today as it may.
	ErrStartQuota = errors.New("the project's daily starts are used up")
	// ErrStorageQuota means that the project stores as much as it may.
	ErrStorageQuota = errors.New("the project's storage is used up")
	// ErrTooDeep means that as many runs have led to the run, one after the other, as may.
	ErrTooDeep = errors.New("the run is too far below the root of its tree")
	// ErrTooManyDescendants means that the root of the tree has as many open descendants as it may.
	ErrTooManyDescendants = errors.New("the root of the tree has too many open descendants")
	// ErrRootCancelled means that the root of the tree was cancelled, which closes the tree to new runs.
	ErrRootCancelled = errors.New("the root of the tree was cancelled")
	// ErrPaused means that the project is paused.
	ErrPaused = errors.New("the project is paused")
)

// pausedRetry is the Retry-After of starts that are refused because the project is paused.
const pausedRetry = 30 * time.Second

// QuotaError refuses a new run because its project or its tree takes no more. It matches its Reason.
type QuotaError struct {
	// Reason is one of the errors above.
	Reason  error
	Project entities.Project
	// Root is the root of the tree, if that is the reason.
	Root entities.RunID
	// Used is how many starts, bytes, runs above or open descendants there are; Limit is how many may be.
	Used, Limit int64
	// RetryAfter is when it is worth to try again; 0 if that is not known.
	RetryAfter time.Duration
}

// CheckStart returns a *[QuotaError] if the project may not start a run, given how many it has started today.
func (p ListedProject) CheckStart(startsToday int64, now time.Time) error {
	if p.PausedAt != nil {
		return &QuotaError{Reason: ErrPaused, Project: p.Name, RetryAfter: pausedRetry}
	}
	return p.CheckQuotas(startsToday, now)
}

// CheckQuotas is [ListedProject.CheckStart] for a run that a run under way starts: it may while the project is paused,
// and waits.
func (p ListedProject) CheckQuotas(startsToday int64, now time.Time) error {
	switch {
	case p.StorageBytes != nil && p.StoredBytes != nil && *p.StoredBytes >= *p.StorageBytes:
		return &QuotaError{Reason: ErrStorageQuota, Project: p.Name, Used: *p.StoredBytes, Limit: *p.StorageBytes}
	case p.DailyStarts != nil && startsToday >= *p.DailyStarts:
		return &QuotaError{
			Reason: ErrStartQuota, Project: p.Name, Used: startsToday, Limit: *p.DailyStarts,
			RetryAfter: Day(now).Add(24 * time.Hour).Sub(now),
		}
	default:
		return nil
	}
}

// CheckTree returns a *[QuotaError] if the limits do not allow a run that is so far below its root, which has so many
// open descendants. A run without a root above it is always allowed.
func (l Limits) CheckTree(p entities.Project, root entities.RunID, depth int, open int64) error {
	switch {
	case root == "":
		return nil
	case int64(depth) > l.Depth():
		return &QuotaError{Reason: ErrTooDeep, Project: p, Root: root, Used: int64(depth) - 1, Limit: l.Depth()}
	case open >= l.Descendants():
		return &QuotaError{Reason: ErrTooManyDescendants, Project: p, Root: root, Used: open, Limit: l.Descendants()}
	default:
		return nil
	}
}

// Code names the reason for programs.
func (e *QuotaError) Code() string {
	switch {
	case errors.Is(e.Reason, ErrStartQuota):
		return "start_quota"
	case errors.Is(e.Reason, ErrStorageQuota):
		return "storage_quota"
	case errors.Is(e.Reason, ErrTooDeep):
		return "too_deep"
	case errors.Is(e.Reason, ErrTooManyDescendants):
		return "too_many_descendants"
	case errors.Is(e.Reason, ErrRootCancelled):
		return "root_cancelled"
	default:
		return "project_paused"
	}
}

func (e *QuotaError) Error() string {
	switch {
	case errors.Is(e.Reason, ErrStartQuota):
		return fmt.Sprintf("project %s has started %d runs today and may start %d: "+
			"wait until midnight UTC, or have an operator raise limits.dailyStarts", e.Project, e.Used, e.Limit)
	case errors.Is(e.Reason, ErrStorageQuota):
		return fmt.Sprintf("project %s stores %d bytes and may store %d: "+
			"have an operator shorten its retention, or raise limits.storageBytes", e.Project, e.Used, e.Limit)
	case errors.Is(e.Reason, ErrTooDeep):
		return fmt.Sprintf("%d runs have led to this start, one after the other, beginning with run %s; "+
			"project %s allows %d: end the loop in which runs start runs, or have an operator raise limits.maxDepth",
			e.Used, e.Root, e.Project, e.Limit)
	case errors.Is(e.Reason, ErrTooManyDescendants):
		return fmt.Sprintf("run %s has %d open descendants; project %s allows %d: "+
			"cancel it, wait until some have ended, or have an operator raise limits.maxDescendants",
			e.Root, e.Used, e.Project, e.Limit)
	case errors.Is(e.Reason, ErrRootCancelled):
		return fmt.Sprintf("run %s, which led to this start, was cancelled: nothing starts below it any more", e.Root)
	default:
		return fmt.Sprintf("project %s is paused: try again when an operator has resumed it", e.Project)
	}
}

// Unwrap returns the reason.
func (e *QuotaError) Unwrap() error { return e.Reason }

// Details returns the numbers for clients.
func (e *QuotaError) Details() map[string]any {
	d := map[string]any{}
	if !errors.Is(e.Reason, ErrPaused) && !errors.Is(e.Reason, ErrRootCancelled) {
		d["used"], d["limit"] = e.Used, e.Limit
	}
	if e.Root != "" {
		d["root"] = e.Root
	}
	return d
}
