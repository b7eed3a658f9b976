package wire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// timeout is how long tests wait for data.
const timeout = 30 * time.Second

// noRun is the run ID of health checks, for which no run exists.
const noRun = "wrun_hc_1"

func (c client) write(t *testing.T, name, body string, header ...string) answer {
	t.Helper()
	return c.send(t, http.MethodPut, "/v2/runs/"+noRun+"/stream/"+name, strings.NewReader(body), header...)
}

// mustWrite writes chunks, which must be accepted.
func (c client) mustWrite(t *testing.T, name, body string, header ...string) {
	t.Helper()
	if got := c.write(t, name, body, header...); got.status/100 != 2 {
		t.Fatalf("write %q: got %d %s", body, got.status, got.body)
	}
}

func (c client) closeStream(t *testing.T, name string) {
	t.Helper()
	c.mustWrite(t, name, "", "X-Stream-Done", "true")
}

// multi returns the body of a write with several chunks.
func multi(chunks ...string) string {
	var body []byte
	for _, chunk := range chunks {
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(chunk))), chunk...)
	}
	return string(body)
}

// tail starts a live read and returns its body once the header has arrived.
func (c client) tail(t *testing.T, path string) (body io.Reader, hangUp context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	req := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/sdk"+path, nil))(t)
	resp := check.Value(http.DefaultClient.Do(req))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s, want 200", resp.Status)
	}
	return resp.Body, cancel
}

func wantNext(t *testing.T, body io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(body, got); err != nil || string(got) != want {
		t.Fatalf("got %q and %v, want %q", got[:n], err, want)
	}
}

func wantEnd(t *testing.T, body io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
		t.Fatalf("got %q and %v, want a clean end", rest, err)
	}
}

func TestWrittenChunksAreStored(t *testing.T) { // §4, §1.6
	t.Parallel()
	c := client{newServer(t), stable}
	type write struct {
		body   string
		header []string
	}
	done, several := []string{"X-Stream-Done", "true"}, []string{"X-Stream-Multi", "true"}
	for _, tt := range []struct {
		name   string
		writes []write
		chunks []string
		done   bool
	}{
		{"a chunk", []write{{"ab", nil}}, []string{"ab"}, false},
		{"two chunks", []write{{"ab", nil}, {"c", nil}}, []string{"ab", "c"}, false},
		{"several at once", []write{{multi("ab", "c"), several}}, []string{"ab", "c"}, false},
		{"several and one", []write{{multi("ab", "c"), several}, {"d", nil}}, []string{"ab", "c", "d"}, false},
		{"an empty one among several", []write{{multi("ab", "", "c"), several}}, []string{"ab", "", "c"}, false},
		{"empty ones are ignored", []write{{"", nil}, {"ab", nil}, {"", nil}, {"", several}}, []string{"ab"}, false},
		{"close", []write{{"ab", nil}, {"", done}}, []string{"ab"}, true},
		{"close twice", []write{{"ab", nil}, {"", done}, {"", done}}, []string{"ab"}, true},
		{"close what is not there", []write{{"", done}}, []string{}, true},
		{"last chunks with the close", []write{{multi("a", "b"), append(several, done...)}}, []string{"a", "b"}, true},
		{"after the close is ignored", []write{{"ab", nil}, {"", done}, {"c", nil}}, []string{"ab"}, true},
		{"binary", []write{{"\x00\xff\x00\x00\x00\x01", nil}}, []string{"\x00\xff\x00\x00\x00\x01"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := newID("strm_")
			for _, w := range tt.writes {
				c.mustWrite(t, name, w.body, w.header...)
			}
			check.Equal(t, "info", c.get(t, "/v2/runs/"+noRun+"/streams/"+name+"/info").cbor(t), map[string]any{
				"tailIndex": number(len(tt.chunks) - 1), "done": tt.done,
			})
			data := []any{}
			for i, chunk := range tt.chunks {
				data = append(data, map[string]any{"index": number(i), "data": []byte(chunk)})
			}
			check.Equal(t, "chunks", c.get(t, "/v2/runs/"+noRun+"/streams/"+name+"/chunks").cbor(t), map[string]any{
				"data": data, "cursor": nil, "hasMore": false, "done": tt.done,
			})
		})
	}
}

// number returns an integer in the type that the decoder uses.
func number(n int) any {
	if n < 0 {
		return int64(n)
	}
	return uint64(n)
}

