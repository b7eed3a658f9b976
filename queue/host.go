package queue

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
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

// passOn gives a message back for the processes that have its app.
func (w *deliverer) passOn(ctx context.Context, d Delivery) (Delivered, error) {
	reason := fmt.Sprintf("no process has the app of deployment %s: start a program that embeds it", d.DeploymentID)
	err := w.nack(ctx, d.Lease, Failure{
		Reason: reason, Public: reason, KeepsSlots: true, // so that the process that claims it needs no others
		After: min(retryPause(d.UnreachedCount+1), unreachedBackoff),
	})
	w.queue.hub.Publish(hostTopic(d.Project, d.DeploymentID))
	return Delivered{OutcomeUnreached, reason}, err
}

// hostTopic is the hub's topic for hints that a message was given back for the processes that have its app.
func hostTopic(p entities.Project, deployment string) string {
	return "host " + string(p) + " " + deployment
}

// takeGivenBack delivers what other processes have given back for the app, until the context ends.
func (w *Worker) takeGivenBack(ctx context.Context, h *Hosted) {
	hints, cancel := w.queue.hub.Subscribe(hostTopic(h.Project, h.Deployment))
	defer cancel()
	for ctx.Err() == nil {
		slots := int(min(w.dispatcher.slots.Room(string(h.Project), shareFactor), hostBatch))
		taken, err := w.claimForHost(ctx, h, slots)
		if err != nil && ctx.Err() == nil {
			w.logger.ErrorContext(ctx, "claim messages of an embedded app", "error", err)
		}
		for _, d := range taken {
			Reservation{by: w.dispatcher}.Start(d, nil)
		}
		again := pullRetry
		if len(taken) == slots { // there may be more
			again = slotPause
		}
		select {
		case <-hints:
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// claimForHost leases messages that were given back to this process.
func (w *Worker) claimForHost(ctx context.Context, h *Hosted, slots int) ([]Delivery, error) {
	if slots <= 0 || w.queue.pauses.has(h.Project) {
		return nil, nil
	}
	handles := make([]string, slots)
	for i := range handles {
		handles[i] = "rh_" + ulid.Make().String()
	}
	return pg.CollectAll[Delivery](pg.NewPool(w.queue.pool).Query(ctx, claimForHostSQL,
		h.Project, h.Deployment, promptDisconnects, handles, w.lease, h.URL, maxPulledBytes, w.heartbeat.ID))
}
