package wire_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// runOfFive creates a run with five events, one with a payload and extra data.
func (c client) runOfFive(t *testing.T) string {
	t.Helper()
	id := c.startedRun(t)
	c.must(t, id, "step_created", []byte("devl[3]"), stepMeta("step_"+id)...)
	c.must(t, id, "step_started", nil, stepMeta("step_"+id)...)
	c.must(t, id, "step_completed", []byte("devl[5]"), stepMeta("step_"+id)...)
	return id
}

// seqs returns the positions of events.
func seqs(t *testing.T, events []event) []int {
	t.Helper()
	list := []int{}
	for _, e := range events {
		var n int
		check.Value(fmt.Sscanf(e.meta["eventId"].(string), "evnt_%d", &n))(t)
		list = append(list, n)
	}
	return list
}

// end returns the sentinel of a page, with the cursor of the next one if there is any.
func end(more bool, next ...string) map[string]any {
	sentinel := map[string]any{"_end": uint64(1), "hasMore": more}
	for _, cursor := range next {
		sentinel["next"] = cursor
	}
	return sentinel
}

func TestEventsAreListedInPages(t *testing.T) { // §2.4
	t.Parallel()
	s := newServer(t)
	id := client{s, stable}.runOfFive(t)
	cursor := func(seq int) string { return "eid:" + eventID(seq) }
	for _, tt := range []struct {
		name, agent, query string
		seqs               []int
		end                map[string]any
	}{
		{"stable, whole", stable, "", []int{1, 2, 3, 4, 5}, end(false)},
		{"beta, whole", beta, "sortOrder=asc&remoteRefBehavior=resolve", []int{1, 2, 3, 4, 5}, end(false, cursor(5))},
		{"stable, first page", stable, "limit=2", []int{1, 2}, end(true, cursor(2))},
		{"beta, first page", beta, "limit=2", []int{1, 2}, end(true, cursor(2))},
		{"second page", stable, "limit=2&cursor=" + cursor(2), []int{3, 4}, end(true, cursor(4))},
		{"last page", stable, "limit=2&cursor=" + cursor(4), []int{5}, end(false)},
		{"stable, exactly full", stable, "limit=5", []int{1, 2, 3, 4, 5}, end(false)},
		{"beta, after the end", beta, "cursor=" + cursor(5), []int{}, end(false)},
		{"stable, after the end", stable, "cursor=" + cursor(5), []int{}, end(false)},
		{"newest first", stable, "sortOrder=desc&limit=3", []int{5, 4, 3}, end(true, cursor(3))},
		{"newest first, goes on", beta, "sortOrder=desc&cursor=" + cursor(3), []int{2, 1}, end(false, cursor(1))},
		{"limit is cut", stable, "limit=99999999", []int{1, 2, 3, 4, 5}, end(false)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := client{s, tt.agent}.get(t, "/v4/runs/"+id+"/events?"+tt.query)
			wantStatus(t, got, http.StatusOK)
			events, sentinel := got.list(t)
			check.Equal(t, "events", seqs(t, events), tt.seqs)
			check.Equal(t, "sentinel", sentinel, tt.end)
		})
	}
}

func TestListEventsRejectsInvalidParameters(t *testing.T) { // §2.4
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.newRun(t)
	for _, tt := range []struct {
		name, path string
		status     int
		code       string
	}{
		{"cursor of another list", "/v4/runs/" + id + "/events?cursor=17", http.StatusBadRequest, "invalid_request"},
		{"cursor cut", "/v4/runs/" + id + "/events?cursor=eid:evnt_01", http.StatusBadRequest, "invalid_request"},
		{"limit 0", "/v4/runs/" + id + "/events?limit=0", http.StatusBadRequest, "invalid_request"},
		{"limit -1", "/v4/runs/" + id + "/events?limit=-1", http.StatusBadRequest, "invalid_request"},
		{"limit ten", "/v4/runs/" + id + "/events?limit=ten", http.StatusBadRequest, "invalid_request"},
		{"no correlation ID", "/v4/events?runId=" + id, http.StatusBadRequest, "invalid_request"},
		{"no run", "/v4/runs/" + newID("wrun_") + "/events", http.StatusNotFound, "run_not_found"},
		{"no event", "/v4/runs/" + id + "/events/" + eventID(2), http.StatusNotFound, "event_not_found"},
		{"event of no run", "/v4/runs/wrun_x/events/" + eventID(1), http.StatusNotFound, "event_not_found"},
		{"event ID of another server", "/v4/runs/" + id + "/events/wevt_1", http.StatusNotFound, "event_not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, c.get(t, tt.path), tt.status, tt.code)
		})
	}
}

