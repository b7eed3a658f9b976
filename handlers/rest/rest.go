// Package rest serves Stepwell's own API below /v1: JSON in camelCase, as openapi.yaml describes it.
//
// It imports packages entities, entities/strictjson, eventlog, eventlog/access, eventlog/payload, eventlog/view, queue,
// queue/contract, queue/egress and handlers/auth.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/access"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/engine"
)

// Server answers the native API.
type Server struct {
	// Log, Streams, Queue, Runs and Secrets are what requests act on; Reader is where entities are read from.
	Log     *eventlog.Log
	Streams *eventlog.Streams
	Queue   *queue.Queue
	Runs    *engine.Engine
	Secrets *eventlog.Secrets
	// SigningKeys are what calls of functions are signed with.
	SigningKeys *eventlog.SigningKeys
	// Keys and Projects say who is let in.
	Keys     *access.Keys
	Projects *access.Projects
	// Allowed are the addresses besides public ones where deployments may be.
	Allowed egress.Allowed
	Reader  entities.Querier
	Logger  *slog.Logger
	// Draining ends when the server is about to stop: whoever follows a stream or waits for a run then has to
	// come back.
	Draining context.Context
}

// timestamp is a time as the API has it, in events and elsewhere.
type timestamp = view.Time

// optionalTime is the time, if there is one.
func optionalTime(t *time.Time) *timestamp { return (*timestamp)(t) }

// list is one page of a list. Without a cursor it is the last.
type list[T any] struct {
	Data   []T    `json:"data"`
	Cursor string `json:"cursor,omitempty"`
}

// answerList answers with a page of what rows show.
func answerList[R, T any](c echo.Context, rows []R, cursor string, show func(R) T) error {
	l := list[T]{Data: make([]T, len(rows)), Cursor: cursor}
	for i, row := range rows {
		l.Data[i] = show(row)
	}
	return c.JSON(http.StatusOK, l)
}