func TestWriteStreamRejectsInvalidRequests(t *testing.T) { // §4
	t.Parallel()
	c := client{newServer(t), stable}
	for _, tt := range []struct {
		name, body string
		status     int
		code       string
	}{
		{"chunk cut short", multi("ab", "c") + "\x00\x00\x00\x05abc", http.StatusBadRequest, "malformed"},
		{"length cut short", multi("ab") + "\x00\x00", http.StatusBadRequest, "malformed"},
		{"huge length", "\xff\xff\xff\xffabc", http.StatusRequestEntityTooLarge, "too_large"},
		{"too many", strings.Repeat(multi("a"), 1001), http.StatusRequestEntityTooLarge, "too_large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := newID("strm_")
			wantProblem(t, c.write(t, name, tt.body, "X-Stream-Multi", "true"), tt.status, tt.code)
			info := c.get(t, "/v2/runs/"+noRun+"/streams/"+name+"/info").cbor(t)
			check.Equal(t, "chunks before the error", info["tailIndex"], number(-1)) // all or nothing
		})
	}
	name := newID("strm_")
	c.mustWrite(t, name, strings.Repeat(multi("a"), 1000), "X-Stream-Multi", "true")
	info := c.get(t, "/v2/runs/"+noRun+"/streams/"+name+"/info").cbor(t)
	check.Equal(t, "a thousand chunks", info["tailIndex"], number(999))
}

// TestLiveReadFollowsWrites starts before the first write, and reads each chunk before the next is written (§4).
func TestLiveReadFollowsWrites(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	name := newID("strm_")
	body, _ := c.tail(t, "/v2/stream/"+name)
	c.mustWrite(t, name, "one")
	wantNext(t, body, "one")
	c.mustWrite(t, name, multi("two", "three"), "X-Stream-Multi", "true")
	wantNext(t, body, "twothree")
	c.mustWrite(t, name, "") // an empty retry must not end the live reads
	c.mustWrite(t, name, "four")
	wantNext(t, body, "four")
	c.closeStream(t, name)
	wantEnd(t, body)
}

func TestLiveReadStartsAtIndex(t *testing.T) { // §4
	t.Parallel()
	c := client{newServer(t), stable}
	name := newID("strm_")
	c.mustWrite(t, name, multi("a", "bb", "ccc"), "X-Stream-Multi", "true")
	open, _ := c.tail(t, "/v2/stream/"+name+"?startIndex=-1")
	wantNext(t, open, "ccc")
	ahead, _ := c.tail(t, "/v2/stream/"+name+"?startIndex=4")
	c.mustWrite(t, name, multi("dddd", "eeeee"), "X-Stream-Multi", "true")
	wantNext(t, open, "ddddeeeee")
	wantNext(t, ahead, "eeeee")
	c.closeStream(t, name)
	wantEnd(t, open)
	wantEnd(t, ahead)
	for query, want := range map[string]string{
		"":                                 "abbcccddddeeeee",
		"?startIndex=0":                    "abbcccddddeeeee",
		"?startIndex=2":                    "cccddddeeeee",
		"?startIndex=5":                    "",
		"?startIndex=99":                   "",
		"?startIndex=9223372036854775807":  "",
		"?startIndex=-2":                   "ddddeeeee",
		"?startIndex=-5":                   "abbcccddddeeeee",
		"?startIndex=-99":                  "abbcccddddeeeee",
		"?startIndex=-9223372036854775808": "abbcccddddeeeee",
	} {
		got := c.get(t, "/v2/stream/"+name+query)
		if got.status != http.StatusOK || string(got.body) != want {
			t.Errorf("%s: got %d %q, want %q", query, got.status, got.body, want)
		}
	}
	for _, query := range []string{"?startIndex=x", "?startIndex=1.5", "?startIndex=9223372036854775808"} {
		wantProblem(t, c.get(t, "/v2/stream/"+name+query), http.StatusBadRequest, "invalid_request")
	}
}

