// Package rest serves Stepwell's native HTTP API under /v1: JSON in camelCase, as openapi.yaml describes it.
//
// It imports packages entities, entities/strictjson, eventlog, eventlog/access, eventlog/payload, eventlog/view, queue,
// queue/contract, queue/egress, handlers/auth and handlers/incoming.
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
)

// Server serves the native API. All fields are required.
type Server struct {
	Log         *eventlog.Log
	Streams     *eventlog.Streams
	Queue       *queue.Queue
	Runs        *queue.Runs
	Secrets     *eventlog.Secrets
	SigningKeys *eventlog.SigningKeys
	Keys        *access.Keys
	Projects    *access.Projects
	// Allowed lists the non-public addresses that deployments may have.
	Allowed egress.Allowed
	// Reader runs the queries that only read entities.
	Reader entities.Querier
	Logger *slog.Logger
	// Draining ends when the server is about to stop. Requests that follow a stream or wait for a run end then, and
	// their clients reconnect.
	Draining context.Context
}

// timestamp is a time in the API's JSON form.
type timestamp = view.Time

// optionalTime returns nil for nil.
func optionalTime(t *time.Time) *timestamp { return (*timestamp)(t) }

// list is the JSON form of one page. The last page has no cursor.
type list[T any] struct {
	Data   []T    `json:"data"`
	Cursor string `json:"cursor,omitempty"`
}

// answerList answers with one page of encoded rows.
func answerList[R, T any](c echo.Context, rows []R, cursor string, encode func(R) T) error {
	l := list[T]{Data: make([]T, len(rows)), Cursor: cursor}
	for i, row := range rows {
		l.Data[i] = encode(row)
	}
	return c.JSON(http.StatusOK, l)
}

// answerAll answers with all rows of the request's project on a single page.
func answerAll[R, T any](
	r *request, find func(context.Context, entities.Project) ([]R, error), encode func(R) T,
) error {
	rows, err := find(r.ctx(), r.project())
	if err != nil {
		return err
	}
	return answerList(r, rows, "", encode)
}

// answerByID answers with the row whose ID is in the path. Errors call the ID what.
func answerByID[R, T any](
	r *request, what string, find func(context.Context, entities.Project, string) (R, error), encode func(R) T,
) error {
	id := r.pathID("id", what)
	if r.err != nil {
		return r.err
	}
	row, err := find(r.ctx(), r.project(), id)
	if err != nil {
		return err
	}
	return r.JSON(http.StatusOK, encode(row))
}

// deleteByID deletes the row that the path parameter param identifies. Errors call the parameter what.
func deleteByID(
	r *request, param, what string, remove func(context.Context, entities.Project, string) error,
) error {
	id := r.pathID(param, what)
	if r.err != nil {
		return r.err
	}
	if err := remove(r.ctx(), r.project(), id); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}
