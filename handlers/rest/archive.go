package rest

import (
	"cmp"
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/eventlog/store"
)

// listArchived lists archived runs.
func (s *Server) listArchived(r *request) error {
	f, page := r.runFilter(), r.page(newestFirst)
	return answerPage(r, newRunJSON, func() ([]entities.Run, string, error) {
		return store.ListArchived(r.ctx(), s.Reader, r.project(), f, page)
	})
}

// getArchived answers with the row that an archived run had.
func (s *Server) getArchived(r *request) error {
	return answerOne(r, string(r.runID()), newRunJSON,
		func(ctx context.Context, project entities.Project, id string) (entities.Run, error) {
			return store.ArchivedRun(ctx, s.Reader, project, entities.RunID(id))
		})
}

// listArchivedEvents answers with a page of the log in the file of an archived run.
func (s *Server) listArchivedEvents(r *request) error {
	id, page, with := r.runID(), r.page(oldestFirst), r.wantsPayloads()
	after := r.number("cursor", cmp.Or(page.Cursor, r.QueryParam("after")), eventPosition)
	return r.answerEvents(with, runPosition, func() (read.Listing, error) {
		return s.Archived.Events(r.ctx(), r.project(), id, after, page.Limit, with)
	})
}
