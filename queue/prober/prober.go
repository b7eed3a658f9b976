// Package prober probes the health of deployments.
//
// Each deployment that is probed has a piece of work in the queue, which is due at the next probe. So one server makes
// each probe, another one takes over from a server that dies, and without such deployments there is nothing to do. A
// probe, what follows from it, and the time of the next one are one transaction.
package prober

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/health"
)

// Prober probes deployments.
type Prober struct{ queue *queue.Queue }

// New returns a prober for the deployments of the queue.
func New(q *queue.Queue) *Prober { return &Prober{q} }

// Handler returns the handler of [message.WorkProbe], for [queue.WorkerOptions].
func (p *Prober) Handler() queue.Handler { return p.handle }

// handle probes a deployment once, and has the work done again at the time of the next probe.
func (p *Prober) handle(ctx context.Context, d queue.Delivery) error {
	probed, err := health.Find(ctx, p.queue.Pool(), d.Project, d.DeploymentID)
	if err != nil {
		return err
	}
	if probed == nil {
		return d.End(ctx)
	}
	failure := ""
	if err := probe(ctx, d, *probed); err != nil {
		if queue.Interrupted(ctx, err) {
			return err
		}
		failure = queue.Storable(egress.Redact(err.Error()))
	}
	return p.record(ctx, d, probed.URL, failure)
}

// probe makes the request. It fails if the answer is no success.
func probe(ctx context.Context, d queue.Delivery, probed health.Probed) error {
	address, err := probed.Health.At(probed.URL)
	if err != nil {
		return err
	}
	timeout := time.Duration(probed.Health.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "stepwell")
	resp, err := d.Fetch(req)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != http.StatusOK/100 {
		return fmt.Errorf("GET %s: the answer is %s", probed.Health.Path, resp.Status)
	}
	return nil
}

// record writes what follows from a probe of the address, unless the deployment has moved meanwhile, and makes due what
// waits for a deployment that has recovered.
func (p *Prober) record(ctx context.Context, d queue.Delivery, address, failure string) error {
	recovered := false
	var at time.Time
	err := pg.InTx(ctx, p.queue.Pool(), func(tx pgx.Tx) error {
		var b pgx.Batch
		var now *health.Probed
		health.Lock(&b, d.Project, d.DeploymentID, &now)
		guard := d.Guard(&b)
		if err := errors.Join(pg.SendQueued(ctx, tx, &b), guard.Check()); err != nil {
			return err
		}
		at = guard.At
		switch {
		case now == nil:
			d.EndIn(&b)
		case now.URL != address:
			d.RescheduleIn(&b, at)
		default:
			after := now.After(now.Health, failure, at)
			recovered = now.UnhealthySince != nil && after.UnhealthySince == nil
			health.Save(&b, d.Project, d.DeploymentID, after)
			d.RescheduleIn(&b, at.Add(time.Duration(now.Health.Every)))
		}
		return pg.SendQueued(ctx, tx, &b)
	})
	if err != nil {
		return err
	}
	p.queue.WakeTimer(nil)
	if recovered {
		return p.queue.Recovered(ctx, d.Project, d.DeploymentID, at)
	}
	return nil
}
