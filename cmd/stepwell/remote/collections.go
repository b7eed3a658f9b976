package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

type collectionsCmd struct {
	List  listCollectionsCmd `cmd:"" help:"List the runs that collect starts."`
	Show  showCollectionCmd  `cmd:"" help:"Show a run that collects starts, and why it has not started."`
	Flush flushCollectionCmd `cmd:"" help:"Start the run of a collection now."`
	Drop  dropCollectionCmd  `cmd:"" help:"Drop a collection with its starts; its run will never start."`
}

// collection is a run that has not started because it collects starts.
type collection struct {
	ID, Workflow, Deployment, Key, Timeout string

	Count, Bytes           int64
	FirstAt, LastAt, DueAt time.Time
	Debounce               *struct{ Key, Quiet, Max, Keep string }
	Batch                  *struct {
		Key, Wait   string
		Size, Bytes int64
	}
	Why []struct{ Text string }
}

// rule says how the starts are collected.
func (c collection) rule() string {
	switch {
	case c.Debounce != nil:
		return fmt.Sprintf("debounce %s, max %s, keep %s", c.Debounce.Quiet, c.Debounce.Max, c.Debounce.Keep)
	case c.Batch != nil:
		return fmt.Sprintf("batch of %d, wait %s, bytes %d", c.Batch.Size, c.Batch.Wait, c.Batch.Bytes)
	default:
		return ""
	}
}

// key returns the key that the starts have in common.
func (c collection) key() string {
	switch {
	case c.Debounce != nil:
		return c.Debounce.Key
	case c.Batch != nil:
		return c.Batch.Key
	default:
		return ""
	}
}

var collectionColumns = []column[collection]{
	{"RUN", func(c collection) any { return c.ID }},
	{"WORKFLOW", func(c collection) any { return c.Workflow }},
	{"RULE", func(c collection) any { return c.rule() }},
	{"KEY", func(c collection) any { return c.key() }},
	{"STARTS", func(c collection) any { return c.Count }},
	{"DUE", func(c collection) any { return c.DueAt }},
}

type listCollectionsCmd struct{ paging }

// Run lists the collections.
func (c listCollectionsCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("collections"), nil, c.paging, collectionColumns)
}

// collectionID is the argument that names a collection.
type collectionID struct {
	ID string `arg:"" help:"The ID of the run."`
}

type showCollectionCmd struct{ collectionID }

// Run prints the collection.
func (c showCollectionCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("collections", c.ID), nil, func(g collection) []field {
		fields := []field{
			{"run", g.ID}, {"workflow", g.Workflow}, {"deployment", g.Deployment}, {"run key", g.Key}, {"timeout", g.Timeout},
			{"rule", g.rule()}, {"key", g.key()}, {"starts", g.Count}, {"bytes", g.Bytes}, {"first", g.FirstAt},
			{"last", g.LastAt}, {"due", g.DueAt},
		}
		for _, r := range g.Why {
			fields = append(fields, field{"why", r.Text})
		}
		return fields
	})
}

type flushCollectionCmd struct{ collectionID }

// Run starts the run, and prints its ID.
func (c flushCollectionCmd) Run(ctx context.Context, s *Session) error {
	var r run
	raw, err := s.client.call(ctx, http.MethodPost, path("collections", c.ID, "flush"), nil, &r)
	if err != nil {
		return err
	}
	return s.printResult(raw, "%s", r.ID)
}

type dropCollectionCmd struct{ collectionID }

// Run drops the collection.
func (c dropCollectionCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("collections", c.ID))
}

// collectFlags are the flags that make one run of several starts.
type collectFlags struct {
	Debounce map[string]string `mapsep:"," xor:"collect" placeholder:"quiet=10s,key=KEY" help:"${debounce}"`
	Batch    map[string]string `mapsep:"," xor:"collect" placeholder:"size=100,wait=1m" help:"${batch}"`
}

// addTo adds the flags to the body of a request. Numbers become numbers; the server checks the rest.
func (f collectFlags) addTo(body jsonBody) jsonBody {
	for name, flags := range map[string]map[string]string{"debounce": f.Debounce, "batch": f.Batch} {
		if len(flags) == 0 {
			continue
		}
		rule := jsonBody{}
		for field, text := range flags {
			rule[field] = text
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && (field == "size" || field == "bytes") {
				rule[field] = n
			}
		}
		body[name] = rule
	}
	return body
}
