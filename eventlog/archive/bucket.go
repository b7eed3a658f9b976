package archive

import (
	"context"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/upkeep"
)

// Bucket keeps the file of each run in an S3-compatible bucket, under a name that begins with a prefix and the
// project.
type Bucket struct {
	client     *minio.Core
	root       object // its key is empty or ends in a slash
	maintainer *upkeep.Maintainer
}

// NewBucket makes an archive at s3://BUCKET/PREFIX; the prefix may be missing. It does not look whether the bucket is
// there: see [Bucket.Check].
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

// Check fails when the bucket would not take a file, with what to do about that. Nothing is left in the bucket. It
// fails with [ErrUnreachable] when that cannot be known now.
func (b *Bucket) Check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	// To begin an upload and to take it back needs what storing a run needs, and no more.
	probe := object{b.root.bucket, b.root.key + ".check"}
	id, err := b.client.NewMultipartUpload(limited, probe.bucket, probe.key, minio.PutObjectOptions{})
	if err == nil {
		err = b.client.AbortMultipartUpload(limited, probe.bucket, probe.key, id)
	}
	if err != nil {
		return refusal(ctx, b.client, "open archive "+b.root.String(), err)
	}
	return nil
}

// Path is where the file of a run is, as [S3.Open] takes it.
func (b *Bucket) Path(project entities.Project, id entities.RunID) string {
	return b.object(project, id).String()
}

func (b *Bucket) object(project entities.Project, id entities.RunID) object {
	return object{b.root.bucket, b.root.key + string(project) + "/" + string(id) + Suffix}
}

// Store exports a run into its file, and says how much that was. When it returns without an error the file is in the
// bucket, as it was sent. Until then, and after an error, the file is the one that was there before, or none, or the
// new one. Storing again replaces it,
// but not one that came after this had begun. No more than a part of 8 MiB is in memory.
func (b *Bucket) Store(
	ctx context.Context, project entities.Project, id entities.RunID,
) (size upkeep.RunSize, err error) {
	if err := validate(project, id); err != nil {
		return size, err
	}
	err = b.write(ctx, b.object(project, id), func(w io.Writer) error {
		size, err = Export(ctx, b.maintainer, id, w)
		return err
	})
	return size, err
}

// write makes an object of what write writes, all of it or none. It fails if another was made after it began: that
// one may know more.
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
