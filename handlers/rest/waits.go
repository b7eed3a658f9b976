package rest

import (
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// waitAbandoned is the status of a wait whose run ended first.
const waitAbandoned entities.WaitStatus = "abandoned"

// wait is the JSON form of a wait.
type wait struct {
	ID          entities.WaitID     `json:"id"`
	RunID       entities.RunID      `json:"runId"`
	Status      entities.WaitStatus `json:"status"`
	ResumeAt    *timestamp          `json:"resumeAt,omitempty"`
	CreatedAt   timestamp           `json:"createdAt"`
	CompletedAt *timestamp          `json:"completedAt,omitempty"`
}

// listWaits answers with all waits that a run ever had.
func (s *Server) listWaits(c echo.Context) error {
	p, err := page(c, oldestFirst)
	if err != nil {
		return err
	}
	r, err := s.theRun(c)
	if err != nil {
		return err
	}
	waits, next, err := s.Log.WaitHistories(c.Request().Context(), r.Project, r.ID, "", p)
	if err != nil {
		return err
	}
	return answerList(c, waits, next, func(w read.WaitHistory) wait {
		v := wait{
			ID: w.ID, RunID: w.RunID, Status: w.Status(), ResumeAt: optionalTime(w.Data.ResumeAt),
			CreatedAt: timestamp(w.CreatedAt), CompletedAt: optionalTime(w.CompletedAt),
		}
		if w.CompletedAt == nil && r.Status.Ended() {
			v.Status = waitAbandoned
		}
		return v
	})
}
