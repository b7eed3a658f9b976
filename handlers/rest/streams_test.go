package rest_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

func (a api) write(t *testing.T, id entities.RunID, name entities.StreamName, chunks ...string) {
	t.Helper()
	list := make([][]byte, len(chunks))
	for i, c := range chunks {
		list[i] = []byte(c)
	}
	check.NoError(t, a.streams.Write(t.Context(), entities.DefaultProject, id, name, list))
}

func (a api) close(t *testing.T, id entities.RunID, name entities.StreamName) {
	t.Helper()
	check.NoError(t, a.streams.Close(t.Context(), entities.DefaultProject, id, name))
}

func TestStreams(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id, other := a.driven(t, "order"), a.driven(t, "order")
	path := "/v1/runs/" + string(id) + "/streams"
	same(t, "none", `{"data":[]}`, a.get(t, path))
	a.write(t, id, "strm_a", "one", "", "\xff\x00", "é")
	a.write(t, other, "strm_b", "b")
	same(t, "chunks", `{"data":[{"index":0,"text":"one"},{"index":1,"text":""},{"index":2,"base64":"/wA="},
		{"index":3,"text":"é"}],"closed":false}`, a.get(t, path+"/strm_a"))
	same(t, "the first two", `{"data":[{"index":0,"text":"one"},{"index":1,"text":""}],"cursor":"2","closed":false}`,
		a.get(t, path+"/strm_a?limit=2"))
	same(t, "beyond", `{"data":[],"closed":false}`, a.get(t, path+"/strm_a?cursor=4"))
	a.close(t, id, "strm_a")
	same(t, "the rest", `{"data":[{"index":2,"base64":"/wA="},{"index":3,"text":"é"}],"closed":true}`,
		a.get(t, path+"/strm_a?cursor=2"))
	list := a.get(t, path)["data"].([]any)
	if len(list) != 1 {
		t.Fatalf("got %v, want one stream", list)
	}
	got := list[0].(object)
	if got["name"] != "strm_a" || got["chunks"] != 4.0 || got["createdAt"] == nil || got["closedAt"] == nil {
		t.Errorf("got %v", got)
	}
	for _, tail := range []string{"", "/tail"} {
		a.wantRejected(t, http.MethodGet, path+"/strm_b"+tail, "", http.StatusNotFound, "stream_not_found")
		a.wantRejected(t, http.MethodGet, path+"/none"+tail, "", http.StatusNotFound, "stream_not_found")
	}
	for _, query := range []string{"?cursor=-1", "?cursor=x", "?order=asc", "/tail?from=x", "/tail?from=1.5"} {
		a.wantRejected(t, http.MethodGet, path+"/strm_a"+query, "", http.StatusBadRequest, "invalid_request")
	}
}

// TestDecodedChunks: what the Workflow SDK wrote is decoded on request, and the rest stays as it is. A page ends early if it is
// much work to decode.
func TestDecodedChunks(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	id := a.sdkRun(t, "order")
	path := "/v1/runs/" + string(id) + "/streams/s"
	a.write(t, id, "s", "\x00\x00\x00\x09devl[\"a\"]", "\x00\x00\x00\x09devl[null", "\x00\x00\x00\x02ab", "\x00\x00\x00\x04encr",
		"Once", "\x00\x00\x00\x0adevl[null]")
	same(t, "decoded", `{"closed":false,"data":[{"index":0,"encoding":"devalue","value":"a"},
		{"index":1,"encoding":"opaque","text":"devl[null"},{"index":2,"encoding":"opaque","text":"ab"},
		{"index":3,"encoding":"encrypted","text":"encr"},{"index":4,"text":"Once"},
		{"index":5,"encoding":"devalue","value":null}]}`, a.get(t, path+"?decoded=true"))
	same(t, "as written", `{"index":2,"text":"\u0000\u0000\u0000\u0002ab"}`, a.get(t, path)["data"].([]any)[2])
	a.wantRejected(t, http.MethodGet, path+"?decoded=1", "", http.StatusBadRequest, "invalid_request")

	work := `devl[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"` + strings.Repeat("x", 60_000) + `"]` // is written 16 times
	chunk := string(binary.BigEndian.AppendUint32(nil, uint32(len(work)))) + work
	a.write(t, id, "large", slices.Repeat([]string{chunk}, 40)...)
	seen := 0
	for cursor := "0"; cursor != ""; {
		page := a.get(t, strings.TrimSuffix(path, "s")+"large?decoded=true&cursor="+cursor)
		data := page["data"].([]any)
		if seen += len(data); len(data) == 0 || len(data) == 40 {
			t.Fatalf("a page has %d chunks", len(data))
		}
		cursor, _ = page["cursor"].(string)
	}
	check.Equal(t, "chunks in all", seen, 40)
}

