// Package collection has collections: starts of runs that are debounced, or batched, into one run.
//
// A collection is a run that will be. It has the ID of the run from its first start on, and its row is deleted in the
// transaction that starts the run.
package collection

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
)

// Kind is a kind of collection. Collections of different kinds do not share keys.
type Kind string

// The kinds.
const (
	// Debounce starts the run when no other start has come for a while.
	Debounce Kind = "debounce"
	// Batch starts the run when enough starts have come, or some time after the first one.
	Batch Kind = "batch"
)

// Keep says which of the collected inputs the run gets.
type Keep string

// The ways to keep inputs.
const (
	// KeepLast keeps the last start, with all that it says about the run.
	KeepLast Keep = "last"
	// KeepFirst keeps the first start.
	KeepFirst Keep = "first"
	// KeepAll makes the inputs a list in the order of their arrival. The first start says the rest about the run.
	KeepAll Keep = "all"
)

// Attribute is the attribute of runs that a collection has started; it has the kind.
const Attribute = "$collected"

// Limits.
const (
	// MaxCollections is how many collections a project may have at a time. It is checked without a lock, so that starts
	// at the same moment may exceed it by their number.
	MaxCollections = 10_000
	// MaxSize is the most items of a list.
	MaxSize = 1000
	// MaxBytes is the most bytes of a run's input.
	MaxBytes = 8 << 20

	minWait = time.Second
	maxWait = 7 * 24 * time.Hour
)

var (
	// ErrNotFound means that the project has no such collection: the run has started, or the collection was dropped.
	ErrNotFound = errors.New("collection not found")
	// ErrTooMany means that the project has as many collections as it may.
	ErrTooMany = fmt.Errorf("the project has %d collections: flush or drop one first", MaxCollections)
	// ErrChanged means that the collection is no longer as it was read.
	ErrChanged = fmt.Errorf("the collection was changed at the same time: %w", entities.ErrConflict)
	// ErrCollecting is what a [PendingError] is.
	ErrCollecting = errors.New("the run has not started")
)

// PendingError says that a run has not started because it collects starts.
type PendingError struct{ Collection Collection }

func (e *PendingError) Error() string {
	return fmt.Sprintf("run %s has not started: it collects starts until %s; wait, or flush collection %s",
		e.Collection.RunID, e.Collection.DueAt.UTC().Format(time.RFC3339), e.Collection.RunID)
}

// Is reports whether the target is [ErrCollecting].
func (e *PendingError) Is(target error) bool { return target == ErrCollecting }

// Details returns the machine-readable part of the error.
func (e *PendingError) Details() map[string]any {
	return map[string]any{
		"runId": e.Collection.RunID, "dueAt": e.Collection.DueAt.UTC().Format(time.RFC3339Nano), "count": e.Collection.Count,
	}
}

// Rule says which starts are collected, for how long, and what becomes of them. The one of the first start applies
// until the run has started.
type Rule struct {
	Kind Kind `json:"kind"`
	// Key separates the collections of a workflow; it may be empty.
	Key string `json:"key"`
	// The run is due Quiet after the last start, and MaxWait after the first one at the latest. In a batch they are equal.
	Quiet   time.Duration `json:"quiet"`
	MaxWait time.Duration `json:"maxWait"`
	Keep    Keep          `json:"keep"`
	// Size and MaxBytes limit the list of [KeepAll]: a start that makes the list full starts the run. MaxBytes limits the
	// input of any run.
	Size     int   `json:"size"`
	MaxBytes int64 `json:"maxBytes"`
}

// NewDebounce returns the rule of a debounce. Without a time, maxDelay is as long as possible; without keep, the last
// start counts. It fails with [entities.ErrInvalid].
func NewDebounce(key string, quiet, maxDelay time.Duration, keep Keep) (Rule, error) {
	if maxDelay == 0 {
		maxDelay = maxWait
	}
	if keep == "" {
		keep = KeepLast
	}
	r := Rule{Kind: Debounce, Key: key, Quiet: quiet, MaxWait: maxDelay, Keep: keep, Size: MaxSize, MaxBytes: MaxBytes}
	switch {
	case quiet < minWait || quiet > maxWait:
		return r, entities.Invalid("quiet: %s is not between %s and %s", quiet, minWait, maxWait)
	case maxDelay < quiet || maxDelay > maxWait:
		return r, entities.Invalid("max: %s is not between quiet, which is %s, and %s", maxDelay, quiet, maxWait)
	case keep != KeepLast && keep != KeepFirst && keep != KeepAll:
		return r, entities.Invalid("keep: %q is none of last, first and all", keep)
	default:
		return r, validateKey(key)
	}
}

