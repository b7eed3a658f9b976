package awskms_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/admin/encryption"
	"github.com/stepwell-dev/stepwell/admin/encryption/awskms"
	"github.com/stepwell-dev/stepwell/admin/encryption/awskms/kmstest"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/migrations"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/pg"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func config(endpoint string) awskms.Config {
	return awskms.Config{
		Endpoint: endpoint, Region: kmstest.Region,
		AccessKeyID: kmstest.AccessKeyID, SecretAccessKey: kmstest.SecretAccessKey,
	}
}

func key(t *testing.T, c awskms.Config, id string) encryption.MasterKey {
	t.Helper()
	k, err := c.Key(id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var about = encryption.About{Key: "0a", Project: "shop"}

// A wrapped key is good for its project and its data key alone, and for who may use the key. What is wrong is a
// sentence that says what to do.
func TestWhatTheServiceRefuses(t *testing.T) {
	t.Parallel()
	s := kmstest.New(t)
	id, plain := s.NewKey(t), []byte("a key of some thirty-two bytes..")
	good := config(s.Endpoint)
	wrapped, err := key(t, good, id).Wrap(t.Context(), plain, about)
	if err != nil || bytes.Contains(wrapped, plain) {
		t.Fatalf("wrapped is %q, %v", wrapped, err)
	}
	good.Region = "us-west-1" // that of the ARN counts
	if got, err := key(t, good, id).Unwrap(t.Context(), wrapped, about); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("unwrapped is %q, %v", got, err)
	}
	good = config(s.Endpoint)
	denied, wrong := good, good
	denied.AccessKeyID = kmstest.Nobody
	wrong.SecretAccessKey = "another"
	for want, tt := range map[string]struct {
		by    encryption.MasterKey
		about encryption.About
	}{
		"for another project":               {key(t, good, id), encryption.About{Key: "0a", Project: "bank"}},
		"or for another":                    {key(t, good, id), encryption.About{Key: "0b", Project: "shop"}},
		"another key has wrapped":           {key(t, good, s.NewKey(t)), about},
		"there is no such key":              {key(t, good, "alias/unknown"), about},
		"grant kms:Encrypt and kms:Decrypt": {key(t, denied, id), about},
		"correct AWS_ACCESS_KEY_ID":         {key(t, wrong, id), about},
	} {
		got, err := tt.by.Unwrap(t.Context(), wrapped, tt.about)
		if err == nil || !strings.Contains(err.Error(), want) || len(got) > 0 {
			t.Errorf("%q: %q, %v", want, got, err)
		}
	}
}

// What may be over soon is tried again, and only that, a bounded number of times.
func TestRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	s := kmstest.New(t)
	service, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var failures, requests atomic.Int32
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(service)
		r.Out.Host = r.In.Host // which is signed
	}}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if failures.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)
	by := key(t, config(between.URL), s.NewKey(t))
	for _, tt := range []struct {
		failures, requests int32
		works              bool
	}{{0, 1, true}, {2, 3, true}, {100, 3, false}} {
		failures.Store(tt.failures)
		requests.Store(0)
		if _, err := by.Wrap(t.Context(), []byte("key"), about); (err == nil) != tt.works || requests.Load() != tt.requests {
			t.Errorf("after %d failures: %d requests, %v", tt.failures, requests.Load(), err)
		}
	}
	failures.Store(0)
	requests.Store(0)
	if _, err := by.Unwrap(t.Context(), []byte("key"), about); err == nil || requests.Load() != 1 {
		t.Errorf("a refusal: %d requests, %v", requests.Load(), err)
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	for id, c := range map[string]awskms.Config{
		"": {}, "a b": {}, "a": {Endpoint: "kms.test"}, "b": {Endpoint: "https://user:password@kms.test"},
		"c": {AccessKeyID: "id"}, strings.Repeat("a", 3000): {},
	} {
		_, err := c.Key(id)
		if !errors.Is(err, entities.ErrInvalid) || strings.Contains(err.Error(), "password") {
			t.Errorf("%.20q: %v", id, err)
		}
	}
}

// process is a server's keys with its pool.
func process(t *testing.T, dsn, masters string, c awskms.Config) *encryption.Keys {
	t.Helper()
	list, err := encryption.ParseMasterKeys(masters, c)
	if err != nil {
		t.Fatal(err)
	}
	keys := encryption.New(list, time.Now)
	pool, err := migrations.Pool(t.Context(), dsn, migrations.DefaultSchema, pg.InstallPayloads(keys))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	keys.Use(pool)
	return keys
}

func payload(text string) atrest.Payload {
	return atrest.Payload{
		Place: atrest.Place{Kind: atrest.Event, Owner: "wrun_1", Seq: 1}, Project: string(entities.DefaultProject),
		Bytes: []byte(text),
	}
}

// opens reports what a process makes of something stored.
func opens(k *encryption.Keys, stored []byte) (string, error) {
	b := bytes.Clone(stored)
	var o atrest.Opener
	o.Bytes(payload("").Place, &b)
	err := o.Open(k)
	return string(b), err
}

// A project moves from a key of a file to the service, and back. While the service is away, a server that has unwrapped
// the keys goes on, and one that has not refuses to read and to write.
func TestProjectMovesToTheServiceAndBack(t *testing.T) {
	t.Parallel()
	s := kmstest.New(t)
	dsn, c := testdb.New(t), config(s.Endpoint)
	file := "file=" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	service := "kms=aws-kms:" + s.NewKey(t)
	change := func(k *encryption.Keys, change encryption.Change) {
		t.Helper()
		if err := k.Apply(t.Context(), entities.DefaultProject, change); err != nil {
			t.Fatal(err)
		}
	}
	first := process(t, dsn, file, c)
	change(first, encryption.Encrypt)
	if err := first.Prepare(string(entities.DefaultProject)); err != nil {
		t.Fatal(err)
	}
	stored, err := first.Seal(payload("secret"))
	if err != nil {
		t.Fatal(err)
	}
	change(process(t, dsn, service+","+file, c), encryption.Rewrap)
	denied := c
	denied.AccessKeyID = kmstest.Nobody
	if text, err := opens(process(t, dsn, service, denied), stored); !errors.Is(err, encryption.ErrUnavailable) ||
		!strings.Contains(err.Error(), "grant kms:Encrypt") {
		t.Errorf("who is denied reads %q, %v", text, err)
	}
	running := process(t, dsn, service, c)
	if text, err := opens(running, stored); err != nil || text != "secret" {
		t.Errorf("by the service: %q, %v", text, err)
	}
	away := c
	away.Endpoint = "http://127.0.0.1:1"
	late := process(t, dsn, service, away)
	if text, err := opens(late, stored); !errors.Is(err, encryption.ErrUnavailable) {
		t.Errorf("without the service: %q, %v", text, err)
	}
	if err := late.Prepare(string(entities.DefaultProject)); !errors.Is(err, encryption.ErrUnavailable) {
		t.Errorf("without the service: %v", err)
	}
	if text, err := late.Seal(payload("secret")); err == nil {
		t.Errorf("without the service it writes %q", text)
	}
	change(process(t, dsn, file+","+service, c), encryption.Rewrap)
	s.Stop()
	for name, k := range map[string]*encryption.Keys{"running": running, "of the file": process(t, dsn, file, c)} {
		if text, err := opens(k, stored); err != nil || text != "secret" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
