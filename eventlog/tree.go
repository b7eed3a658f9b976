package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
)

// A run that leads to others, which lead to others, is the root of a tree. Limits of the project bound how deep it is
// and how many of its runs are open at once, and a root that was cancelled closes it: what starts below reads the row
// of the root in its own transaction. So a cancellation is one statement, however deep the tree is, and all that starts
// later is refused. No row counts the descendants, which all starts of a tree would wait for.

const (
	// treeTTL is how long a process relies on how many open descendants it has counted. Meanwhile it adds its own starts,
	// so only those of other processes may exceed the limit.
	treeTTL = time.Second
	// knownTrees is how many trees a process remembers.
	knownTrees = 8192
)

// tree is what this process knows about the open descendants of a root.
type tree struct {
	mu sync.Mutex
	// open is how many there were at countedAt, when this process had created so many: counted.
	open, counted int64
	countedAt     time.Time
	// created is how many this process has created, and starting how many it is about to create.
	created, starting int64
}

// below is a root below which a call starts runs. Its method end does nothing on nil.
type below struct {
	root entities.RunID
	tree *tree
	// read is what the transaction has read, and before is how many runs this process had created before that.
	read   *store.Tree
	before int64
	// admitted is how many runs the call may create.
	admitted int64
}

// rootOf returns below which root the call starts runs; none if it starts a root.
func (c *call) rootOf(f facts) entities.RunID {
	for i := range c.requests {
		r := &c.requests[i]
		switch {
		case r.Child != nil:
			root, _ := c.parent(f).Descend()
			return root
		case f.Run == nil && r.startsRun() && r.Data.RootID != "":
			return r.Data.RootID
		}
	}
	return ""
}

// parent returns the run of the call: as it is or, if it is a fork, as it is created.
func (c *call) parent(f facts) *entities.Run {
	if f.Run == nil {
		return &entities.Run{ID: c.runID}
	}
	return f.Run
}

// load queues the reads that decide about runs below a root, if the call starts such runs.
func (s *newStart) load(b *pgx.Batch, q *quotas, c *call, f facts) {
	if s == nil {
		return
	}
	root := c.rootOf(f)
	if root == "" {
		return
	}
	t := q.treeOf(root)
	s.below = &below{root: root, tree: t}
	t.mu.Lock()
	stale := s.now.Sub(t.countedAt).Abs() >= treeTTL
	s.below.before = t.created
	t.mu.Unlock()
	store.LoadTree(b, c.project, root, stale, s.quota.limits().Descendants(), &s.below.read)
	s.holders = map[store.UniqueKey]entities.RunID{}
	for i := range c.requests {
		r := &c.requests[i]
		if key := r.childKey(); key.Key != "" {
			store.LoadHolder(b, c.project, key, s.holders)
		}
	}
}

// childKey returns the unique key of the run that the request starts for its run; none if it has none.
func (r *Request) childKey() store.UniqueKey {
	if r.Child == nil {
		return store.UniqueKey{}
	}
	return store.UniqueKey{Workflow: r.Child.Data.WorkflowName, Key: r.Child.Data.UniqueKey}
}

// lostKey reports whether a call failed because another run took a key after the call had found it free.
func (s *newStart) lostKey(err error) bool {
	return s != nil && s.below != nil && pg.ViolatedConstraint(err) == "runs_unique_key"
}

// treeOf returns what is known about the tree of a root.
func (q *quotas) treeOf(root entities.RunID) *tree {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, ok := q.trees.Get(root)
	if !ok {
		t = &tree{}
		q.trees.Add(root, t)
	}
	return t
}

// take counts a run as one that starts below the root, or fails with a *[admin.QuotaError].
func (w *below) take(p entities.Project, limits admin.Limits, depth int, now time.Time) error {
	if w.read.Cancelled {
		return &admin.QuotaError{Reason: admin.ErrRootCancelled, Project: p, Root: w.root}
	}
	t := w.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.read.Open != nil {
		t.open, t.counted, t.countedAt = *w.read.Open, w.before, now
		w.read.Open = nil
	}
	if err := limits.CheckTree(p, w.root, depth, t.open+t.created-t.counted+t.starting); err != nil {
		return err
	}
	t.starting++
	w.admitted++
	return nil
}

// end counts the runs that the call has created.
func (w *below) end(created int64) {
	if w == nil {
		return
	}
	w.tree.mu.Lock()
	defer w.tree.mu.Unlock()
	w.tree.starting -= w.admitted
	w.tree.created += created
}

// placeChildren gives the runs that the requests start for the run their place in the tree. The steps of those that may
// not start fail at once. A run for which nobody waits is not started if another one has its key, which is the step's
// output then.
func (s *newStart) placeChildren(c *call, f facts) error {
	if s == nil {
		return nil
	}
	requests := c.requests
	for i := range requests {
		r := &requests[i]
		if _, exists := f.Steps[entities.StepID(r.CorrelationID)]; exists || r.Child == nil {
			continue
		}
		key := r.childKey()
		if holder, taken := s.holders[key]; taken {
			requests[i].Child = nil
			if r.Output != nil {
				requests[i].Output = StartedRun(holder)
			} else {
				requests[i].refused = &entities.KeyTakenError{Key: key.Key, RunID: holder}
			}
			continue
		}
		child := *r.Child
		child.Data.RootID, child.Data.Depth = c.parent(f).Descend()
		err := s.take(child.Data.RootID, child.Data.Depth, (*quota).checkChild)
		refused, ok := errors.AsType[*admin.QuotaError](err)
		switch {
		case err == nil:
			requests[i].Child = &child
			if key.Key != "" {
				s.holders[key] = child.RunID
			}
		case ok:
			requests[i].Child, requests[i].refused = nil, refused
		default:
			return err
		}
	}
	return nil
}

// StartedRun returns the output of a step that starts a run for which nobody waits.
func StartedRun(id entities.RunID) []byte { return fmt.Appendf(nil, `{"runId":%q}`, id) }

// refusal is why a run may not start: an *[admin.QuotaError] or an *[entities.KeyTakenError].
type refusal interface {
	error
	Code() string
	Details() map[string]any
}

// withRefusedStart returns the step_created of a step whose run may not start, and its step_failed.
func withRefusedStart(created entities.Event, refused refusal) ([]entities.Event, error) {
	reason, err := json.Marshal(map[string]any{
		"message": refused.Error(), "code": refused.Code(), "details": refused.Details(),
	})
	created.Data.Step = nil
	failed := created
	failed.Type, failed.Seq, failed.Payload = entities.EventStepFailed, created.Seq+1, reason
	failed.Data = entities.EventData{StepName: created.Data.StepName, ErrorCode: refused.Code()}
	return []entities.Event{created, failed}, err
}

// withOutput returns the step_created of a step that starts a run for which nobody waits, and its step_completed.
func withOutput(created entities.Event, output []byte) []entities.Event {
	completed := created
	completed.Type, completed.Seq, completed.Payload = entities.EventStepCompleted, created.Seq+1, output
	completed.Data = entities.EventData{StepName: created.Data.StepName}
	return []entities.Event{created, completed}
}