// NewBatch returns the rule of a batch. Without bytes, the limit is [MaxBytes]. It fails with [entities.ErrInvalid].
func NewBatch(key string, size int, wait time.Duration, bytes int64) (Rule, error) {
	if bytes == 0 {
		bytes = MaxBytes
	}
	r := Rule{Kind: Batch, Key: key, Quiet: wait, MaxWait: wait, Keep: KeepAll, Size: size, MaxBytes: bytes}
	switch {
	case size < 2 || size > MaxSize:
		return r, entities.Invalid("size: %d is not between 2 and %d", size, MaxSize)
	case wait < minWait || wait > maxWait:
		return r, entities.Invalid("wait: %s is not between %s and %s", wait, minWait, maxWait)
	case bytes < 1 || bytes > MaxBytes:
		return r, entities.Invalid("bytes: %d is not between 1 and %d", bytes, MaxBytes)
	default:
		return r, validateKey(key)
	}
}

func validateKey(key string) error {
	if key == "" {
		return nil
	}
	return entities.ValidateName("key", key)
}

// Start is one start: what it says about the run, and its input.
type Start struct {
	Workflow string
	// Deployment is an ID; empty for the newest one of the workflow when the run starts.
	Deployment string
	// Data is that of the run's first event, except for the deployment and the deadline.
	Data entities.EventData
	// Timeout is counted from the start of the run; 0 for none.
	Timeout time.Duration
	Input   []byte

	// IdempotencyKey makes a repeated start count once, and Digest identifies what it says. An empty key is no key.
	IdempotencyKey string `db:"-"`
	Digest         string `db:"-"`
}

// Collection is the starts that were collected for a run. Its Start says how the run is started; the input of one that
// gets a list is in the rows of its items.
type Collection struct {
	Rule
	Start

	RunID   entities.RunID
	Project entities.Project
	// Count is how many starts were collected, and Bytes the length of the input so far.
	Count int64
	Bytes int64
	// FirstAt and LastAt are the times of the first and the last start. The run is started at DueAt.
	FirstAt, LastAt, DueAt time.Time
	// Refusal says why the run could not be started when it was due; empty if that was not tried.
	Refusal string
}

// Item returns the input as an item of a list.
func (s Start) Item() []byte {
	if len(s.Input) == 0 {
		return []byte("null")
	}
	return s.Input
}

// brackets is the length of an empty list.
const brackets = int64(len("[]"))

// Open returns the collection that a first start opens. It fails with [entities.ErrInvalid] if the input is too long.
func Open(id entities.RunID, p entities.Project, r Rule, s Start, now time.Time) (Collection, error) {
	c := Collection{
		Rule: r, Start: s, RunID: id, Project: p, Count: 1, Bytes: int64(len(s.Input)),
		FirstAt: now, LastAt: now, DueAt: now.Add(min(r.Quiet, r.MaxWait)),
	}
	if r.Keep == KeepAll {
		c.Bytes, c.Input = int64(len(s.Item()))+brackets, nil
	}
	return c, r.checkBytes(c.Bytes)
}

func (r Rule) checkBytes(n int64) error {
	if n > r.MaxBytes {
		return entities.Invalid("input: it makes the run's input %d bytes; the limit is %d", n, r.MaxBytes)
	}
	return nil
}

// Next says what becomes of a collection with another start.
type Next string

// What can become of it.
const (
	// Collects takes the start.
	Collects Next = "collects"
	// Fills starts the run with this start.
	Fills Next = "fills"
	// Overflows starts the run without this start, which opens another collection.
	Overflows Next = "overflows"
)

// Add returns the collection with another start, and what becomes of it. It fails with [entities.ErrInvalid] if the
// input alone is too long.
func (c Collection) Add(s Start, now time.Time) (Collection, Next, error) {
	if c.Keep != KeepAll {
		return c.replace(s, now)
	}
	item := int64(len(s.Item()))
	if err := c.checkBytes(item + brackets); err != nil {
		return c, "", err
	}
	after := c.count(now)
	if after.Bytes += item + int64(len(",")); after.Bytes > c.MaxBytes {
		return c, Overflows, nil
	}
	if after.Count >= int64(c.Size) {
		return after, Fills, nil
	}
	return after, Collects, nil
}

// replace is [Collection.Add] for a run that gets one of the inputs.
func (c Collection) replace(s Start, now time.Time) (Collection, Next, error) {
	after := c.count(now)
	if err := c.checkBytes(int64(len(s.Input))); err != nil {
		return c, "", err
	}
	if c.Keep == KeepLast {
		after.Start, after.Bytes = s, int64(len(s.Input))
	}
	return after, Collects, nil
}

// count counts another start, and moves the time at which the run is due.
func (c Collection) count(now time.Time) Collection {
	c.Count++
	c.LastAt, c.DueAt = now, now.Add(c.Quiet)
	if latest := c.FirstAt.Add(c.MaxWait); c.DueAt.After(latest) {
		c.DueAt = latest
	}
	return c
}

// RunInput returns the input of the run, with the items of a list.
func (c Collection) RunInput(items [][]byte) []byte {
	if c.Keep != KeepAll {
		return c.Input
	}
	return slices.Concat([]byte("["), bytes.Join(items, []byte(",")), []byte("]"))
}
