package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/archive/s3test"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// logged is what servers log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// archiving is a worker that archives ended runs in the bucket, and what it logs.
func archiving(t *testing.T, dsn string) (*server, *logged) {
	t.Helper()
	s := newServer(t, dsn, roleWorker)
	environment, err := readConfig([]string{
		"AWS_ACCESS_KEY_ID=" + s3test.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretAccessKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.config.AWS = environment.AWS
	s.config.Retention, s.config.Archive = time.Nanosecond, "s3://"+s3test.Bucket+"/runs"
	log := &logged{}
	s.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return s, log
}

// TestServersArchiveInABucket: not with wrong settings; a server without its bucket starts and keeps the runs, and
// says so once in a pass; when the bucket is there they leave. From there they can be shown and imported.
func TestServersArchiveInABucket(t *testing.T) { // sets the environment
	bucket := s3test.New(t)
	dsn := testdb.New(t)
	t.Setenv("DATABASE_URL", dsn)
	t.Setenv("AWS_ENDPOINT_URL_S3", bucket.Endpoint)
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretAccessKey)
	d := newDatabase(t, 3)
	for _, run := range d.runs {
		d.add(t, eventlog.Request{RunID: run, Type: entities.EventRunCompleted})
	}
	var logs []*logged
	start := func(change func(*config)) (*server, *logged, error) {
		s, log := archiving(t, dsn)
		s.config.AWS.Endpoint = bucket.Endpoint
		change(&s.config)
		logs = append(logs, log)
		return s, log, s.start(t.Context())
	}
	for want, change := range map[string]func(*config){
		"STEPWELL_ARCHIVE: open archive s3://other/: the bucket does not exist": func(c *config) { c.Archive = "s3://other" },
		"correct AWS_ACCESS_KEY_ID": func(c *config) { c.AWS.SecretAccessKey = "wrong" },
		"is set: set both":          func(c *config) { c.AWS.AccessKeyID = "" },
		"want s3://BUCKET/PREFIX":   func(c *config) { c.Archive = "s3://" },
	} {
		s, log, err := start(change)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %s", err, want)
		}
		wantStopped(t, s)
		_, _ = fmt.Fprintln(log, err)
	}

	bucket.Stop()
	s, log, err := start(func(*config) {})
	if err != nil {
		t.Fatal(err)
	}
	const failed = "level=ERROR msg=retention error="
	for deadline := time.Now().Add(30 * time.Second); log.count(failed) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it logged no error")
		}
	}
	s.stop(t.Context())
	if log.count(failed) != 1 || log.count("runs stay until the archive can be reached") != 1 {
		t.Errorf("it did not log once each that the bucket is not there:\n%s", &log.text)
	}
	var left int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM runs`).Scan(&left); err != nil || left != len(d.runs) {
		t.Fatalf("there are %d runs, error %v", left, err)
	}

	bucket.Start(t)
	s, log, err = start(func(*config) {})
	if err != nil {
		t.Fatal(err)
	}
	d.waitUntilEmpty(t)
	s.stop(t.Context())
	if got := bucket.Objects(t); len(got) != len(d.runs) || log.count("level=ERROR") != 0 {
		t.Errorf("got %d objects; log:\n%s", len(got), &log.text)
	}
	id := string(d.runs[0])
	file := "s3://" + s3test.Bucket + "/runs/default/" + id + ".jsonl.zst"
	wantOutput(t, []string{"import", file}, "", id+"\n")
	wantOutput(t, []string{"verify"}, "", "")
	var shown bytes.Buffer
	if err := run(t.Context(), []string{"show", file}, &shown, log); err != nil || !strings.Contains(shown.String(), "run_completed") {
		t.Errorf("show: got %v and\n%s", err, &shown)
	}
	wantOutput(t, []string{"show", file + "x"}, "read "+file+"x: the file is not in the bucket "+
		"(404 NoSuchKey: The specified key does not exist.)", "")
	for _, log := range logs {
		for _, secret := range []string{s3test.AccessKeyID, s3test.SecretAccessKey} {
			if log.count(secret) != 0 {
				t.Errorf("%s is in the log:\n%s", secret, &log.text)
			}
		}
	}
}