// TestLazyOmitsOnlyPayloads from events (§2.2).
func TestLazyOmitsOnlyPayloads(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.runOfFive(t)
	path := "/v4/runs/" + id + "/events"
	resolved, _ := c.get(t, path).list(t)
	bodies := []string{}
	for _, e := range resolved {
		bodies = append(bodies, e.body)
	}
	check.Equal(t, "payloads", bodies, []string{"devl[1]", "", "devl[3]", "", "devl[5]"})
	lazy, _ := c.get(t, path+"?remoteRefBehavior=lazy").list(t)
	for i, e := range lazy {
		check.Equal(t, "lazy payload", e.body, "")
		check.Equal(t, "lazy meta", e.meta, resolved[i].meta)
		one := c.get(t, path+"/"+eventID(i+1)).frames(t)
		check.Equal(t, "single event's payload", one[0].body, bodies[i])
		check.Equal(t, "single event's meta", one[0].meta, resolved[i].meta)
		one = c.get(t, path+"/"+eventID(i+1)+"?remoteRefBehavior=lazy").frames(t)
		check.Equal(t, "lazy single event's payload", one[0].body, "")
		check.Equal(t, "frames", len(one), 1)
	}
	check.Equal(t, "lazy events", len(lazy), len(resolved))
}

// TestPayloadsAreReturnedUnchanged, including binary and empty ones (I10).
func TestPayloadsAreReturnedUnchanged(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.startedRun(t)
	all := make([]byte, 0, 3<<20)
	for len(all) < cap(all) {
		all = append(all, byte(len(all)), byte(len(all)>>8))
	}
	c.must(t, id, "hook_created", nil, field{"correlationId", "hook_1"}, field{"hookToken", "t"})
	want := []string{string(all), "\x00", "encr\xff\xfe", ""}
	for _, payload := range want {
		c.must(t, id, "hook_received", []byte(payload), field{"correlationId", "hook_1"})
	}
	events, _ := c.get(t, "/v4/runs/"+id+"/events?cursor=eid:"+eventID(3)).list(t)
	for i, e := range events {
		if e.body != want[i] {
			t.Errorf("payload %d: got %d bytes, want the %d that were sent", i, len(e.body), len(want[i]))
		}
	}
	check.Equal(t, "events", len(events), len(want))
}

func TestEventsAreListedByCorrelationID(t *testing.T) { // endpoint 4
	t.Parallel()
	s := newServer(t)
	c := client{s, stable}
	first, second := c.runOfFive(t), c.runOfFive(t)
	for _, tt := range []struct {
		name, query string
		runID       string
		seqs        []int
		end         map[string]any
	}{
		{"of a step", "correlationId=step_" + first, first, []int{3, 4, 5}, end(false)},
		{"of a step in its run", "runId=" + second + "&correlationId=step_" + second, second, []int{3, 4, 5}, end(false)},
		{"of a step in another run", "runId=" + second + "&correlationId=step_" + first, "", []int{}, end(false)},
		{"a page", "limit=1&correlationId=step_" + first, first, []int{3}, end(true, "eid:"+eventID(3))},
		{
			"the next page", "limit=1&cursor=" + url.QueryEscape("eid:"+eventID(3)) + "&correlationId=step_" + first,
			first, []int{4}, end(true, "eid:"+eventID(4)),
		},
		{"newest first", "sortOrder=desc&limit=2&correlationId=step_" + first, first, []int{5, 4}, end(true, "eid:"+eventID(4))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := c.get(t, "/v4/events?"+tt.query)
			wantStatus(t, got, http.StatusOK)
			events, sentinel := got.list(t)
			check.Equal(t, "events", seqs(t, events), tt.seqs)
			check.Equal(t, "sentinel", sentinel, tt.end)
			for _, e := range events {
				check.Equal(t, "run", e.meta["runId"], any(tt.runID))
			}
		})
	}
}

// TestPreloadOfLongLogIsItsFirstPage: the answer to run_started has hasMore and a cursor (§3.5, §10, 30).
func TestPreloadOfLongLogIsItsFirstPage(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.newRun(t)
	big := make([]byte, 9<<20)
	for i := range 3 {
		c.must(t, id, "step_created", big, stepMeta(fmt.Sprintf("step_%d", i))...)
	}
	got := c.must(t, id, "run_started", nil)
	if n := len(got["events"].([]any)); n != 3 || got["hasMore"] != true || got["cursor"] != "eid:"+eventID(3) {
		t.Errorf("got %d events, hasMore %v, cursor %v; want what fits into a page", n, got["hasMore"], got["cursor"])
	}
	rest, end := c.get(t, "/v4/runs/"+id+"/events?cursor=eid:"+eventID(3)).list(t)
	check.Equal(t, "the rest", seqs(t, rest), []int{4, 5})
	check.Equal(t, "hasMore", end["hasMore"], any(false))
}
