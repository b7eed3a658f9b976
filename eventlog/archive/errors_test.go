package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/archive/s3test"
)

// TestErrorsSayWhatToDo without revealing credentials.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	for name, tt := range map[string]struct {
		location string
		change   func(*S3)
		want     string
	}{
		"wrong secret":  {location, func(s3 *S3) { s3.SecretAccessKey = "wrong" }, "correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"},
		"wrong ID":      {location, func(s3 *S3) { s3.AccessKeyID = "wrong" }, "correct AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"},
		"half of them":  {location, func(s3 *S3) { s3.SecretAccessKey = "" }, "is set: set both"},
		"no bucket":     {"s3://missing/p", func(*S3) {}, "open archive s3://missing/p/: the bucket does not exist: create it"},
		"bucket's name": {"s3://a", func(*S3) {}, "shorter than 3"},
		"no name":       {"s3:///p", func(*S3) {}, "want s3://BUCKET/PREFIX"},
		"region":        {location, func(s3 *S3) { s3.Region = "mars-1" }, `set AWS_REGION to "us-east-1"`},
		"no URL":        {location, func(s3 *S3) { s3.Endpoint = "localhost:80" }, "scheme, host and port"},
		"password":      {location, func(s3 *S3) { s3.Endpoint = "http://me:" + s3.SecretAccessKey + "@localhost" }, "scheme, host and port"},
		"path":          {location, func(s3 *S3) { s3.Endpoint += "/path" }, "scheme, host and port"},
	} {
		s3 := access(s)
		tt.change(&s3)
		b, err := NewBucket(tt.location, s3, nil)
		if err == nil {
			err = b.Check(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: got %v, want an error containing %s", name, err, tt.want)
			continue
		}
		wantNoSecrets(t, err.Error())
	}
	wantObjects(t, s, map[string][]byte{})
}

// wantNoSecrets fails the test if the text contains credentials.
func wantNoSecrets(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{s3test.AccessKeyID, s3test.SecretAccessKey, url.QueryEscape(s3test.SecretAccessKey), token} {
		if strings.Contains(text, secret) {
			t.Errorf("it has %s: %s", secret, text)
		}
	}
}

const token = "stepwelltesttoken"

// TestServerErrorsAreTranslated covers servers that are unhealthy or not S3 servers. Errors never contain credentials,
// even if the server repeats them.
func TestServerErrorsAreTranslated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		down   bool
		want   string
	}{
		"busy":           {503, `<Error><Code>SlowDown</Code><Message>later</Message></Error>`, true, "the server answered 503 SlowDown: later"},
		"proxy":          {502, `<html>`, true, "the server answered 502 "},
		"not allowed":    {403, `<Error><Code>AccessDenied</Code><Message>no PutObject</Message></Error>`, false, "s3:DeleteObject below the prefix, or"},
		"only a status":  {403, ``, false, "grant s3:PutObject"},
		"old token":      {400, `<Error><Code>InvalidToken</Code></Error>`, false, "and AWS_SESSION_TOKEN"},
		"another region": {301, ``, false, "set AWS_REGION"},
		"clock":          {403, `<Error><Code>RequestTimeTooSkewed</Code></Error>`, false, "set the clock"},
		"echo of ID":     {400, `<Error><Code>Odd</Code><Message>You sent %ID</Message></Error>`, false, ": 400 Odd"},
		"echo of secret": {400, `<Error><Code>Odd</Code><Message>You are %secret</Message></Error>`, false, ": 400 Odd"},
		"echo on a page": {405, `You sent %token`, false, ": 405 "},
		"long":           {400, strings.Repeat("x", 10_000), false, ": 400 400 Bad Request"},
	} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(tt.status)
			id, _, _ := strings.Cut(r.Header.Get("Authorization"), "/")
			_, _ = strings.NewReplacer("%ID", id, "%secret", s3test.SecretAccessKey,
				"%token", r.Header.Get("X-Amz-Security-Token")).WriteString(w, tt.body)
		}))
		b, err := NewBucket(location, S3{
			Endpoint: web.URL, AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey, SessionToken: token,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Check(t.Context())
		web.Close()
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrUnreachable) != tt.down {
			t.Errorf("%s: got %v, want an error containing %s", name, err, tt.want)
			continue
		}
		wantNoSecrets(t, err.Error())
		if len(err.Error()) > 600 {
			t.Errorf("%s: got %d bytes", name, len(err.Error()))
		}
	}
}