// TestShutdownBreaksLiveReads: a clean end would mean that the stream is complete (§4).
func TestShutdownBreaksLiveReads(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	name := newID("strm_")
	c.mustWrite(t, name, "one")
	begun, _ := c.tail(t, "/v2/stream/"+name)
	wantNext(t, begun, "one")
	silent, _ := c.tail(t, "/v2/stream/"+newID("strm_"))
	c.drain()
	for what, body := range map[string]io.Reader{"a read under way": begun, "a read of nothing yet": silent} {
		if rest, err := io.ReadAll(body); !errors.Is(err, io.ErrUnexpectedEOF) || len(rest) > 0 {
			t.Errorf("%s: got %q and %v, want %v", what, rest, err, io.ErrUnexpectedEOF)
		}
	}
}

// TestDisconnectedReadersAreReleased: health checks poll with reads that they abort (§4).
func TestDisconnectedReadersAreReleased(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	for range 3 {
		_, hangUp := c.tail(t, "/v2/stream/"+newID("strm_"))
		hangUp()
	}
	closed := make(chan struct{})
	go func() {
		c.web.Close() // waits for the handlers
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(timeout):
		t.Error("the server still serves readers that are gone")
	}
}

func TestChunksAreListedInPages(t *testing.T) { // endpoint 14
	t.Parallel()
	c := client{newServer(t), stable}
	name := newID("strm_")
	path := "/v2/runs/" + noRun + "/streams/" + name + "/chunks"
	unknown := map[string]any{"data": []any{}, "cursor": nil, "hasMore": false, "done": false}
	check.Equal(t, "unknown stream", c.get(t, path).cbor(t), unknown)
	c.mustWrite(t, name, multi("a", "b", "c"), "X-Stream-Multi", "true")

	item := func(i int, data string) any { return map[string]any{"index": number(i), "data": []byte(data)} }
	page := c.get(t, path+"?limit=2").cbor(t)
	check.Equal(t, "data", page["data"], any([]any{item(0, "a"), item(1, "b")}))
	check.Equal(t, "hasMore", page["hasMore"], any(true))
	next := path + "?limit=2&cursor=" + page["cursor"].(string)
	check.Equal(t, "second page", c.get(t, next).cbor(t), map[string]any{
		"data": []any{item(2, "c")}, "cursor": nil, "hasMore": false, "done": false,
	})
	c.closeStream(t, name)
	check.Equal(t, "second page, closed", c.get(t, next).cbor(t), map[string]any{
		"data": []any{item(2, "c")}, "cursor": nil, "hasMore": false, "done": true,
	})
	for _, query := range []string{
		"?cursor=x", "?cursor=-1", "?cursor=9223372036854775807", "?cursor=9223372036854775808", "?limit=0", "?limit=x",
	} {
		wantProblem(t, c.get(t, path+query), http.StatusBadRequest, "invalid_request")
	}

	many := newID("strm_")
	c.mustWrite(t, many, strings.Repeat(multi("a"), 150), "X-Stream-Multi", "true")
	page = c.get(t, "/v2/runs/"+noRun+"/streams/"+many+"/chunks").cbor(t)
	check.Equal(t, "chunks without a limit", len(page["data"].([]any)), 100)
	c.mustWrite(t, many, strings.Repeat(multi("a"), 1000), "X-Stream-Multi", "true")
	page = c.get(t, "/v2/runs/"+noRun+"/streams/"+many+"/chunks?limit=5000").cbor(t)
	check.Equal(t, "chunks at most", len(page["data"].([]any)), 1000)
}

func TestStreamsOfARunAreListed(t *testing.T) { // endpoint 16
	t.Parallel()
	c := client{newServer(t), stable}
	wantList := func(runID, want string) {
		t.Helper()
		got := c.send(t, http.MethodGet, "/v2/runs/"+runID+"/streams", nil)
		if !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") ||
			string(bytes.TrimSpace(got.body)) != want {
			t.Errorf("got %s %s, want JSON %s", got.header.Get("Content-Type"), got.body, want)
		}
	}
	wantList(noRun, `[]`)
	c.mustWrite(t, "strm_b_user_bmFtZQ", "x")
	c.mustWrite(t, "__health_check__1", "x")
	c.mustWrite(t, "strm_a%2F%20b", "x") // encoded as clients do
	c.mustWrite(t, "strm_nothing", "")
	wantList(noRun, `["__health_check__1","strm_a/ b","strm_b_user_bmFtZQ"]`)
	wantList("wrun_other", `[]`)
	if got := c.get(t, "/v2/runs/"+noRun+"/streams/strm_a%2F%20b/info").cbor(t); got["tailIndex"] != number(0) {
		t.Errorf("info of an encoded name: got %v", got)
	}
}
