package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue/world"
)

const (
	// PulledURL is the URL of a deployment whose app asks for its deliveries.
	PulledURL = "pull:"
	// PulledLease is how long an app has a message that it asked for, unless it renews the lease; see [Queue.Renew].
	PulledLease = 30 * time.Second
	// askedPause is how long the polls of an app are not noted again.
	askedPause = 10 * time.Second
	// pullRetry is how often a poll that waits searches messages without a hint: hints may get lost.
	pullRetry = 5 * time.Second
	// maxPulledBytes is how many bytes of bodies a poll claims, unless a single body is larger.
	maxPulledBytes = 8 << 20
)

// Pull returns messages for the app, leased to it for [PulledLease], as soon as there are any: up to so many as it has
// slots for. It returns none when the context ends. An app that is not registered is registered as one that asks. Pull
// fails with [message.ErrHasURL].
//
// A process hands what it would deliver to a poll that waits here. Without one it gives the message back, for the polls
// that wait at other processes and those that come: they claim it. Call [Delivery.Taken] for each message when its body
// is no longer needed.
func (q *Queue) Pull(ctx context.Context, app world.App, slots int) ([]Delivery, error) {
	if err := q.noteAsked(ctx, app); err != nil {
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, fmt.Errorf("pull: %w", err)
	}
	hints, cancel := q.hub.Subscribe(pullTopic(app))
	defer cancel()
	for {
		// The poll joins only afterwards, or it would get more than it has slots for. What comes meanwhile is given back,
		// which is a hint.
		list, err := q.claimGivenBack(ctx, app, slots)
		if ctx.Err() != nil {
			return list, nil // what was claimed by a statement without an answer is claimed again when its lease ends
		}
		if len(list) > 0 || err != nil {
			return list, pg.Wrap(err, "pull")
		}
		poll := q.polls.Join(app, slots)
		select {
		case <-poll.Filled():
		case <-hints:
		case <-time.After(pullRetry):
		case <-ctx.Done():
		}
		if list := poll.Leave(); len(list) > 0 || ctx.Err() != nil {
			return list, nil
		}
	}
}

// pullTopic is the hub's topic for hints that a message was given back for polls of the app.
func pullTopic(app world.App) string { return "pull " + string(app.Project) + " " + app.Deployment }

// Renew restarts the leases that the app has. Those that it has lost stay lost.
func (q *Queue) Renew(ctx context.Context, app world.App, handles []string) error {
	if len(handles) == 0 {
		return nil
	}
	return exec(ctx, q.pool, "renew leases", `
		UPDATE messages SET due_at = now() + $4
		WHERE lease = ANY ($1) AND lease <> '' AND holder = '' AND due_at > clock_timestamp()
			AND (project, deployment_id, work) IS NOT DISTINCT FROM ($2, $3, '')`,
		handles, app.Project, app.Deployment, PulledLease)
}

// GiveBack makes messages due that an app was to get and did not.
func (q *Queue) GiveBack(ctx context.Context, list []Delivery) error {
	var failed []error
	for _, d := range list {
		failed = append(failed, Persist(ctx, func(ctx context.Context) error {
			return exec(ctx, q.pool, "give back message", releaseSQL, d.Lease, time.Duration(0))
		}))
	}
	q.announceDue(nil)
	return errors.Join(failed...)
}

// claimGivenBack claims messages that have not reached the app, for a poll: up to so many as it has slots for, and up
// to [maxPulledBytes].
func (q *Queue) claimGivenBack(ctx context.Context, app world.App, slots int) ([]Delivery, error) {
	if q.pauses.known().projects[app.Project] {
		return nil, nil
	}
	for {
		claimed, err := pg.CollectAll[Delivery](pg.NewPool(q.pool).Query(ctx, claimGivenBackSQL,
			app.Project, app.Deployment, promptDisconnects, newHandles(slots), PulledLease, PulledURL, maxPulledBytes))
		if err != nil || len(claimed) == 0 {
			return nil, err
		}
		list, err := q.putAsideSome(ctx, claimed)
		if err != nil || len(list) > 0 {
			return list, err
		}
	}
}

// handOver gives a message to its app if the app waits for one here. From then on the app has the lease. Otherwise the
// message is given back. The message keeps its slot, and the memory of its body, until the poll's answer is written.
func (w *deliverer) handOver(ctx context.Context, d Delivery) (Delivered, error) {
	give := w.queue.polls.Reserve(d.app())
	if give == nil {
		got, err := w.fail(ctx, d, *d.NotAsked(w.queue.lastAsked(ctx, d)))
		w.queue.hub.Publish(pullTopic(d.app()))
		return got, err
	}
	err := exec(ctx, w.queue.pool, "give lease to app",
		`UPDATE messages SET holder = '', due_at = now() + $2 WHERE `+OfLease, d.Lease, PulledLease)
	if err != nil {
		give(nil)
		return Delivered{Outcome: OutcomeStopped}, errors.Join(err, w.release(ctx, d.Lease))
	}
	taken := make(chan struct{})
	d.taken = sync.OnceFunc(func() { close(taken) })
	d.startSlot.leave()
	give(&d)
	select {
	case <-taken:
	case <-ctx.Done():
	}
	return Delivered{Outcome: OutcomeDone}, nil
}