// TestUnreachableServerIsReported: nothing listens at the endpoint.
func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	var l net.ListenConfig
	free, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	b, err := NewBucket(location, S3{
		Endpoint: "http://" + free.Addr().String(), AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = b.Check(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want %v", err, ErrUnreachable)
	}
	wantNoSecrets(t, fmt.Sprint(err))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	if err := b.Check(ctx); !errors.Is(err, errBroken) || errors.Is(err, ErrUnreachable) {
		t.Errorf("a server that stops: got %v", err)
	}
}

// TestCredentialsOfTheMachineRole are used if none are configured.
func TestCredentialsOfTheMachineRole(t *testing.T) { //nolint:paralleltest // it sets the environment
	s := s3test.New(t)
	given := fmt.Sprintf(`{"AccessKeyId": %q, "SecretAccessKey": %q, "Token": "", "Expiration": "2999-01-01T00:00:00Z"}`,
		s3test.AccessKeyID, s3test.SecretAccessKey)
	machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/role" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, given)
	}))
	defer machine.Close()
	for path, want := range map[string]string{"/role": "", "/none": "no credentials: set AWS_ACCESS_KEY_ID and"} {
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", machine.URL+path)
		b, err := NewBucket(location, S3{Endpoint: s.Endpoint}, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Check(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
		wantNoSecrets(t, fmt.Sprint(err))
	}
}

func TestOpenRejectsInvalidLocations(t *testing.T) {
	t.Parallel()
	s := s3test.New(t)
	for location, want := range map[string]string{
		"s3://" + s3test.Bucket:          "names no file",
		"s3://" + s3test.Bucket + "/":    "names no file",
		"s3://" + s3test.Bucket + "/a/b": "read s3://" + s3test.Bucket + "/a/b: the file is not in the bucket",
		"s3://missing/a":                 "the bucket does not exist",
		"/a/b":                           "not a location in a bucket",
	} {
		if r, err := access(s).Open(t.Context(), location); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want an error containing %s", location, r, err, want)
		}
	}
}

// TestBrokenConnectionIsNotADamagedFile: the error of an import distinguishes the two.
func TestBrokenConnectionIsNotADamagedFile(t *testing.T) {
	t.Parallel()
	s, f := s3test.New(t), newFixture(t)
	f.enlarge(t, 5)
	b := f.bucket(t, access(s))
	if _, err := b.Store(t.Context(), project, f.run); err != nil {
		t.Fatal(err)
	}
	empty := f.clear(t)
	s3 := tampering(t, s, nil, func(r *http.Response) error {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(r.Body, 1<<20), r.Body} // shorter than its length, as if the connection broke
		return nil
	})
	if err := b.load(t.Context(), s3, f); err == nil || errors.Is(err, entities.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	f.wantContents(t, empty)
}

func TestBucketPath(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"s3://bkt": "s3://bkt/p/r.jsonl.zst", "s3://bkt/": "s3://bkt/p/r.jsonl.zst", "s3://bkt/c": "s3://bkt/c/p/r.jsonl.zst",
		"s3://bkt/c/": "s3://bkt/c/p/r.jsonl.zst", "s3://bkt//c%20?#/d/": "s3://bkt/c%20?#/d/p/r.jsonl.zst",
	} {
		b, err := NewBucket(location, S3{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.Path("p", "r")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", location, diff)
		}
		for _, odd := range []string{"..", "a/b", ""} {
			if _, err := b.Store(t.Context(), entities.Project(odd), "wrun_1"); !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("project %q: got %v", odd, err)
			}
			if _, err := b.Store(t.Context(), "p", entities.RunID(odd)); !errors.Is(err, entities.ErrInvalid) {
				t.Errorf("run %q: got %v", odd, err)
			}
		}
	}
}
