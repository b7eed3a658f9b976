package collector

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/capacity/limit"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/starts/collection"
)

// A run that cannot be started is tried again after a tenth of the time for which it has been due.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// untilUnchanged repeats what fails because the collection has changed meanwhile.
func untilUnchanged(do func() error) error {
	return pg.Again(func(err error) bool { return errors.Is(err, collection.ErrChanged) }, do)
}

// Handler returns the handler of [message.WorkCollection], for [queue.WorkerOptions].
func (c *Collector) Handler() queue.Handler { return c.handle }

// handle starts the run of a collection that is due, or puts the work off.
func (c *Collector) handle(ctx context.Context, d queue.Delivery) error {
	return untilUnchanged(func() error {
		found, err := collection.ByID(ctx, pg.NewPool(c.pool), d.Project, entities.RunID(d.Subject))
		if errors.Is(err, collection.ErrNotFound) {
			return d.End(ctx)
		}
		if err != nil {
			return err
		}
		now := c.log.Now()
		if found.DueAt.After(now) {
			return c.putOff(ctx, d, found.DueAt, func(*pgx.Batch) {})
		}
		_, err = c.start(ctx, found, byDelivery(d, now))
		if !isRefusal(err) {
			return err
		}
		pause := min(max(now.Sub(found.DueAt)/10, minPause), maxPause)
		return c.putOff(ctx, d, now.Add(pause), func(b *pgx.Batch) {
			collection.SetRefusal(b, found.RunID, err.Error())
		})
	})
}

// isRefusal reports whether a run cannot be started until somebody does something about it.
func isRefusal(err error) bool {
	_, quota := errors.AsType[*admin.QuotaError](err)
	return quota || errors.Is(err, message.ErrDeploymentNotFound) || errors.Is(err, entities.ErrKeyTaken) ||
		errors.Is(err, entities.ErrInvalid) || errors.Is(err, limit.ErrFull) || errors.Is(err, limit.ErrNotFound)
}

// putOff has the work done again later, and writes a note to its collection.
func (c *Collector) putOff(ctx context.Context, d queue.Delivery, until time.Time, note func(*pgx.Batch)) error {
	err := pg.CheckThen(ctx, c.pool, func(b *pgx.Batch) func() error {
		note(b)
		return d.Guard(b).Check
	}, func(b *pgx.Batch) { d.RescheduleIn(b, until) })
	if err == nil {
		c.queue.WakeTimer(nil)
	}
	return pg.Wrap(err, "put off collection %s", d.Subject)
}

// writer is on whose behalf a run is started.
type writer struct {
	// guard queues what has to be locked after the collection, and returns the check of it.
	guard func(*pgx.Batch) (check func() error)
	// admit decides whether the run starts from the locked collection, and returns an item that the list gets in addition;
	// nil for none.
	admit func(locked collection.Collection) (added []byte, err error)
	// finish queues what is written besides the start of the run.
	finish func(*pgx.Batch)
}

// byDelivery starts a run for a delivery of the collection's work, if it is due.
func byDelivery(d queue.Delivery, now time.Time) writer {
	return writer{
		guard: func(b *pgx.Batch) func() error { return d.Guard(b).Check },
		admit: func(locked collection.Collection) ([]byte, error) {
			if locked.DueAt.After(now) {
				return nil, collection.ErrChanged
			}
			return nil, nil
		},
		finish: d.EndIn,
	}
}

// byRequest starts a run for a request, which ends the collection's work.
func (c *Collector) byRequest(of collection.Collection) writer {
	return writer{
		guard:  pg.NoCheck,
		admit:  func(collection.Collection) ([]byte, error) { return nil, nil },
		finish: func(b *pgx.Batch) { c.queue.DropWorkOf(b, message.WorkCollection, string(of.RunID)) },
	}
}

// start starts the run of a collection, and deletes the collection, in one transaction. It fails with
// [collection.ErrChanged] if the collection is gone, or is for another deployment or has another unique key than
// when it was read: the log looks for the run that has the key by what it was asked at first.
func (c *Collector) start(ctx context.Context, found collection.Collection, by writer) (entities.Run, error) {
	deployment, err := c.queue.StartDeployment(ctx, found.Project, found.Workflow, found.Deployment)
	if err != nil {
		return entities.Run{}, err
	}
	now := c.log.Now()
	var locked *collection.Collection
	var items [][]byte
	r := eventlog.NewRun(now, nil, dataOf(found, deployment.ID, now))
	r.RunID, r.Reserved = found.RunID, true
	run, _, err := c.log.StartWith(ctx, found.Project, r, eventlog.AppendOptions{With: eventlog.UnderLock{
		Guard: func(b *pgx.Batch) func([]eventlog.Request) error {
			locked, items = nil, nil
			collection.Lock(b, found.Project, found.RunID, &locked)
			if found.Keep == collection.KeepAll {
				collection.LoadItems(b, found.RunID, &items)
			}
			valid := by.guard(b)
			return func(requests []eventlog.Request) error {
				if err := valid(); err != nil {
					return err
				}
				if locked == nil || locked.Deployment != found.Deployment || locked.Data.UniqueKey != found.Data.UniqueKey {
					return collection.ErrChanged
				}
				added, err := by.admit(*locked)
				if err != nil {
					return err
				}
				if added != nil {
					items = append(items, added)
				}
				build := requests[0].Data.Build
				requests[0].Data = dataOf(*locked, deployment.ID, now)
				requests[0].Data.Build = build
				requests[0].Payload = locked.RunInput(items)
				return nil
			}
		},
		Write: func(b *pgx.Batch) {
			collection.Close(b, found.RunID)
			by.finish(b)
		},
	}})
	return run, err
}

// withKind returns the attributes of a run with that of its collection.
func withKind(attributes map[string]string, kind collection.Kind) map[string]string {
	all := map[string]string{collection.Attribute: string(kind)}
	maps.Copy(all, attributes)
	return all
}

// dataOf returns the data of the run's first event.
func dataOf(c collection.Collection, deployment string, now time.Time) entities.EventData {
	data := c.Data
	data.Attributes, data.AllowReserved = withKind(data.Attributes, c.Kind), true
	data.DeploymentID = deployment
	if c.Timeout > 0 {
		data.Deadline = new(now.Add(c.Timeout).Truncate(time.Millisecond))
	}
	return data
}
