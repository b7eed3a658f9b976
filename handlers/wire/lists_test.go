package wire_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// listed reads all pages of a list, checks their form, and returns the values of one key.
func (c client) listed(t *testing.T, path, key string) (ids []string, pages int) {
	t.Helper()
	for cursor := ""; ; pages++ {
		got := c.get(t, path+cursor)
		wantStatus(t, got, http.StatusOK)
		page := got.cbor(t)
		next, present := page["cursor"]
		if !present {
			t.Fatal("cursor is missing, not null")
		}
		if (next != nil) != (page["hasMore"] == true) {
			t.Errorf("cursor %v with hasMore %v", next, page["hasMore"])
		}
		for _, item := range page["data"].([]any) {
			ids = append(ids, item.(map[string]any)[key].(string))
		}
		if next == nil {
			return ids, pages + 1
		}
		cursor = "&cursor=" + url.QueryEscape(next.(string))
	}
}

// TestListsPageInBothOrders reads the lists of runs, steps and hooks in both orders and the default order (§2.4).
func TestListsPageInBothOrders(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	var runs, steps, hooks []string
	for i := range 5 {
		runs = append(runs, c.newRun(t))
		if i == 2 {
			c.advance(time.Second) // some are of the same millisecond, some are not
		}
	}
	for range 5 {
		id, hook := newID("step_"), newID("hook_")
		c.must(t, runs[0], "step_created", nil, stepMeta(id)...)
		c.must(t, runs[0], "hook_created", nil, field{"correlationId", hook}, field{"hookToken", hook})
		steps, hooks = append(steps, id), append(hooks, hook)
	}
	reversed := func(ids []string) []string {
		ids = slices.Clone(ids)
		slices.Reverse(ids)
		return ids
	}
	for _, tt := range []struct {
		name, path, key string
		ids             []string
		pages           int
	}{
		{"runs", "/v2/runs?", "runId", reversed(runs), 1},
		{"runs, oldest first", "/v2/runs?limit=2&sortOrder=asc", "runId", runs, 3},
		{"runs, newest first", "/v2/runs?limit=1&sortOrder=desc", "runId", reversed(runs), 5},
		{"steps", "/v2/runs/" + runs[0] + "/steps?", "stepId", reversed(steps), 1},
		{"steps, oldest first", "/v2/runs/" + runs[0] + "/steps?limit=2&sortOrder=asc", "stepId", steps, 3},
		{"steps, newest first", "/v2/runs/" + runs[0] + "/steps?limit=5", "stepId", reversed(steps), 1},
		{"steps of a run without", "/v2/runs/" + runs[1] + "/steps?", "stepId", nil, 1},
		{"steps of no run", "/v2/runs/wrun_x/steps?", "stepId", nil, 1},
		{"hooks", "/v2/hooks?", "hookId", hooks, 1},
		{"hooks, newest first", "/v2/hooks?limit=2&sortOrder=desc", "hookId", reversed(hooks), 3},
		{"hooks of a run", "/v2/hooks?limit=3&runId=" + runs[0], "hookId", hooks, 2},
		{"hooks of a run without", "/v2/hooks?runId=" + runs[1], "hookId", nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ids, pages := c.listed(t, tt.path, tt.key)
			check.Equal(t, "IDs", ids, tt.ids)
			check.Equal(t, "number of pages", pages, tt.pages)
		})
	}
	for _, path := range []string{
		"/v2/runs?cursor=x", "/v2/runs?cursor=1:", "/v2/runs/" + runs[0] + "/steps?cursor=x", "/v2/hooks?cursor=eid:1",
		"/v2/runs?limit=0", "/v2/hooks?limit=x",
	} {
		wantProblem(t, c.get(t, path), http.StatusBadRequest, "invalid_request")
	}
}

// TestUnknownValuesMakeClientsFallBack: a client repeats a request without a value that only later servers know, but only
// after this code (§1.5).
func TestUnknownValuesMakeClientsFallBack(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), current}
	id := c.startedRun(t)
	for _, path := range []string{
		"/v4/runs/" + id + "/events?remoteRefBehavior=eager", "/v4/runs/" + id + "/events?sortOrder=up",
		"/v4/runs/" + id + "/events/" + eventID(1) + "?remoteRefBehavior=eager",
		"/v4/events?correlationId=step_1&remoteRefBehavior=eager", "/v2/runs/" + id + "/status?remoteRefBehavior=eager",
		"/v2/runs?sortOrder=down", "/v2/runs?status=asleep", "/v2/runs?status=failed,asleep", "/v2/hooks?remoteRefBehavior=x",
		"/v2/analytics/runs?sortOrder=x", "/v2/analytics/runs?status=asleep",
		"/v2/analytics/runs/" + id + "/waits?status=asleep",
	} {
		wantProblem(t, c.get(t, path), http.StatusBadRequest, "validation-error")
	}
}

func TestListsHaveDefaultPageSizes(t *testing.T) { // §2.4
	t.Parallel()
	c := client{newServer(t), stable}
	var run string
	for range 21 {
		run = c.newRun(t)
	}
	for range 101 {
		id := newID("hook_")
		c.must(t, run, "hook_created", nil, field{"correlationId", id}, field{"hookToken", id})
	}
	for range 21 {
		c.must(t, run, "step_created", nil, stepMeta(newID("step_"))...)
	}
	for path, want := range map[string]int{"/v2/runs": 20, "/v2/hooks": 100, "/v2/runs/" + run + "/steps": 20} {
		page := c.get(t, path).cbor(t)
		if got := len(page["data"].([]any)); got != want || page["hasMore"] != true {
			t.Errorf("%s: got %d and hasMore %v, want %d and more", path, got, page["hasMore"], want)
		}
	}
}

