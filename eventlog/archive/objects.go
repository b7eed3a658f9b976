package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/minio/minio-go/v7"

	"github.com/stepwell-dev/stepwell/eventlog/blob"
)

// probe is the key of the object with which [CheckObjects] tries a location. No project has the name.
const probe = ".check/object"

// OpenObjects returns the objects below a location: an existing folder, or s3://BUCKET/PREFIX. It accesses no bucket.
func OpenObjects(location string, s3 S3) (blob.Objects, error) {
	if IsBucket(location) {
		bucket, err := NewBucket(location, s3, nil)
		return bucketObjects{bucket}, err
	}
	if err := checkFolder(location); err != nil {
		return nil, fmt.Errorf("open %s: %w", location, err)
	}
	return folderObjects(location), nil
}

// CheckObjects verifies that objects can be written, read and deleted. It leaves none. The error says what to do; it is
// [ErrUnreachable] if the bucket does not answer.
func CheckObjects(ctx context.Context, objects blob.Objects) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if err := objects.Put(ctx, probe, []byte(probe)); err != nil {
		return err
	}
	if _, err := objects.Get(ctx, probe, int64(len(probe))); err != nil {
		return err
	}
	return objects.Delete(ctx, probe)
}

// bucketObjects are objects in a bucket.
type bucketObjects struct{ *Bucket }

func (b bucketObjects) at(key string) object { return object{b.root.bucket, b.root.key + key} }

// Put implements [blob.Objects]. It is not conditional: nobody else has the key.
func (b bucketObjects) Put(ctx context.Context, key string, data []byte) error {
	o := b.at(key)
	md5Base64, sha256Hex := sumsOf(data)
	_, err := b.client.PutObject(ctx, o.bucket, o.key, bytes.NewReader(data), int64(len(data)), md5Base64, sha256Hex,
		minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true})
	return b.described(ctx, "write", o, err)
}

// Get implements [blob.Objects].
func (b bucketObjects) Get(ctx context.Context, key string, size int64) ([]byte, error) {
	o := b.at(key)
	r, _, _, err := b.client.GetObject(ctx, o.bucket, o.key, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, blob.ErrMissing
	}
	if err != nil {
		return nil, b.described(ctx, "read", o, err)
	}
	defer func() { _ = r.Close() }()
	data, err := readObject(r, size)
	return data, b.described(ctx, "read", o, err)
}

// Delete implements [blob.Objects].
func (b bucketObjects) Delete(ctx context.Context, key string) error {
	o := b.at(key)
	err := b.client.RemoveObject(ctx, o.bucket, o.key, minio.RemoveObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil
	}
	return b.described(ctx, "delete", o, err)
}

func (b bucketObjects) described(ctx context.Context, verb string, o object, err error) error {
	if err == nil {
		return nil
	}
	return describe(ctx, b.client, verb+" "+o.String(), err)
}

// readObject reads an object of a known size. Of a larger one it reads one byte more, which shows that it is larger.
func readObject(r io.Reader, size int64) ([]byte, error) {
	data := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err := data.ReadFrom(io.LimitReader(r, size+1))
	return data.Bytes(), err
}

// folderObjects is a folder with one for each project.
type folderObjects string

func (f folderObjects) path(key string) string {
	return filepath.Join(string(f), filepath.FromSlash(key))
}

// Put implements [blob.Objects].
func (f folderObjects) Put(_ context.Context, key string, data []byte) error {
	path := f.path(key)
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Get implements [blob.Objects]. A missing folder is an unmounted disk, and no missing object.
func (f folderObjects) Get(_ context.Context, key string, size int64) ([]byte, error) {
	path := f.path(key)
	file, err := os.Open(path) //nolint:gosec // the operator's folder, and a key that the server has made
	if errors.Is(err, os.ErrNotExist) && checkFolder(filepath.Dir(path)) == nil {
		return nil, blob.ErrMissing
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readObject(file, size)
}

// Delete implements [blob.Objects].
func (f folderObjects) Delete(_ context.Context, key string) error {
	err := os.Remove(f.path(key))
	if errors.Is(err, os.ErrNotExist) && checkFolder(string(f)) == nil {
		return nil
	}
	return err
}
