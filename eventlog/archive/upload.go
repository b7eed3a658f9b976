package archive

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // what S3 compares, besides SHA-256
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
)

const (
	// partSize is how much of a file is in memory; a bucket takes parts from 5 MiB on.
	partSize = 8 << 20
	// maxParts is how many of them a bucket takes: a file may have 80,000 MiB.
	maxParts = 10_000
	// contentType is that of Zstandard.
	contentType = "application/zstd"
)

// upload is a file on its way into a bucket. It is sent in parts as they fill up, and what fits into one part in a
// single request. Nothing of it is to be seen there before finish.
type upload struct {
	ctx    context.Context // an io.Writer gets none
	client *minio.Core
	object
	before string // the ETag of what is there already
	id     string // of the upload in parts, once there is one
	parts  []minio.CompletePart
	part   []byte // the one that fills up
	size   int64
}

// begin looks what is there. A worker that was held up must not replace the file that another wrote meanwhile, of a
// run that is deleted by now.
func (u *upload) begin() error {
	there, err := u.stat()
	// Who may not list a bucket is forbidden to see that nothing is there.
	if status := minio.ToErrorResponse(err).StatusCode; status == http.StatusNotFound || status == http.StatusForbidden {
		return nil
	}
	if err != nil {
		return u.refusal("look for", err)
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
		if len(u.part) == partSize { // and there is more
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
			return u.refusal("begin", err)
		}
		u.id = id
	}
	number := len(u.parts) + 1
	if number > maxParts {
		return errors.New("the run's file is larger than 80,000 MiB, which is the most that an upload may have")
	}
	sums := sumsOf(u.part)
	sent, err := u.client.PutObjectPart(ctx, u.bucket, u.key, u.id, number, bytes.NewReader(u.part), int64(len(u.part)),
		minio.PutObjectPartOptions{Md5Base64: sums.md5, Sha256Hex: sums.sha256, DisableContentSha256: true})
	if err != nil {
		return u.refusal("write", err)
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
	u.part = u.part[:0]
	return nil
}

// finish sends the rest, and makes sure that what was sent is there.
func (u *upload) finish() error {
	etag, err := u.complete()
	if err != nil {
		return err
	}
	there, err := u.stat()
	if err != nil {
		return u.refusal("confirm", err)
	}
	if there.Size != u.size || there.ETag != etag {
		return fmt.Errorf("confirm %s: sent %d bytes as %q, but there are %d as %q", u, u.size, etag, there.Size, there.ETag)
	}
	return nil
}

// complete makes the object, and says which it is.
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
		info, err = finish(options) // some servers refuse conditions
	}
	if err != nil {
		return "", u.refusal("write", err)
	}
	u.id = ""
	return info.ETag, nil
}

// put makes the object in one request.
func (u *upload) put(options minio.PutObjectOptions) (minio.UploadInfo, error) {
	ctx, cancel := context.WithTimeout(u.ctx, requestLimit)
	defer cancel()
	sums := sumsOf(u.part)
	return u.client.PutObject(ctx, u.bucket, u.key, bytes.NewReader(u.part), u.size, sums.md5, sums.sha256, options)
}

// join makes the object of the parts.
func (u *upload) join(options minio.PutObjectOptions) (minio.UploadInfo, error) {
	ctx, cancel := context.WithTimeout(u.ctx, requestLimit)
	defer cancel()
	return u.client.CompleteMultipartUpload(ctx, u.bucket, u.key, u.id, u.parts, options)
}

// abort takes back the parts that were sent, unless they have become the object. What it cannot reach stays, unseen.
func (u *upload) abort() {
	if u.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortLimit)
	defer cancel()
	_ = u.client.AbortMultipartUpload(ctx, u.bucket, u.key, u.id)
}

func (u *upload) refusal(verb string, err error) error {
	return refusal(u.ctx, u.client, verb+" "+u.String(), err)
}

// sums are what the bucket compares with what arrives. SHA-256 is part of what is signed, and all servers know it.
type sums struct{ md5, sha256 string }

func sumsOf(part []byte) sums {
	m, s := md5.Sum(part), sha256.Sum256(part) //nolint:gosec // see the import
	return sums{base64.StdEncoding.EncodeToString(m[:]), hex.EncodeToString(s[:])}
}
