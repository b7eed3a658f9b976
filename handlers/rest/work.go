package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/pull"
)

const (
	// workWait is how long a worker waits for calls unless it says so, and maxWorkWait at most.
	workWait, maxWorkWait = 20 * time.Second, 30 * time.Second
	// maxWorker is the length limit of a worker's name in bytes.
	maxWorker = 64
	// maxWorkBody is the size limit of a worker's request: that of a registration with its schemas, amply.
	maxWorkBody = 4 << 20
)

// takeCallsBody is the request of a worker.
type takeCallsBody struct {
	Deployment   string              `json:"deployment"`
	Worker       string              `json:"worker"`
	Slots        int                 `json:"slots"`
	Wait         string              `json:"wait"`
	Calls        []string            `json:"calls"`
	Registration *workerRegistration `json:"registration"`
}

// workerRegistration registers the deployment of a worker.
type workerRegistration struct {
	Workflows []string        `json:"workflows"`
	StepsOnly *bool           `json:"stepsOnly"`
	Build     string          `json:"build"`
	Schemas   json.RawMessage `json:"schemas"`
}

// checkTakeCalls checks the request of a worker, and returns how long it waits.
func checkTakeCalls(r *request, b takeCallsBody) time.Duration {
	r.fail(inField("deployment", entities.ValidateID("deployment ID", b.Deployment)))
	r.fail(inField("worker", entities.ValidateID("worker", b.Worker)))
	switch {
	case len(b.Worker) > maxWorker:
		r.fail(badField("worker", "it has more than %d bytes", maxWorker))
	case b.Slots < 0 || b.Slots > pull.MaxCalls:
		r.fail(badField("slots", "%d is not a number from 0 to %d", b.Slots, pull.MaxCalls))
	case len(b.Calls) > pull.MaxCalls:
		r.fail(badField("calls", "there are more than %d", pull.MaxCalls))
	}
	if b.Wait == "" {
		return workWait
	}
	wait, err := durationField("wait", b.Wait, maxWorkWait)
	r.fail(err)
	return wait
}

// takeCalls answers a worker with calls as soon as there are any.
func (s *Server) takeCalls(r *request) error {
	var b takeCallsBody
	r.Request().Body = http.MaxBytesReader(r.Response(), r.Request().Body, maxWorkBody)
	r.body(&b)
	wait := checkTakeCalls(r, b)
	if r.err == nil {
		r.fail(auth.IdentityOf(r).CheckDeployment(b.Deployment))
	}
	if r.err == nil {
		r.fail(s.registerWorker(r, b))
	}
	if r.err != nil {
		return r.err
	}
	waiting, cancel := context.WithTimeout(r.ctx(), wait)
	defer cancel()
	defer context.AfterFunc(s.Draining, cancel)()
	work, err := s.Queue.Work(r.ctx(), waiting.Done(), queue.Ask{
		Project: r.project(), Deployment: b.Deployment, Worker: b.Worker, Slots: b.Slots, Calls: b.Calls,
	})
	if err != nil {
		return err
	}
	if err = r.ctx().Err(); err == nil {
		err = answer(r, func() (api.TakenCalls, error) { return newTakenCallsJSON(work), nil })
	}
	if err != nil {
		work.Lost()
		return err
	}
	work.Done()
	return nil
}

// registerWorker registers the deployment of a worker, if its request says how.
func (s *Server) registerWorker(r *request, b takeCallsBody) error {
	if b.Registration == nil {
		return nil
	}
	_, err := s.Queue.Register(r.ctx(), r.project(), queue.Deployment{
		ID: b.Deployment, URL: queue.PulledURL, Workflows: b.Registration.Workflows, Build: b.Registration.Build,
		Schemas: b.Registration.Schemas, StepsOnly: b.Registration.StepsOnly,
	})
	return err
}

// newTakenCallsJSON encodes what a worker gets.
func newTakenCallsJSON(w queue.Work) api.TakenCalls {
	v := api.TakenCalls{Calls: make([]api.TakenCall, len(w.Calls)), Over: append([]string{}, w.Over...)}
	for i, c := range w.Calls {
		v.Calls[i] = api.TakenCall{Headers: map[string]string{}, Seen: c.Seen, Body: json.RawMessage(c.Body)}
		for name := range c.Header {
			v.Calls[i].Headers[name] = c.Header.Get(name)
		}
	}
	return v
}
