package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/pg"
)

// ArchiveFile is a file of an archived run in the database: one export of the run.
type ArchiveFile struct {
	RunID entities.RunID
	// File is a random number.
	File int64
}

// ArchivePart is a part of an [ArchiveFile].
type ArchivePart struct {
	ArchiveFile
	// Part counts from 0.
	Part int
	// Last says that the file is complete with this part.
	Last bool
	Data []byte
}

// InsertArchivePart queues the insertion of a part. The run must be listed: see [KeepArchived].
func InsertArchivePart(b *pgx.Batch, project entities.Project, p ArchivePart) {
	b.Queue(`INSERT INTO archive_files (run_id, file, part, last, project, data) VALUES ($1, $2, $3, $4, $5, $6)`,
		p.RunID, p.File, p.Part, p.Last, project, p.Data)
}

// DeleteOtherArchiveFiles queues the deletion of the run's files but this one, and counts the parts of this one.
func DeleteOtherArchiveFiles(b *pgx.Batch, f ArchiveFile, parts *int) {
	b.Queue(`DELETE FROM archive_files WHERE run_id = $1 AND file <> $2`, f.RunID, f.File)
	b.Queue(`SELECT count(*) FROM archive_files WHERE run_id = $1 AND file = $2`, f.RunID, f.File).
		QueryRow(func(row pgx.Row) error { return row.Scan(parts) })
}

// DeleteArchiveFile deletes a file that is not complete.
func DeleteArchiveFile(ctx context.Context, q pg.Querier, f ArchiveFile) error {
	_, err := pg.CollectColumn[int](q.Query(ctx, `
		DELETE FROM archive_files WHERE run_id = $1 AND file = $2 RETURNING part`, f.RunID, f.File))
	return pg.Wrap(err, "delete archive file")
}

// FirstArchivePart reads the first part of the complete file of a run. It fails with missing if there is none.
func FirstArchivePart(
	ctx context.Context, q pg.Querier, project entities.Project, id entities.RunID, missing error,
) (ArchivePart, error) {
	rows, err := q.Query(ctx, `
		SELECT p.run_id, p.file, p.part, p.last, p.data
		FROM archive_files l JOIN archive_files p ON p.run_id = l.run_id AND p.file = l.file AND p.part = 0
		WHERE l.run_id = $1 AND l.project = $2 AND l.last`, id, project)
	p, err := pg.CollectOne[ArchivePart](rows, err, missing)
	return p, pg.Wrap(err, "read archive file")
}

// NextArchivePart reads the part after another one. It fails with missing if another file has replaced this one.
func NextArchivePart(ctx context.Context, q pg.Querier, p ArchivePart, missing error) (ArchivePart, error) {
	rows, err := q.Query(ctx, `
		SELECT run_id, file, part, last, data FROM archive_files WHERE run_id = $1 AND file = $2 AND part = $3`,
		p.RunID, p.File, p.Part+1)
	p, err = pg.CollectOne[ArchivePart](rows, err, missing)
	return p, pg.Wrap(err, "read archive file")
}
