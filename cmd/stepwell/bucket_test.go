package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/eventlog/archive/s3test"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
)

// newArchivingWorker returns a worker that archives ended runs in the bucket, and its log.
func newArchivingWorker(t *testing.T, dsn string) (*program, *testdb.Log) {
	t.Helper()
	s := newServer(t, dsn, server.RoleWorker)
	environment, err := readConfig([]string{
		"AWS_ACCESS_KEY_ID=" + s3test.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretAccessKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.config.AWS = environment.AWS
	s.config.Retention, s.config.Archive = time.Nanosecond, "s3://"+s3test.Bucket+"/runs"
	log := &testdb.Log{}
	s.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return s, log
}

// TestServerArchivesToBucket: wrong settings prevent the start. While the bucket is unreachable the server runs and
// keeps the runs, with one error per pass. Afterwards it archives them, and they can be shown and imported.
func TestServerArchivesToBucket(t *testing.T) { // sets the environment
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
	var logs []*testdb.Log
	start := func(change func(*config)) (*program, *testdb.Log, error) {
		s, log := newArchivingWorker(t, dsn)
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
			t.Errorf("got %v, want an error with %s", err, want)
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
	waitFor(t, log, failed)
	s.stop(t.Context())
	if strings.Count(log.String(), failed) != 1 || strings.Count(log.String(), "ended runs are kept until it is back") != 1 {
		t.Errorf("want one warning and one error about the bucket:\n%s", log)
	}
	var left int
	if err := d.QueryRow(t.Context(), `SELECT count(*) FROM runs`).Scan(&left); err != nil || left != len(d.runs) {
		t.Fatalf("got %d runs, %v", left, err)
	}

	bucket.Start(t)
	s, log, err = start(func(*config) {})
	if err != nil {
		t.Fatal(err)
	}
	d.waitUntilEmpty(t)
	s.stop(t.Context())
	if got := bucket.Objects(t); len(got) != len(d.runs) || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("got %d objects; log:\n%s", len(got), log)
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
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log contains %s:\n%s", secret, log)
			}
		}
	}
}
