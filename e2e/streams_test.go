package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// streamInfo is the info of a stream on the wire.
type streamInfo struct {
	TailIndex int  `cbor:"tailIndex"`
	Done      bool `cbor:"done"`
}

// streamWhileWritten checks that a reader gets the first chunks while the step is still writing, and that a late reader
// gets all chunks.
func streamWhileWritten(t *testing.T, s *server, a *app) {
	const count = 20
	id := a.run(t, "stream", count, 200, "letters")
	name := streamName(id)

	lines := bufio.NewScanner(a.openStream(t, id, 0))
	for i := range count {
		if !lines.Scan() {
			t.Fatalf("the stream ended before chunk %d: %v", i, lines.Err())
		}
		if want := fmt.Sprintf(`{"chunk":%d}`, i); lines.Text() != want {
			t.Fatalf("chunk %d is %s", i, lines.Text())
		}
		if i > 1 {
			continue
		}
		if now := get[streamInfo](t, s, "/v2/runs/"+id+"/streams/"+name+"/info"); now.Done || now.TailIndex >= count-1 {
			t.Errorf("chunk %d was read only after all were written: %+v", i, now)
		}
		if done := log(s.events(t, id)).of("step_completed"); len(done) > 0 {
			t.Errorf("chunk %d was read only after the step had ended", i)
		}
	}
	if lines.Scan() {
		t.Errorf("after the last chunk: %s", lines.Text())
	}
	a.want(t, id, count)
	s.wantLog(t, id, sequence("run_created", "run_started", step("writeChunks"), "run_completed")...)
	a.wantCounts(t, id, map[string]int{"writeChunks": 1})

	info := get[streamInfo](t, s, "/v2/runs/"+id+"/streams/"+name+"/info")
	if info != (streamInfo{TailIndex: count - 1, Done: true}) {
		t.Errorf("info: %+v", info)
	}
	late, err := io.ReadAll(a.openStream(t, id, count-2))
	if want := "{\"chunk\":18}\n{\"chunk\":19}\n"; err != nil || string(late) != want {
		t.Errorf("read again from chunk 18: %q (%v), want %q", late, err, want)
	}
}

// openStream reads the run's stream through the SDK. The stream need not exist yet.
func (a *app) openStream(t *testing.T, runID string, from int) io.Reader {
	t.Helper()
	url := fmt.Sprintf("%s/runs/%s/stream?namespace=letters&startIndex=%d", a.url(), runID, from)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("read stream: %s", resp.Status)
	}
	return resp.Body
}
