package wire_test

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/e2e/record"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

var update = flag.Bool("update", false, "write what is answered now into the recordings of testdata")

// TestReplay repeats the requests of the official clients that e2e recorded, and expects the same answers. All fields
// and headers must be equal, with these exceptions:
//
//	difference                           reason
//	message IDs, receipt handles         the queue generates them; they are mapped one to one
//	Date, Content-Length                 set by HTTP
//	X-Request-Id                         unique per request
//	a long poll that timed out           the replay does not wait: it sends waitMs=1
//	a live read that the reader aborted  compared up to where it was aborted
//	deliveries                           no function is called; the message is received instead (endpoint 19). The
//	                                     test makes it due in the table, because the queue uses the database's
//	                                     clock. Its delivery count, type and bytes must be equal
//
// The server's clock is set to the recorded time, so that times are equal. make corpus makes the recordings. With
// -update the test writes the current answers into them; the diff then shows what changes for clients.
func TestReplay(t *testing.T) {
	t.Parallel()
	files := check.Value(filepath.Glob("testdata/traffic/*/*.json"))(t)
	const least = 50
	if len(files) < least {
		t.Fatalf("%d recordings, want %d or more", len(files), least)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), "testdata/traffic/"), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replayFile(t, file)
		})
	}
}

func replayFile(t *testing.T, path string) {
	t.Helper()
	recording := openRecording(t, path)
	r := &replay{
		server: newServer(t), sent: map[string]content{},
		names: names{now: map[string]string{}, was: map[string]string{}},
	}
	for i, e := range recording.Exchanges {
		answer, wrong := r.exchange(t, e)
		switch {
		case len(wrong) == 0:
		case *update && e.Delivery == nil:
			recording.Exchanges[i].Answer = answer
		default: // what follows would be wrong because of this
			t.Fatalf("%s, exchange %d of %d, %s:\n\t%s", path, i+1, len(recording.Exchanges), title(e),
				strings.Join(wrong, "\n\t"))
		}
	}
	if *update {
		var out bytes.Buffer
		check.NoError(t, recording.Write(&out))
		check.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
	}
}

func openRecording(t *testing.T, path string) record.Recording {
	t.Helper()
	f := check.Value(os.Open(path))(t)
	defer func() { _ = f.Close() }()
	recording, err := record.Read(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return recording
}

// title identifies an exchange in the file.
func title(e record.Exchange) string {
	if d := e.Delivery; d != nil {
		return fmt.Sprintf("delivery %d of %s", d.Count, d.Message)
	}
	return e.Request.Method + " " + e.Request.Path
}

// replay is the state of a replay.
type replay struct {
	*server

	names names
	// sent holds the sent messages by their IDs in the recording.
	sent map[string]content
}

// exchange repeats a request. It returns the answer with the IDs of the recording, and the differences.
func (r *replay) exchange(t *testing.T, e record.Exchange) (got record.Answer, wrong []string) {
	t.Helper()
	r.show(e.Clock)
	if e.Delivery != nil {
		return got, r.deliver(t, *e.Delivery)
	}
	status, header, body := r.ask(t, e)
	value := record.Value(e.Request.Path, header["Content-Type"], body)
	if strings.Contains(e.Request.Path, "/topic/") && status == e.Answer.Status {
		r.nameMessages(t, e, value)
	}
	got = record.Answer{Status: status, Header: header, Body: translate(value, r.names.toThen()), Cut: e.Answer.Cut}
	if status != e.Answer.Status {
		wrong = append(wrong, fmt.Sprintf("status: got %d, want %d", status, e.Answer.Status))
	}
	wrong = append(wrong, record.Diff("header", asValue(e.Answer.Header), asValue(header))...)
	return got, append(wrong, record.Diff("body", e.Answer.Body, got.Body)...)
}

func asValue(header map[string]string) any {
	fields := map[string]any{}
	for name, value := range header {
		fields[name] = value
	}
	return fields
}

// show sets the server's clock.
func (s *server) show(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = at
}

// ask sends a request of the recording with the IDs of the replay.
func (r *replay) ask(t *testing.T, e record.Exchange) (status int, header map[string]string, body []byte) {
	t.Helper()
	names := r.names.toNow()
	path := names.Replace(e.Request.Path)
	if strings.Contains(path, "waitMs=") && e.Answer.Status == http.StatusOK && !ended(e.Answer.Body) {
		before, after, _ := strings.Cut(path, "waitMs=")
		path = before + "waitMs=1" + strings.TrimLeft(after, "0123456789")
	}
	req := check.Value(http.NewRequestWithContext(t.Context(), e.Request.Method, r.url+path,
		strings.NewReader(names.Replace(string(e.Request.Body)))))(t)
	for name, value := range e.Request.Header {
		req.Header.Set(name, names.Replace(value))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", title(e), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if e.Answer.Cut {
		body = make([]byte, size(t, e.Answer.Body))
		_, err = io.ReadFull(resp.Body, body)
	} else {
		body, err = io.ReadAll(resp.Body)
	}
	if err != nil {
		t.Fatalf("%s: %v after %d bytes", title(e), err, len(body))
	}
	header = map[string]string{}
	for name, values := range resp.Header {
		if name != "Date" && name != "Content-Length" && name != "X-Request-Id" {
			header[name] = strings.Join(values, ", ")
		}
	}
	return resp.StatusCode, header, body
}

// size returns the number of bytes that a reader had read when it disconnected.
func size(t *testing.T, seen any) int {
	t.Helper()
	switch seen := seen.(type) {
	case nil:
		return 0
	case map[string]any:
		if text, ok := seen["$text"].(string); ok {
			return len(text)
		}
		if data, err := base64.StdEncoding.DecodeString(fmt.Sprint(seen["$bytes"])); err == nil {
			return len(data)
		}
	}
	t.Fatalf("the recorded size of an aborted read is %v", seen)
	return 0
}

// ended reports whether an answer is a run that has ended.
func ended(run any) bool {
	fields, _ := run.(map[string]any)
	_, over := fields["completedAt"]
	return over
}
