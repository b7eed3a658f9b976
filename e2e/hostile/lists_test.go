package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/oklog/ulid/v2"
)

const (
	// bombs is the number of small payloads that are much work to decode.
	bombs = 900
	// longestPage is how long a page of bombs may take. Without a budget it takes minutes.
	longestPage = 30 * time.Second
)

// TestSmallPayloadsThatAreMuchWork stores payloads of a kilobyte that decode to 900 kB. The
// lists of events must stay short, and reach every event.
func TestSmallPayloadsThatAreMuchWork(t *testing.T) {
	f := newFixture(t)
	id := f.attacker.plantBombs(t)
	path := "/v1/runs/" + id + "/events?limit=1000"
	f.wantUnharmed(t, func() func() {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					f.attacker.get(ctx, path)
				}
			})
		}
		return func() { cancel(); wg.Wait() }
	})

	seen, cursor := 0, ""
	for range 2 {
		start := time.Now()
		r := f.attacker.send(t, http.MethodGet, path+cursor, nil).Want(t, http.StatusOK)
		took := time.Since(start)
		got := decode[struct {
			Data   []struct{ Seq int }
			Cursor string
		}](t, r)
		t.Logf("a page of %d events took %s", len(got.Data), took)
		if took > longestPage || len(got.Data) == 0 || got.Cursor == "" {
			t.Fatalf("a page of %d events with cursor %q took %s; want a part of the log in at most %s",
				len(got.Data), got.Cursor, took, longestPage)
		}
		for _, e := range got.Data {
			if seen++; e.Seq != seen {
				t.Fatalf("event %d follows event %d", e.Seq, seen-1)
			}
		}
		cursor = "&cursor=" + url.QueryEscape(got.Cursor)
	}
}

// plantBombs creates a run and its steps, which have bombs as their inputs, and returns its ID.
func (n tenant) plantBombs(t *testing.T) string {
	t.Helper()
	id := "wrun_" + ulid.Make().String()
	bomb := append([]byte("gzip"), zipped(t, 450_000)...)
	created := frame(t, map[string]any{
		"eventType": "run_created", "specVersion": 3, "deploymentId": "f", "workflowName": "bombs",
	}, nil)
	n.post(t, id, "run_created", created)
	for i := 0; i < bombs; {
		var batch []byte
		for range 100 {
			i++
			batch = append(batch, frame(t, map[string]any{
				"eventType": "step_created", "specVersion": 3, "correlationId": fmt.Sprintf("step_%d", i), "stepName": "s",
			}, bomb)...)
		}
		n.post(t, id, "batch", batch)
	}
	return id
}

// zipped returns a compressed payload: a list that refers n times to the number 1, in the encoding of the Workflow SDK.
func zipped(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte("devl[[" + strings.Repeat("1,", n-1) + "1],1]")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// frame returns an event as clients of the Workflow SDK send it.
func frame(t *testing.T, meta map[string]any, body []byte) []byte {
	t.Helper()
	head, err := cbor.Marshal(meta)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, block := range [][]byte{head, body} {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(block))), block...)
	}
	return out
}

// post sends events of a run as a client of the Workflow SDK.
func (n tenant) post(t *testing.T, runID, what string, body []byte) {
	t.Helper()
	status, answer, err := n.do(t.Context(), http.MethodPost, "/sdk/v4/runs/"+runID+"/events/"+what, body)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s of %s: got %d %.300q, error %v", what, runID, status, answer, err)
	}
}

// get reads an answer to its end, or until the context ends.
func (n tenant) get(ctx context.Context, path string) { _, _, _ = n.do(ctx, http.MethodGet, path, nil) }

func (n tenant) do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, _ error) {
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+n.admin)
	req.Header.Set("Content-Type", "application/octet-stream")
	if json.Valid(body) {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}
