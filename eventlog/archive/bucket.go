package archive

import (
	"context"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// Bucket stores the file of each run in an S3-compatible bucket, with the key PREFIX/PROJECT/RUN.jsonl.zst.
type Bucket struct {
	client     *minio.Core
	root       object // its key is empty or ends in a slash
	maintainer *upkeep.Maintainer
}

// NewBucket returns an archive at s3://BUCKET/PREFIX; the prefix is optional. It does not access the bucket: see
// [Bucket.Check].
func NewBucket(location string, s3 S3, maintainer *upkeep.Maintainer) (*Bucket, error) {
	root, err := parseLocation(location)
	if err != nil {
		return nil, err
	}
	if root.key = strings.Trim(root.key, "/"); root.key != "" {
		root.key += "/"
	}
	client, err := s3.client()
	if err != nil {
		return nil, err
	}
	return &Bucket{client: client, root: root, maintainer: maintainer}, nil
}

// Check verifies that files can be stored in the bucket, without leaving anything in it. The error says what to do.
// It is [ErrUnreachable] if the bucket does not answer.
func (b *Bucket) Check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	// Starting and aborting an upload requires exactly the permissions that storing a run requires.
	probe := object{b.root.bucket, b.root.key + ".check"}
	id, err := b.client.NewMultipartUpload(limited, probe.bucket, probe.key, minio.PutObjectOptions{})
	if err == nil {
		err = b.client.AbortMultipartUpload(limited, probe.bucket, probe.key, id)
	}
	if err != nil {
		return describe(ctx, b.client, "open archive "+b.root.String(), err)
	}
	return nil
}

// Path returns the location of the file of a run, for [S3.Open].
func (b *Bucket) Path(project entities.Project, id entities.RunID) string {
	return b.object(project, id).String()
}

func (b *Bucket) object(project entities.Project, id entities.RunID) object {
	return object{b.root.bucket, b.root.key + string(project) + "/" + string(id) + runfile.Suffix}
}

// Store exports a run into its file and returns its size. When it returns without an error, the bucket has confirmed
// the whole file. After an error the previous file, if any, or the new one is in place, never a part. Store replaces
// the file of an earlier export, but not one that was written after it began. It holds one part of 8 MiB in memory.
func (b *Bucket) Store(
	ctx context.Context, project entities.Project, id entities.RunID,
) (size upkeep.RunSize, err error) {
	if err := validate(project, id); err != nil {
		return size, err
	}
	err = b.write(ctx, b.object(project, id), func(w io.Writer) error {
		size, err = runfile.Export(ctx, b.maintainer, id, w)
		return err
	})
	return size, err
}

// Open opens the file of a run. It fails with [runfile.ErrNotArchived] if there is none.
func (b *Bucket) Open(ctx context.Context, project entities.Project, id entities.RunID) (io.ReadCloser, error) {
	if err := validate(project, id); err != nil {
		return nil, err
	}
	o := b.object(project, id)
	r, _, _, err := b.client.GetObject(ctx, o.bucket, o.key, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, runfile.ErrNotArchived
	}
	if err != nil {
		return nil, describe(ctx, b.client, "read "+o.String(), err)
	}
	return r, nil
}

// write creates an object from what the function writes, atomically. It fails if another process wrote the object
// meanwhile, because that export may be newer.
func (b *Bucket) write(ctx context.Context, o object, write func(io.Writer) error) error {
	u := &upload{ctx: ctx, client: b.client, object: o}
	defer u.abort()
	if err := u.begin(); err != nil {
		return err
	}
	if err := write(u); err != nil {
		return err
	}
	return u.finish()
}