// tail sends a request to a listening server.
func tail(t *testing.T, ctx context.Context, url string, header ...string) *http.Response {
	t.Helper()
	r := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(t)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := check.Value(http.DefaultClient.Do(r))(t)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestTailStream(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	id := a.driven(t, "order")
	url := server.URL + "/v1/runs/" + string(id) + "/streams/s/tail"
	a.write(t, id, "s", "one ", "two ")
	follow := tail(t, t.Context(), url+"?from=1")
	first := make([]byte, 4)
	if _, err := io.ReadFull(follow.Body, first); err != nil || string(first) != "two " {
		t.Errorf("got %q and error %v", first, err)
	}
	a.write(t, id, "s", "\xff")
	a.close(t, id, "s")
	rest, err := io.ReadAll(follow.Body)
	if err != nil || string(rest) != "\xff" {
		t.Errorf("got %q and error %v at the end", rest, err)
	}
	for _, tt := range []struct{ query, last, want string }{
		{"", "", "id: 0\ndata: {\"index\":0,\"text\":\"one \"}\n\nid: 1\ndata: {\"index\":1,\"text\":\"two \"}\n\n" +
			"id: 2\ndata: {\"index\":2,\"base64\":\"/w==\"}\n\nevent: end\ndata: {}\n\n"},
		{"?from=-1", "", "id: 2\ndata: {\"index\":2,\"base64\":\"/w==\"}\n\nevent: end\ndata: {}\n\n"},
		{"?from=0", "1", "id: 2\ndata: {\"index\":2,\"base64\":\"/w==\"}\n\nevent: end\ndata: {}\n\n"},
		{"", "2", "event: end\ndata: {}\n\n"},
	} {
		header := []string{"Accept", "text/event-stream"}
		if tt.last != "" {
			header = append(header, "Last-Event-ID", tt.last)
		}
		answer := tail(t, t.Context(), url+tt.query, header...)
		got, err := io.ReadAll(answer.Body)
		if err != nil || string(got) != tt.want || answer.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s after %q: got %s %q and error %v, want %q", tt.query, tt.last,
				answer.Header.Get("Content-Type"), got, err, tt.want)
		}
	}
}

// TestDecodedTail: a stream is followed as what is in it on request, which needs events.
func TestDecodedTail(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	id := a.sdkRun(t, "order")
	path := "/v1/runs/" + string(id) + "/streams/s/tail?decoded=true"
	a.write(t, id, "s", "\x00\x00\x00\x09devl[\"a\"]", "Once")
	a.close(t, id, "s")
	got, err := io.ReadAll(tail(t, t.Context(), server.URL+path, "Accept", "text/event-stream").Body)
	const want = "id: 0\ndata: {\"index\":0,\"value\":\"a\",\"encoding\":\"devalue\"}\n\nid: 1\ndata: {\"index\":1,\"text\":\"Once\"}\n\n" +
		"event: end\ndata: {}\n\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q and error %v, want %q", got, err, want)
	}
	a.wantRejected(t, http.MethodGet, path, "", http.StatusBadRequest, "invalid_request")
}

// TestTailIsDisconnectedOnShutdown checks that the client can tell it from the end of the stream.
func TestTailIsDisconnectedOnShutdown(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	id := a.driven(t, "order")
	a.write(t, id, "s", "one\n")
	follow := tail(t, t.Context(), server.URL+"/v1/runs/"+string(id)+"/streams/s/tail")
	lines := bufio.NewReader(follow.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("got %q and error %v", line, err)
	}
	a.drain()
	if rest, err := io.ReadAll(lines); err == nil {
		t.Errorf("got %q and the end, want a broken connection", rest)
	}
}
