package archive

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/runfile"
)

const (
	scheme        = "s3://"
	defaultRegion = "us-east-1"
	awsEndpoint   = "https://s3.amazonaws.com" // the client selects the endpoint of the region
)

const (
	dialLimit     = 10 * time.Second
	roleLimit     = 10 * time.Second // for credentials of the machine's role
	requestLimit  = 5 * time.Minute  // of one request including retries
	abortLimit    = 10 * time.Second
	checkLimit    = 30 * time.Second // startup waits no longer than this
	attempts      = 3
	messageLength = 300
)

// S3 configures the server and the credentials of buckets. The zero value is Amazon S3 in us-east-1 with the role of
// the machine.
type S3 struct {
	// Endpoint is the URL of an S3-compatible server, such as https://s3.example.com; empty for Amazon S3.
	Endpoint string
	// Region is empty for us-east-1, which servers without regions accept too.
	Region string
	// AccessKeyID and SecretAccessKey are the credentials, with SessionToken if they are temporary. Without them the
	// role of the pod, container or instance is used, as by Amazon's own clients.
	AccessKeyID, SecretAccessKey, SessionToken string
}

// IsBucket reports whether a location is in a bucket: s3://BUCKET/KEY.
func IsBucket(location string) bool { return strings.HasPrefix(location, scheme) }

// object is the bucket and key of an object.
type object struct{ bucket, key string }

func (o object) String() string { return scheme + o.bucket + "/" + o.key }

// parseLocation splits s3://BUCKET/KEY. Nothing in it is escaped.
func parseLocation(location string) (object, error) {
	rest, ok := strings.CutPrefix(location, scheme)
	bucket, key, _ := strings.Cut(rest, "/")
	if !ok || bucket == "" {
		return object{}, entities.Invalid("%q is not a location in a bucket; want s3://BUCKET/PREFIX", location)
	}
	if err := s3utils.CheckValidBucketNameStrict(bucket); err != nil {
		return object{}, entities.Invalid("%q: %v", location, err)
	}
	return object{bucket, key}, nil
}

// client returns a client without connecting.
func (s S3) client() (*minio.Core, error) {
	endpoint, err := s.endpoint()
	if err != nil {
		return nil, err
	}
	provider, err := s.credentials()
	if err != nil {
		return nil, err
	}
	secure := endpoint.Scheme == "https"
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("create S3 client: %w", err)
	}
	transport.DialContext = (&net.Dialer{Timeout: dialLimit}).DialContext
	client, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: provider, Secure: secure, Region: cmp.Or(s.Region, defaultRegion), Transport: transport, MaxRetries: attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("create S3 client: %w", err)
	}
	return client, nil
}

func (s S3) endpoint() (*url.URL, error) {
	u, err := url.Parse(cmp.Or(s.Endpoint, awsEndpoint))
	// The error does not repeat the text, because it may contain a password.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, entities.Invalid("invalid endpoint: " +
			"set AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL to scheme, host and port alone, such as " +
			"https://s3.example.com, or unset it for Amazon S3")
	}
	return u, nil
}

func (s S3) credentials() (*credentials.Credentials, error) {
	switch {
	case s.AccessKeyID != "" && s.SecretAccessKey != "":
		return credentials.NewStaticV4(s.AccessKeyID, s.SecretAccessKey, s.SessionToken), nil
	case s.AccessKeyID != "" || s.SecretAccessKey != "":
		return nil, entities.Invalid("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set: " +
			"set both, or neither to use the role of the machine")
	default:
		return credentials.New(&credentials.IAM{Client: &http.Client{Timeout: roleLimit}}), nil
	}
}

// Open opens the file at s3://BUCKET/KEY. The caller must close it.
func (s S3) Open(ctx context.Context, location string) (io.ReadCloser, error) {
	o, err := parseLocation(location)
	if err != nil {
		return nil, err
	}
	if o.key == "" {
		return nil, entities.Invalid("%q names no file in the bucket", location)
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	r, _, _, err := client.GetObject(ctx, o.bucket, o.key, minio.GetObjectOptions{})
	if err != nil {
		return nil, describe(ctx, client, "read "+o.String(), err)
	}
	return r, nil
}

// ErrUnreachable reports that the server of a bucket did not answer or is overloaded. Retrying later may succeed.
var ErrUnreachable = runfile.ErrUnreachable