func TestListedRunsMatchFilters(t *testing.T) { // endpoint 5
	t.Parallel()
	c := client{newServer(t), stable}
	var ids []string
	for _, name := range []string{"a", "a", "b"} {
		id := newID("wrun_")
		c.must(t, id, "run_created", []byte("devl[1]"), creation("workflow//"+name)...)
		ids = append(ids, id)
	}
	c.must(t, ids[1], "run_completed", []byte("devl[2]"))
	c.must(t, ids[2], "run_failed", nil, field{"error", []field{{"message", "boom"}}})
	c.must(t, ids[0], "attr_set", nil, field{"changes", []any{map[string]any{"key": "tier", "value": "gold"}}})
	for query, want := range map[string][]string{
		"workflowName=workflow%2F%2Fa": {ids[0], ids[1]},
		"status=pending":               {ids[0]},
		"status=failed":                {ids[2]},
		"status=failed&status=pending": {ids[0], ids[2]},
		"status=failed,pending":        {ids[0], ids[2]},
		"status=pending&attributes=%7B%22tier%22:%22gold%22%7D": {ids[0]},
		"status=failed&attributes=%7B%22tier%22:%22gold%22%7D":  nil,
		"status=cancelled&status=running":                       nil,
		"workflowName=workflow%2F%2Fa&status=completed":         {ids[1]},
		"workflowName=none":                                     nil,
	} {
		got, _ := c.listed(t, "/v2/runs?sortOrder=asc&"+query, "runId")
		check.Equal(t, query, got, want)
	}
}

// TestListsReturnTheSameAsSingleReads with payloads and without (§2.5).
func TestListsReturnTheSameAsSingleReads(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	id := c.startedRun(t)
	c.must(t, id, "step_created", []byte("devl[3]"), stepMeta("step_1")...)
	c.must(t, id, "step_failed", nil, stepMeta("step_1", field{"error", "boom"})...)
	c.must(t, id, "hook_created", []byte("devl[5]"), field{"correlationId", "hook_1"}, field{"hookToken", "t"})
	for _, refs := range []string{"?remoteRefBehavior=lazy", "?remoteRefBehavior=resolve"} {
		for list, single := range map[string]string{
			"/v2/runs":                  "/v2/runs/" + id,
			"/v2/runs/" + id + "/steps": "/v2/runs/" + id + "/steps/step_1",
		} {
			want := c.get(t, single+refs).cbor(t)
			got := c.get(t, list+refs).cbor(t)
			check.Equal(t, list+refs, got, map[string]any{"data": []any{want}, "cursor": nil, "hasMore": false})
			_, has := want["input"]
			check.Equal(t, fmt.Sprintf("%s: has input", single+refs), has, refs == "?remoteRefBehavior=resolve")
		}
	}
	hook := c.get(t, "/v2/hooks/hook_1").cbor(t)
	check.Equal(t, "metadata", hook["metadata"], any([]byte("devl[5]")))
	whole := c.get(t, "/v2/hooks?remoteRefBehavior=resolve").cbor(t)
	check.Equal(t, "hooks", whole["data"], any([]any{hook}))
	delete(hook, "metadata")
	lazy := c.get(t, "/v2/hooks?remoteRefBehavior=lazy").cbor(t)
	check.Equal(t, "lazy hooks", lazy["data"], any([]any{hook}))

	wantProblem(t, c.get(t, "/v2/runs/"+newID("wrun_")), http.StatusNotFound, "run_not_found")
	wantProblem(t, c.get(t, "/v2/hooks/hook_x"), http.StatusNotFound, "hook_not_found")
	wantProblem(t, c.get(t, "/v2/hooks/by-token?token=x"), http.StatusNotFound, "hook_not_found")
	wantProblem(t, c.get(t, "/v2/hooks/by-token"), http.StatusNotFound, "hook_not_found")
}

// TestPagesAreBoundedByPayloadSize, not only by the number of rows (§2.4).
func TestPagesAreBoundedByPayloadSize(t *testing.T) {
	t.Parallel()
	c := client{newServer(t), stable}
	large := bytes.Repeat([]byte("x"), 5<<20)
	id := c.startedRun(t)
	for i := range 5 {
		c.must(t, newID("wrun_"), "run_created", large, creation("w")...)
		c.must(t, id, "step_created", large, stepMeta(fmt.Sprintf("step_%d", i))...)
		c.must(t, id, "hook_created", large, field{"correlationId", fmt.Sprintf("hook_%d", i)},
			field{"hookToken", fmt.Sprint(i)})
	}
	for list, want := range map[string]int{
		"/v2/runs?workflowName=w": 5, "/v2/runs/" + id + "/steps?": 5, "/v2/hooks?": 5,
	} {
		lazy := c.get(t, list+"&remoteRefBehavior=lazy").cbor(t)["data"].([]any)
		check.Equal(t, fmt.Sprintf("%s: rows without payloads", list), len(lazy), want)
		var sizes []int
		cursor, rows := "", 0
		for {
			page := c.get(t, list+"&limit=100&remoteRefBehavior=resolve"+cursor).cbor(t)
			sizes = append(sizes, len(page["data"].([]any)))
			rows += sizes[len(sizes)-1]
			if page["hasMore"] == false {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(page["cursor"].(string))
		}
		if diff := cmp.Diff([]int{3, 2}, sizes); diff != "" || rows != want { // 15 MiB is a page, 20 MiB are not
			t.Errorf("%s: pages (-want +got):\n%s", list, diff)
		}
	}
}
