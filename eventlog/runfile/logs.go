package runfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// A page is read from the beginning of the file, so pages are work for a processor: a server reads maxReads at once,
	// and a project has half of them at most.
	maxReads   = 4
	readFactor = 1
	// readLimit bounds the reading of one page, with the time for which it waits for others.
	readLimit = time.Minute
)

var (
	// ErrUnreachable means that what has the files did not answer or is overloaded. Retrying later may succeed.
	ErrUnreachable = errors.New("the bucket cannot be reached")
	// ErrNotArchived means that the archive has no file of the run.
	ErrNotArchived = errors.New("the archive has no file of the run")
	// ErrUnavailable means that the file of a run could not be read. The same may succeed later.
	ErrUnavailable = errors.New("the archive cannot be read at the moment: try again")
	// ErrDamaged means that the file of a run is not what was archived.
	ErrDamaged = errors.New("the run's file in the archive is damaged: restore it from a copy; the server's log says how")
	// ErrTooLarge means that a page was not reached in time.
	ErrTooLarge = fmt.Errorf("the run's file in the archive is too large to be read this far within %s:"+
		" have an operator print it with stepwell show", readLimit)
	errNoArchive = errors.New("this server has no archive: set STEPWELL_ARCHIVE as at the others")
)

// readError is one of the errors above, with a cause that is not for clients.
type readError struct{ kind, cause error }

// Error implements error.
func (e *readError) Error() string { return e.kind.Error() + ": " + e.cause.Error() }

// Unwrap returns the kind and the cause.
func (e *readError) Unwrap() []error { return []error{e.kind, e.cause} }

// Public returns the text for clients.
func (e *readError) Public() string { return e.kind.Error() }

// Open opens the file of a run, or fails with [ErrNotArchived].
type Open = func(context.Context, entities.Project, entities.RunID) (io.ReadCloser, error)

// Logs reads the logs of archived runs from their files.
type Logs struct {
	open  Open
	codec atrest.Codec
	slots *share.Pool
}

// NewLogs returns a reader. Open is nil if there is no archive; codec opens payloads.
func NewLogs(open Open, codec atrest.Codec) *Logs {
	return &Logs{open, codec, share.NewPool(maxReads)}
}

// Events reads a page of at most limit events of a run's log after a position. A page ends early when it has much
// payload. It fails with [ErrNotArchived], [ErrUnavailable], [ErrDamaged], and [ErrTooLarge].
func (l *Logs) Events(
	ctx context.Context, project entities.Project, id entities.RunID, after int64, limit int, with read.Payloads,
) (listing read.Listing, err error) {
	if l.open == nil {
		return listing, &readError{ErrUnavailable, errNoArchive}
	}
	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	if err := l.slots.Take(limited, string(project), 1, readFactor); err != nil {
		return listing, cmp.Or(ctx.Err(), error(&readError{ErrUnavailable, err}))
	}
	defer l.slots.Release(string(project), 1)
	file, err := l.open(limited, project, id)
	if err != nil {
		return listing, l.failed(ctx, err)
	}
	defer func() { _ = file.Close() }()
	r, err := NewReader(reader{limited, file})
	if err != nil {
		return listing, l.failed(ctx, err)
	}
	defer r.Close()
	p := page{after: after, limit: limit, with: with}
	if err := p.read(ctx, r, project, id); err != nil {
		return listing, l.failed(ctx, err)
	}
	if err := pg.OpenRows(l.codec, p.rows); err != nil {
		return listing, err
	}
	return p.listing(), nil
}

// failed translates an error. The context is that of the caller.
func (*Logs) failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil || errors.Is(err, ErrNotArchived):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return ErrTooLarge
	case errors.Is(err, entities.ErrInvalid):
		return &readError{ErrDamaged, fmt.Errorf("%v", err)} //nolint:errorlint // it is not the client's fault
	default:
		return &readError{ErrUnavailable, err}
	}
}

// reader ends with its context.
type reader struct {
	ctx context.Context //nolint:containedctx // Read has none
	io.Reader
}

// Read implements [io.Reader].
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p) //nolint:wrapcheck // as every reader
}

// page is a page in the making.
type page struct {
	after int64
	limit int
	with  read.Payloads

	rows  []read.Row
	sizes []int64
	bytes int
	more  bool
}

// read reads records until the page is full or the log ends.
func (p *page) read(ctx context.Context, r *Reader, project entities.Project, id entities.RunID) error {
	first, err := r.Next()
	if err == nil && (first.Run == nil || first.Run.ID != id || first.Run.Project != project) {
		err = entities.Invalid("it is not the file of run %s", id)
	}
	for err == nil && !p.more {
		record, next := r.Next()
		switch err = next; {
		case errors.Is(err, io.EOF):
			return entities.Invalid("the file has no end record")
		case err != nil:
		case record.Event == nil: // streams follow the log
			return nil
		case record.Event.Seq > p.after:
			record.Event.RunID = id
			err = p.add(ctx, (*entities.Event)(record.Event))
		}
	}
	return err
}

// add adds an event, unless the page is full.
func (p *page) add(ctx context.Context, e *entities.Event) error {
	if len(p.rows) == p.limit || p.bytes >= read.MaxPageBytes {
		p.more = true
		return nil
	}
	row, size := read.RowOf(e), len(e.Payload)
	if p.with == read.WithoutPayloads || size > read.MaxListedPayload {
		row.Payload = nil
	}
	if p.with == read.WithoutPayloads {
		row.Extra = nil
	}
	p.rows, p.sizes, p.bytes = append(p.rows, row), append(p.sizes, int64(size)), p.bytes+len(row.Payload)+len(row.Extra)
	return read.TakeMemory(ctx, int64(len(row.Payload)+len(row.Extra)))
}

func (p *page) listing() read.Listing {
	l := read.Listing{More: p.more, Entries: make([]read.Entry, len(p.rows))}
	for i, row := range p.rows {
		l.Entries[i] = read.Entry{Row: row, Size: p.sizes[i]}
	}
	if n := len(p.rows); p.more && n > 0 {
		l.Cursor = fmt.Sprint(p.rows[n-1].Seq)
	}
	return l
}
