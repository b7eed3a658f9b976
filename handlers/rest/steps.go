package rest

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/kv"
	"github.com/stepwell-dev/stepwell/entities/store"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// stepJSON is the JSON form of a step. Only a single step has the fields from Deployment on.
type stepJSON struct {
	ID          entities.StepID     `json:"id"`
	RunID       entities.RunID      `json:"runId"`
	Name        string              `json:"name"`
	Status      entities.StepStatus `json:"status"`
	Attempt     int                 `json:"attempt"`
	CreatedAt   timestamp           `json:"createdAt"`
	StartedAt   *timestamp          `json:"startedAt,omitempty"`
	CompletedAt *timestamp          `json:"completedAt,omitempty"`
	RetryAfter  *timestamp          `json:"retryAfter,omitempty"`

	Deployment     string          `json:"deployment,omitempty"`
	ChildID        entities.RunID  `json:"childId,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"`
	InputEncoding  string          `json:"inputEncoding,omitempty"`
	Output         json.RawMessage `json:"output,omitempty"`
	OutputEncoding string          `json:"outputEncoding,omitempty"`
	Error          *failureJSON    `json:"error,omitempty"`
}

func newStepJSON(s entities.Step) stepJSON {
	return stepJSON{
		ID: s.ID, RunID: s.RunID, Name: s.Name, Status: s.Status, Attempt: s.Attempt, CreatedAt: timestamp(s.CreatedAt),
		StartedAt: optionalTime(s.StartedAt), CompletedAt: optionalTime(s.CompletedAt),
		RetryAfter: optionalTime(s.RetryAfter),
	}
}

func (s *Server) listSteps(r *request) error {
	page, run := r.page(oldestFirst), r.run()
	return answerPage(r, newStepJSON, func() ([]entities.Step, string, error) {
		return store.ListSteps(r.ctx(), s.Reader, run.Project, run.ID, page)
	})
}

func (s *Server) getStep(r *request) error {
	run, id := r.run(), entities.StepID(r.pathID("stepId", "step ID"))
	return answer(r, func() (v stepJSON, err error) {
		step, err := store.StepByID(r.ctx(), s.Reader, run.Project, run.ID, id)
		if err != nil {
			return v, err
		}
		created := read.Position{RunID: run.ID, Seq: step.CreatedSeq}
		result := read.Position{RunID: run.ID, Seq: step.ResultSeq}
		with := r.payloads()
		events, err := s.Log.EventsAt(r.ctx(), []read.Position{created, result}, with)
		if err != nil {
			return v, err
		}
		return decodeFor(r, func() stepJSON {
			v := newStepJSON(step)
			if e, ok := events[created]; ok {
				v.addCreation(e, with)
			}
			if e, ok := events[result]; ok {
				v.addResult(e, with)
			}
			return v
		})
	})
}

// addCreation adds the content of the event that created the step.
func (v *stepJSON) addCreation(e entities.Event, with read.Payloads) {
	if with == read.WithPayloads {
		v.Input, v.InputEncoding = payloadJSON(e)
	}
	if spec := e.Data.Step; spec != nil {
		v.Deployment, v.ChildID = spec.DeploymentID, spec.ChildID
	}
}

// addResult adds the content of the event that ended the last attempt.
func (v *stepJSON) addResult(e entities.Event, with read.Payloads) {
	completed := e.Type == entities.EventStepCompleted
	switch {
	case completed && with == read.WithPayloads:
		v.Output, v.OutputEncoding = payloadJSON(e)
	case !completed && with == read.WithPayloads:
		v.Error = newFailureJSON(e.Data.ErrorCode, &e)
	case !completed:
		v.Error = newFailureJSON(e.Data.ErrorCode, nil)
	}
}

// storeValueJSON is the JSON form of a value in the store of a run.
type storeValueJSON struct {
	Value json.RawMessage `json:"value"`
	// Seq is the position of the event that wrote it.
	Seq int64 `json:"seq"`
}

func newStoreValueJSON(v store.RunValue) storeValueJSON {
	return storeValueJSON{json.RawMessage(v.Value), v.Seq}
}

// getStore answers with the store of a run, by key.
func (s *Server) getStore(r *request) error {
	run := r.run()
	return answer(r, func() (map[string]any, error) {
		values, err := s.Log.Store(r.ctx(), run)
		data := make(map[string]storeValueJSON, len(values))
		for _, v := range values {
			data[v.Key] = newStoreValueJSON(v)
		}
		return map[string]any{"data": data}, err
	})
}

// getStoreValue answers with the value of one key.
func (s *Server) getStoreValue(r *request) error {
	key, run := r.pathText("key", "key"), r.run()
	r.fail(inParam("key", entities.ValidateText("key", key, utf8.UTFMax*kv.MaxKey)))
	return answerAs(r, newStoreValueJSON, func() (store.RunValue, error) { return s.Log.StoreValue(r.ctx(), run, key) })
}

type waitJSON struct {
	ID          entities.WaitID     `json:"id"`
	RunID       entities.RunID      `json:"runId"`
	Workflow    string              `json:"workflow,omitempty"`
	Status      entities.WaitStatus `json:"status"`
	ResumeAt    *timestamp          `json:"resumeAt,omitempty"`
	CreatedAt   timestamp           `json:"createdAt"`
	CompletedAt *timestamp          `json:"completedAt,omitempty"`
}

// listWaits lists all waits that a run ever had.
func (s *Server) listWaits(r *request) error {
	page, run := r.page(oldestFirst), r.run()
	encode := func(w read.WaitHistory) waitJSON {
		v := waitJSON{
			ID: w.ID, RunID: w.RunID, Status: w.Status(), ResumeAt: optionalTime(w.Data.ResumeAt),
			CreatedAt: timestamp(w.CreatedAt), CompletedAt: optionalTime(w.CompletedAt),
		}
		if w.CompletedAt == nil && run.Status.Ended() {
			v.Status = abandoned
		}
		return v
	}
	return answerPage(r, encode, func() ([]read.WaitHistory, string, error) {
		return s.Log.WaitHistories(r.ctx(), run.Project, run.ID, "", page)
	})
}
