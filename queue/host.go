package queue

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/inproc"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/pg"
)

// EmbeddedScheme begins the URL of a deployment whose app is in the process of a server, as embedded:orders does for
// the app orders. Only the processes that have the app do its work; see [Queue.Host].
const EmbeddedScheme = "embedded:"

// IsEmbedded reports whether the URL is that of an app in the process of a server.
func IsEmbedded(url string) bool { return strings.HasPrefix(url, EmbeddedScheme) }

// IsEmbedded reports whether the deployment's app is in the process of a server.
func (d Delivery) IsEmbedded() bool { return IsEmbedded(d.URL) }

const (
	// adoptAfter is how often in a row a message was given back when a process that has another build of its app does
	// the work: by then no process seems to have that of its deployment. It takes three seconds.
	adoptAfter = 2
	// adoptedFor is how long that process then does all work of the deployment.
	adoptedFor = time.Minute
	// hostBatch is how many messages a process claims at once.
	hostBatch = 32
)

// Hosted is an app in this process.
type Hosted struct {
	Project entities.Project
	// Deployment is the ID of the deployment, and URL is [EmbeddedScheme] with the app's name.
	Deployment, URL string
	// Calls serves the calls. They are not signed.
	Calls http.Handler

	adopted sync.Map // of time.Time, by the deployments of other builds
	calls   sync.Map // of time.Time, by the leases of calls under way: when they were claimed
}

// call calls the app.
func (h *Hosted) call(req *http.Request, d Delivery) (*http.Response, error) {
	if d.UnreachedCount == 0 {
		h.calls.Store(d.Lease, d.ClaimedAt)
		defer h.calls.Delete(d.Lease)
	}
	return inproc.Transport{Handler: h.Calls}.RoundTrip(req)
}

// IsNewCallHere reports whether this process is making the call with the lease to the app in it, and has claimed it
// less than [keptBefore] ago. Then commands of the call have nothing to change in its message: its lease need not be
// restarted, and it has no copies, since there is no proxy in between; see [Copy].
func (q *Queue) IsNewCallHere(lease string, now time.Time) bool {
	if q.hosted == nil {
		return false
	}
	at, ok := q.hosted.calls.Load(lease)
	return ok && now.Sub(at.(time.Time)) < keptBefore
}

// Host makes this process do the work of an app that is in it. It must be called before the worker starts, once.
//
// Whichever process gets a message of the app, by a ticket or because it has stored it, does the work if it has the
// app. Otherwise it gives the message back, which is a hint for the processes that have the app: they claim it. A run
// stays on the build of its deployment as long as a process has that. Otherwise those with another build go on, as
// they do behind a URL.
func (q *Queue) Host(h *Hosted) { q.hosted = h }

// callsApp reports whether the app's code is called for the delivery, if it was made to a server's function.
func (d Delivery) callsApp() bool { return d.Work == message.WorkRun || d.Work == message.WorkStep }

// hosts reports whether this process does the work of a delivery to an embedded app.
func (q *Queue) hosts(d Delivery) bool {
	h := q.hosted
	switch {
	case h == nil || d.Project != h.Project || d.URL != h.URL:
		return false
	case d.DeploymentID == h.Deployment:
		return true
	case d.UnreachedCount >= adoptAfter:
		h.adopted.Store(d.DeploymentID, d.ClaimedAt)
		return true
	}
	at, ok := h.adopted.Load(d.DeploymentID)
	return ok && d.ClaimedAt.Sub(at.(time.Time)) < adoptedFor
}

// passOn gives a message back for the processes that have its app, or a worker for it.
func (w *deliverer) passOn(ctx context.Context, d Delivery) (Delivered, error) {
	reason := fmt.Sprintf("no process has the app of deployment %s: start a program that embeds it", d.DeploymentID)
	after := min(retryPause(d.UnreachedCount+1), unreachedBackoff)
	if d.URL == PulledURL {
		reason, after = w.noRoom(ctx, d)
	}
	got, err := w.fail(ctx, d, Failure{
		Reason: reason, Public: reason, After: after,
		KeepsSlots: true, // so that the process that claims it needs no others
	})
	w.queue.hub.Publish(hostTopic(d.Project, d.DeploymentID))
	return got, err
}

// hostTopic is the hub's topic for hints that a message was given back for the processes that have its app.
func hostTopic(p entities.Project, deployment string) string {
	return "host " + string(p) + " " + deployment
}

// host is an app whose work that was given back this process may do.
type host struct {
	project         entities.Project
	deployment, url string
	// free returns how much of it this process may do.
	free func() int
	// room returns a channel that receives an item when free may have risen from 0, and whether the app is still here.
	room func() (<-chan struct{}, bool)
}

// host returns the app as one that is here as long as the process.
func (h *Hosted) host() host {
	return host{
		h.Project, h.Deployment, h.URL,
		func() int { return hostBatch },
		func() (<-chan struct{}, bool) { return nil, true },
	}
}

// takeGivenBack delivers what this and other processes have given back for the app, until the context ends.
func (d *dispatcher) takeGivenBack(ctx context.Context, h host) {
	hints, cancel := d.queue.hub.Subscribe(hostTopic(h.project, h.deployment))
	defer cancel()
	for waiting := true; ctx.Err() == nil; {
		room, ok := h.room()
		if !ok {
			return
		}
		again := pullRetry
		if slots := min(h.free(), hostBatch); waiting && slots > 0 {
			if waiting = d.claimFor(ctx, h, slots); waiting {
				again = slotPause
			}
		}
		select {
		case <-hints:
			waiting = true
		case <-time.After(again):
			waiting = true
		case <-room:
		case <-ctx.Done():
		}
	}
}

// claimFor claims and delivers messages that were given back, if this process has slots for them. It reports whether
// there may be more.
func (d *dispatcher) claimFor(ctx context.Context, h host, slots int) (more bool) {
	slots = min(slots, int(d.slots.Room(string(h.project), shareFactor)))
	taken, err := d.claimForHost(ctx, h, slots)
	if err != nil && ctx.Err() == nil {
		d.logger.ErrorContext(ctx, "claim messages that were given back", "deployment", h.deployment, "error", err)
	}
	for _, t := range taken {
		Reservation{by: d}.Start(t, nil)
	}
	return err == nil && len(taken) >= slots
}

// claimForHost leases messages that were given back to this process.
func (d *dispatcher) claimForHost(ctx context.Context, h host, slots int) ([]Delivery, error) {
	if slots <= 0 || d.queue.pauses.known().projects[h.project] {
		return nil, nil
	}
	return pg.CollectAll[Delivery](pg.NewPool(d.queue.pool).Query(ctx, claimForHostSQL,
		h.project, h.deployment, promptDisconnects, newHandles(slots), d.lease, h.url, maxPulledBytes, d.heartbeat.ID))
}
