package stepwell

import (
	"context"
	"time"
)

// LimitUse is a use of a limit: how many slots of which one a run needs from its start to its end, or an attempt at a
// step.
type LimitUse struct {
	// Limit is the name of the limit. What needs one that does not exist is refused with the code limit_not_found.
	Limit string `json:"name"`
	// Key says which slots: what has another key has others.
	Key string `json:"key,omitempty"`
	// Tenant is who takes turns with others if the limit is fair; the key if it is empty.
	Tenant string `json:"tenant,omitempty"`
	// Cost is how many slots it takes; 0 for one.
	Cost int `json:"cost,omitempty"`
}

// DebounceRule says how starts become one run, which starts when no further start has come for a while.
type DebounceRule struct {
	// Key separates the starts of the workflow. By default they all belong together.
	Key string
	// Quiet is how long no further start must have come: from 1s to 168h.
	Quiet time.Duration
	// Max is how long after the first start the run starts at the latest; 168h if it is 0.
	Max time.Duration
	// KeepFirst makes the first start count. By default it is the last one, with all that it says about the run.
	KeepFirst bool
}

// Debounced debounces the start: all starts with the same key return the handle of the same run. It cannot be combined
// with [Join], [Delay] and the inboxes of a workflow. The error of a refused start is an [*APIError].
func Debounced(d DebounceRule) StartOption {
	return startOption(func(b *startBody) {
		b.Debounce = &debounceBody{Key: d.Key, Quiet: d.Quiet.String()}
		if d.Max > 0 {
			b.Debounce.Max = d.Max.String()
		}
		if d.KeepFirst {
			b.Debounce.Keep = "first"
		}
	})
}

// BatchRule says how many items start one run together.
type BatchRule struct {
	// Key separates the items of the workflow. By default they all belong together.
	Key string
	// Size is the number of items with which the run starts: from 2 to 1,000.
	Size int
	// Wait is how long after the first item the run starts at the latest: from 1s to 168h.
	Wait time.Duration
	// Bytes are the most bytes of the list; 8 MiB if it is 0. The run starts without an item that does not fit.
	Bytes int64
}

// StartBatched adds an item to the batch that starts a run of the workflow, whose input is the list of the items in the
// order of their arrival. All items of a batch return the handle of the same run. The first item says the rest about
// the run. It is safe to repeat, and cannot be combined with what [Debounced] cannot.
func StartBatched[T, O any](
	ctx context.Context, c *Client, d *Workflow[[]T, O], item T, batch BatchRule, options ...StartOption,
) (*Run[O], error) {
	collect := startOption(func(b *startBody) {
		b.Batch = &batchBody{Key: batch.Key, Size: batch.Size, Wait: batch.Wait.String(), Bytes: batch.Bytes}
	})
	return start(ctx, c, d, item, append([]StartOption{collect}, options...))
}

type debounceBody struct {
	Key   string `json:"key,omitempty"`
	Quiet string `json:"quiet"`
	Max   string `json:"max,omitempty"`
	Keep  string `json:"keep,omitempty"`
}

type batchBody struct {
	Key   string `json:"key,omitempty"`
	Size  int    `json:"size"`
	Wait  string `json:"wait"`
	Bytes int64  `json:"bytes,omitempty"`
}
