// Package rest serves Stepwell's native HTTP API under /v1: JSON in camelCase, as openapi.yaml describes it.
//
// A type whose name ends with JSON is the JSON form of what its name says. The comment of one says what it hides.
//
// It imports entities, eventlog and queue with packages below them, handlers/auth and handlers/incoming.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/access"
	"github.com/stepwell-dev/stepwell/entities/admin"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/live"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/stats"
	"github.com/stepwell-dev/stepwell/eventlog/view"
	"github.com/stepwell-dev/stepwell/queue"
	"github.com/stepwell-dev/stepwell/queue/egress"
	"github.com/stepwell-dev/stepwell/queue/engine"
	"github.com/stepwell-dev/stepwell/queue/overview"
	"github.com/stepwell-dev/stepwell/queue/scheduler"
)

// Server serves the native API. All fields except Allowed, Viewers and Version are required.
type Server struct {
	Log         *eventlog.Log
	Streams     *read.Streams
	Queue       *queue.Queue
	Runs        *engine.Engine
	Scheduler   *scheduler.Scheduler
	Secrets     *admin.Secrets
	SigningKeys *admin.SigningKeys
	Keys        *access.Keys
	Projects    *access.Projects
	Views       *admin.Views
	Sessions    *access.Sessions
	Stats       *stats.Reader
	Overview    *overview.Reader
	// Allowed lists the non-public addresses that deployments may have.
	Allowed egress.Allowed
	// Reader runs the queries that only read entities.
	Reader pg.Querier
	Logger *slog.Logger
	// Version is that of the program; empty if unknown.
	Version string
	// Viewers limits the live views of all projects in this process; 0 means 500, and less than 0 that there are none.
	Viewers int
	// Draining is done when the server is about to stop. Requests that follow a stream or wait for a run then end, and
	// their clients reconnect.
	Draining context.Context

	// Set by Register:
	decoding decoding
	live     *live.Followers[liveRun]
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

// answer answers with the result of do, unless reading the request failed.
func answer[T any](r *request, do func() (T, error)) error {
	if r.err != nil {
		return r.err
	}
	result, err := do()
	if err != nil {
		return err
	}
	return r.JSON(http.StatusOK, result)
}

// answerAs is [answer] with the encoded result.
func answerAs[R, T any](r *request, encode func(R) T, do func() (R, error)) error {
	return answer(r, func() (encoded T, err error) {
		result, err := do()
		if err != nil {
			return encoded, err
		}
		return encode(result), nil
	})
}

// answerPage answers with one page of a query, unless reading the request failed.
func answerPage[R, T any](r *request, encode func(R) T, query func() (rows []R, cursor string, err error)) error {
	return answer(r, func() (page list[T], err error) {
		rows, cursor, err := query()
		if err != nil {
			return page, err
		}
		return list[T]{encodeAll(rows, encode), cursor}, nil
	})
}

// encodeAll returns the encoded rows: an empty list, not nil, if there are none.
func encodeAll[R, T any](rows []R, encode func(R) T) []T {
	encoded := make([]T, len(rows))
	for i, row := range rows {
		encoded[i] = encode(row)
	}
	return encoded
}

// answerAll answers with all rows of the request's project on a single page.
func answerAll[R, T any](
	r *request, encode func(R) T, find func(context.Context, entities.Project) ([]R, error),
) error {
	return answerPage(r, encode, func() ([]R, string, error) {
		rows, err := find(r.ctx(), r.project())
		return rows, "", err
	})
}

// answerOne answers with the row of the request's project that has the ID.
func answerOne[R, T any](
	r *request, id string, encode func(R) T, find func(context.Context, entities.Project, string) (R, error),
) error {
	return answerAs(r, encode, func() (R, error) { return find(r.ctx(), r.project(), id) })
}

// deleteOne deletes the row of the request's project that has the ID.
func deleteOne(r *request, id string, remove func(context.Context, entities.Project, string) error) error {
	return answerNothing(r, func() error { return remove(r.ctx(), r.project(), id) })
}

// answerNothing answers with 204 after do succeeded, unless reading the request failed.
func answerNothing(r *request, do func() error) error {
	if r.err != nil {
		return r.err
	}
	if err := do(); err != nil {
		return err
	}
	return r.NoContent(http.StatusNoContent)
}
