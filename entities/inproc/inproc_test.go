package inproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// send sends a request to the handler.
func send(ctx context.Context, t *testing.T, h http.HandlerFunc, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://nowhere/a%20b?c=d", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: Transport{h}}).Do(req)
	if err == nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

// TestAnswers are those of a connection, whatever their length, and whether the handler flushes them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 10, buffered, buffered + 1, 10 * buffered} {
		for _, flushes := range []bool{false, true} {
			resp, err := send(t.Context(), t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Seen", fmt.Sprint(r.Method, r.RequestURI, r.Host, string(body)))
				w.WriteHeader(http.StatusTeapot)
				w.Header().Set("Late", "true")
				w.WriteHeader(http.StatusOK)
				for range size / 10 {
					_, _ = io.WriteString(w, "0123456789")
					if flushes {
						w.(http.Flusher).Flush()
					}
				}
				_, _ = io.WriteString(w, strings.Repeat("x", size%10))
			}, "hi")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if err != nil || len(got) != size || resp.StatusCode != http.StatusTeapot || resp.Header.Get("Late") != "" ||
				resp.Header.Get("Seen") != "POST/a%20b?c=dnowherehi" {
				t.Errorf("%d, flushed %t: got %d bytes, %v, %s, %v", size, flushes, len(got), err, resp.Status, resp.Header)
			}
		}
	}
}

// TestHandlerLearnsThatNobodyReads: the client has closed the answer, or its context has ended.
func TestHandlerLearnsThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*http.Response, context.CancelCauseFunc){
		"closed":   func(r *http.Response, _ context.CancelCauseFunc) { _ = r.Body.Close() },
		"canceled": func(_ *http.Response, cancel context.CancelCauseFunc) { cancel(errors.New("why")) },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := make(chan error)
		resp, err := send(ctx, t, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			cause <- context.Cause(r.Context())
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		end(resp, cancel)
		if got := <-cause; got != context.Canceled { //nolint:errorlint // no more than that
			t.Errorf("%s: the handler's context ended with %v", name, got)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: the answer can be read to its end", name)
		}
		cancel(nil)
	}
}

// TestRequestEndsWithItsContext: also if the handler does not look.
func TestRequestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release, ended := make(chan bool), make(chan error)
	_, err := send(ctx, t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		<-release
		_, err := w.Write([]byte("late"))
		ended <- err
	}, "")
	close(release)
	if !errors.Is(err, context.Canceled) || <-ended == nil {
		t.Errorf("got %v, and the late answer could be written", err)
	}
}

// TestPanicLooksLikeAClosedConnection, before and after the answer has begun.
func TestPanicLooksLikeAClosedConnection(t *testing.T) {
	t.Parallel()
	_, err := send(t.Context(), t, func(http.ResponseWriter, *http.Request) { panic("why") }, "")
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "why") {
		t.Errorf("got %v", err)
	}
	resp, err := send(t.Context(), t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		panic("why")
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkRoundTrip sends requests to a handler that needs some stack.
func BenchmarkRoundTrip(b *testing.B) {
	client := &http.Client{Transport: Transport{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte{nested(64)})
	})}}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			resp, err := client.Get("http://nowhere/")
			if err != nil {
				b.Error(err)
				return
			}
			_ = resp.Body.Close()
		}
	})
}

// nested uses 256 bytes of stack per call.
func nested(depth int) byte {
	var used [256]byte
	if depth > 0 {
		used[depth] = nested(depth - 1)
	}
	return used[depth] + 1
}
