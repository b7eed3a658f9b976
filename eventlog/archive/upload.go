package archive

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 verifies it besides SHA-256
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
)

const (
	// partSize is the size of a part, and the memory that an upload uses. S3 requires at least 5 MiB.
	partSize = 8 << 20
	// maxParts is the limit of S3. It limits a file to 80,000 MiB.
	maxParts = 10_000
	// contentType is the media type of Zstandard.
	contentType = "application/zstd"
)

// upload writes a file into a bucket: in parts as they fill up, or in a single request if it fits into one part. The
// object becomes visible only in finish.
type upload struct {
	ctx    context.Context // because Write has no context
	client *minio.Core
	object
	before string // the ETag of the existing object
	id     string // of the multipart upload, once it has started
	parts  []minio.CompletePart
	part   []byte // the current part
	size   int64
}

// begin records which object exists. A worker that was delayed must not replace a file that another worker wrote
// meanwhile: the run may be deleted by now, so the delayed export could be incomplete.
func (u *upload) begin() error {
	there, err := u.stat()
	// Without the permission to list the bucket, a missing object is reported as forbidden.
	if status := minio.ToErrorResponse(err).StatusCode; status == http.StatusNotFound || status == http.StatusForbidden {
		return nil
	}
	if err != nil {
		return u.describe("look for", err)
	}
	u.before = there.ETag
	return nil
}

func (u *upload) stat() (minio.ObjectInfo, error) {
	ctx, cancel := context.WithTimeout(u.ctx, requestLimit)
	defer cancel()
	return u.client.StatObject(ctx, u.bucket, u.key, minio.StatObjectOptions{})
}

// Write implements io.Writer.
func (u *upload) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(u.part) == partSize { // send a full part only when more follows
			if err := u.send(); err != nil {
				return 0, err
			}
		}
		k := min(len(p), partSize-len(u.part))
		u.part, p = append(u.part, p[:k]...), p[k:]
	}
	u.size += int64(n)
	return n, nil
}

// send sends the part.
func (u *upload) send() error {
	ctx, cancel := context.WithTimeout(u.ctx, requestLimit)
	defer cancel()
	if u.id == "" {
		id, err := u.client.NewMultipartUpload(ctx, u.bucket, u.key, minio.PutObjectOptions{ContentType: contentType})
		if err != nil {
			return u.describe("begin", err)
		}
		u.id = id
	}
	number := len(u.parts) + 1
	if number > maxParts {
		return errors.New("the run's file exceeds 80,000 MiB, the limit of an upload")
	}
	md5Base64, sha256Hex := sumsOf(u.part)
	sent, err := u.client.PutObjectPart(ctx, u.bucket, u.key, u.id, number, bytes.NewReader(u.part), int64(len(u.part)),
		minio.PutObjectPartOptions{Md5Base64: md5Base64, Sha256Hex: sha256Hex, DisableContentSha256: true})
	if err != nil {
		return u.describe("write", err)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
	u.part = u.part[:0]
	return nil
}

// finish sends the rest and confirms that the bucket has the object as it was sent.
func (u *upload) finish() error {
	etag, err := u.complete()
	if err != nil {
		return err
	}
	there, err := u.stat()
	if err != nil {
		return u.describe("confirm", err)
	}
	if there.Size != u.size || there.ETag != etag {
		return fmt.Errorf("confirm %s: sent %d bytes as %q, but there are %d as %q", u, u.size, etag, there.Size, there.ETag)
	}
	return nil
}

// complete creates the object and returns its ETag.
func (u *upload) complete() (etag string, err error) {
	finish := u.put
	if u.id != "" {
		if err := u.send(); err != nil {
			return "", err
		}
		finish = u.join
	}
	options := minio.PutObjectOptions{ContentType: contentType, DisableContentSha256: true}
	unless := options
	if u.before == "" {
		unless.SetMatchETagExcept("*")
	} else {
		unless.SetMatchETag(u.before)
	}
	info, err := finish(unless)
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotImplemented {
		info, err = finish(options) // some servers do not implement conditions
	}
	if err != nil {
		return "", u.describe("write", err)
	}
	u.id = ""
	return info.ETag, nil
}

// put creates the object in one request.
func (u *upload) put(options minio.PutObjectOptions) (minio.UploadInfo, error) {
	ctx, cancel := context.WithTimeout(u.ctx, requestLimit)
	defer cancel()
	md5Base64, sha256Hex := sumsOf(u.part)
	return u.client.PutObject(ctx, u.bucket, u.key, bytes.NewReader(u.part), u.size, md5Base64, sha256Hex, options)
}

// join creates the object from the parts.
func (u *upload) join(options minio.PutObjectOptions) (minio.UploadInfo, error) {
	ctx, cancel := context.WithTimeout(u.ctx, requestLimit)
	defer cancel()
	return u.client.CompleteMultipartUpload(ctx, u.bucket, u.key, u.id, u.parts, options)
}

// abort deletes the parts of an upload that was not completed. If that fails they stay in the bucket, invisible.
func (u *upload) abort() {
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortLimit)
	defer cancel()
	_ = u.client.AbortMultipartUpload(ctx, u.bucket, u.key, u.id)
}

func (u *upload) describe(verb string, err error) error {
	return describe(u.ctx, u.client, verb+" "+u.String(), err)
}

// sumsOf returns the checksums that the bucket verifies. SHA-256 is part of the request signature, so every server
// verifies it.
func sumsOf(part []byte) (md5Base64, sha256Hex string) {
	m, s := md5.Sum(part), sha256.Sum256(part) //nolint:gosec // see the import
	return base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(s[:])
}
