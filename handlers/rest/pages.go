package rest

import (
	"context"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// largePage is from how many rows on a page is work for a processor that others feel.
	largePage = 200
	// pageFactor is the factor of [share.Pool] by which projects share the slots for large pages: one that is alone gets
	// half of them.
	pageFactor = 1
)

// pages bounds the large pages that are read and encoded at once: a project has as many as there are processors. What
// it asks for besides waits, so that it takes neither the processors nor the database from others.
type pages struct{ slots *share.Pool }

func newPages(processors int) pages { return pages{share.NewPool(2 * int64(processors))} }

// do reads and encodes a page of at most so many rows, for which it waits if they are many. It fails with the error of
// the context if that ends before. The slot is free again before the client reads.
func (p pages) do(ctx context.Context, project entities.Project, rows int, read func() error) error {
	if rows < largePage {
		return read()
	}
	if err := p.slots.Take(ctx, string(project), 1, pageFactor); err != nil {
		return err
	}
	defer p.slots.Release(string(project), 1)
	return read()
}
