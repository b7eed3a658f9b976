package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
	"github.com/stepwell-dev/stepwell/pg"
)

// InDatabase is the location of an archive in the database of the runs.
const InDatabase = "postgres"

// filePrefix is before PROJECT/RUN in the location of a file there.
const filePrefix = InDatabase + ":"

// IsInDatabase reports whether the location of a file is in the database: postgres:PROJECT/RUN.
func IsInDatabase(file string) bool { return strings.HasPrefix(file, filePrefix) }

// rowSize is the size of a part of a file in the database, and the memory that writing and reading it use.
const rowSize = 1 << 20

// Database stores the file of each run in the database of the runs, in parts. The file goes when the run leaves the
// list of archived runs.
type Database struct {
	pool       *pgxpool.Pool
	maintainer *upkeep.Maintainer
}

// NewDatabase returns an archive in the database.
func NewDatabase(pool *pgxpool.Pool, maintainer *upkeep.Maintainer) *Database {
	return &Database{pool: pool, maintainer: maintainer}
}

// Check never fails: who can delete runs can archive them.
func (*Database) Check(context.Context) error { return nil }

// Store exports an ended run into its file, lists the run as archived, and returns its size. After an error the
// previous file, if any, is unchanged. It fails with [entities.ErrConflict] if the run has grown or is locked, so the
// file is never older than one that was stored before. The file is durable with the next commit that is, such as that
// of the run's deletion.
func (d *Database) Store(
	ctx context.Context, project entities.Project, id entities.RunID,
) (size upkeep.RunSize, err error) {
	if err := validate(project, id); err != nil {
		return size, err
	}
	w := &rowWriter{ctx: ctx, pool: d.pool, project: project}
	w.RunID, w.File = id, rand.Int64() //nolint:gosec // it is no secret
	defer func() {
		if err != nil {
			w.abort()
		}
	}()
	if size, err = runfile.Export(ctx, d.maintainer, id, w); err != nil {
		return size, err
	}
	return size, w.finish(size)
}

// rowWriter writes a file in parts as they fill up. Each but the last is a transaction of its own: one that is as long
// as the export would hold up those who follow events. The file can be read after finish.
type rowWriter struct {
	ctx     context.Context //nolint:containedctx // Write has none
	pool    *pgxpool.Pool
	project entities.Project
	store.ArchivePart
}

// Write implements [io.Writer].
func (w *rowWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(w.Data) == rowSize { // insert a full part only when more follows
			if err := w.insert(); err != nil {
				return 0, err
			}
		}
		k := min(len(p), rowSize-len(w.Data))
		w.Data, p = append(w.Data, p[:k]...), p[k:]
	}
	return n, nil
}

// insert inserts a part that is not the last.
func (w *rowWriter) insert() error {
	err := pg.InTxBatch(w.ctx, w.pool, func(b *pgx.Batch) {
		if w.Part == 0 { // parts refer to it
			store.KeepArchived(b, []entities.RunID{w.RunID})
		}
		store.InsertArchivePart(b, w.project, w.ArchivePart)
	})
	if err != nil {
		return fmt.Errorf("write archive file: %w", err)
	}
	w.Part, w.Data = w.Part+1, w.Data[:0]
	return nil
}

// finish inserts the last part, instead of the run's other files. It holds locks that keep the run at its size.
func (w *rowWriter) finish(size upkeep.RunSize) error {
	w.Last = true
	err := pg.InTx(w.ctx, w.pool, func(tx pgx.Tx) error {
		ctx := w.ctx
		if w.Part > 0 { // the file that it replaces may be as long
			var err error
			if ctx, err = pg.WithStatementTimeout(ctx, tx, 0); err != nil {
				return err
			}
		}
		if err := upkeep.LockUnchanged(ctx, tx, w.project, w.RunID, size); err != nil {
			return err
		}
		var b pgx.Batch
		// The commit that deletes the run waits for the log up to its end, which is after this.
		b.Queue(`SET LOCAL synchronous_commit = off`)
		store.KeepArchived(&b, []entities.RunID{w.RunID})
		store.InsertArchivePart(&b, w.project, w.ArchivePart)
		var parts int
		store.DeleteOtherArchiveFiles(&b, w.ArchiveFile, &parts)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		if parts != w.Part+1 { // another process has stored the run meanwhile, and deleted the other parts
			return entities.ErrConflict
		}
		return nil
	})
	return pg.Wrap(err, "write archive file")
}

// abort deletes the parts of a file that was not completed. If that fails they stay, unread, until the run is archived
// again or leaves the list.
func (w *rowWriter) abort() {
	if w.Part == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortLimit)
	defer cancel()
	_ = store.DeleteArchiveFile(ctx, w.pool, w.ArchiveFile)
}

// Open opens the file of a run. It fails with [runfile.ErrNotArchived] if there is none.
func (d *Database) Open(ctx context.Context, project entities.Project, id entities.RunID) (io.ReadCloser, error) {
	first, err := store.FirstArchivePart(ctx, d.pool, project, id, runfile.ErrNotArchived)
	if err != nil {
		return nil, err
	}
	return &rowReader{ctx: ctx, pool: d.pool, part: first}, nil
}

// OpenAt opens the file at postgres:PROJECT/RUN.
func (d *Database) OpenAt(ctx context.Context, location string) (io.ReadCloser, error) {
	project, run, _ := strings.Cut(strings.TrimPrefix(location, filePrefix), "/")
	return d.Open(ctx, entities.Project(project), entities.RunID(run))
}

// rowReader reads a file part by part.
type rowReader struct {
	ctx  context.Context //nolint:containedctx // Read has none
	pool *pgxpool.Pool
	part store.ArchivePart // its data are those that have not been read yet
}

var errReplaced = errors.New("the file was replaced, or deleted, while it was read: try again")

// Read implements [io.Reader].
func (r *rowReader) Read(p []byte) (int, error) {
	for len(r.part.Data) == 0 {
		if r.part.Last {
			return 0, io.EOF
		}
		next, err := store.NextArchivePart(r.ctx, r.pool, r.part, errReplaced)
		if err != nil {
			return 0, err
		}
		r.part = next
	}
	n := copy(p, r.part.Data)
	r.part.Data = r.part.Data[n:]
	return n, nil
}

// Close implements [io.Closer].
func (*rowReader) Close() error { return nil }
