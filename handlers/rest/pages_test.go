package rest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// TestLargePagesAreReadInTurns: a project reads as many large pages at once as there are processors, however many its
// clients ask for. Those of another project, and small ones, do not wait for them.
func TestLargePagesAreReadInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processors, clients = 3, 50
		p := newPages(processors)
		var reading, most atomic.Int64
		var all sync.WaitGroup
		read := func() error {
			most.Store(max(most.Load(), reading.Add(1)))
			defer reading.Add(-1)
			time.Sleep(time.Second)
			return nil
		}
		for range clients {
			all.Go(func() {
				if err := p.do(t.Context(), "busy", largePage, read); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		for _, quick := range []struct {
			project entities.Project
			rows    int
		}{{"other", largePage}, {"busy", largePage - 1}} {
			if err := p.do(t.Context(), quick.project, quick.rows, func() error { return nil }); err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("another project, or a small page, waited for %s", waited)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.do(gone, "busy", largePage, read); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v for a client that left while it waited", err)
		}
		all.Wait()
		check.Equal(t, "large pages were read at once", most.Load(), processors)
		check.Equal(t, "slots are not free", p.slots.Held(), 0)
	})
}

// TestListsWithManyRowsAreLargePages: an answer to a request for many rows waits for a slot.
func TestListsWithManyRowsAreLargePages(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]error{
		"": nil, "limit=199": nil, "limit=200": context.Canceled, "limit=1000": context.Canceled,
	} {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		c := echo.New().NewContext(
			httptest.NewRequestWithContext(gone, http.MethodGet, "/?"+query, nil), httptest.NewRecorder())
		c.Set("stepwell.identity", auth.Identity{Project: "busy"})
		r := &request{Context: c, pages: newPages(1)}
		if !r.pages.slots.Try(string(r.project()), 1, pageFactor) {
			t.Fatal("no slot is free")
		}
		r.page(newestFirst)
		if err := answer(r, func() (int, error) { return 1, nil }); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", query, err, want)
		}
	}
}
