package rest_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog"
	"github.com/stepwell-dev/stepwell/migrations/testdb/check"
)

// object is a decoded JSON object.
type object = map[string]any

// at0 is t0 in the API's form.
const at0 = "2026-11-21T01:41:43.197Z"

var lastRunID atomic.Uint64

// newRunID returns an ID that sorts after earlier ones.
func newRunID() entities.RunID {
	var u ulid.ULID
	if err := u.SetTime(ulid.Timestamp(t0)); err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint64(u[8:], lastRunID.Add(1))
	return entities.RunID("wrun_" + u.String())
}

// event appends an event to a run.
func (a api) event(t *testing.T, id entities.RunID, typ entities.EventType, change ...func(*eventlog.Request)) {
	t.Helper()
	r := eventlog.Request{RunID: id, Type: typ, SpecVersion: 3}
	for _, c := range change {
		c(&r)
	}
	check.Value(a.log.Append(t.Context(), entities.DefaultProject, r))(t)
}

// on sets the step, hook or wait of an event.
func on(correlationID string) func(*eventlog.Request) {
	return func(r *eventlog.Request) { r.CorrelationID = correlationID }
}

// with sets the payload of an event.
func with(payload string) func(*eventlog.Request) {
	return func(r *eventlog.Request) { r.Payload = []byte(payload) }
}

// data changes the data of an event.
func data(change func(*entities.EventData)) func(*eventlog.Request) {
	return func(r *eventlog.Request) { change(&r.Data) }
}

// sdkRun creates a run as a client of the Workflow SDK does.
func (a api) sdkRun(t *testing.T, workflow string, change ...func(*eventlog.Request)) entities.RunID {
	t.Helper()
	id := newRunID()
	a.event(t, id, entities.EventRunCreated, append([]func(*eventlog.Request){func(r *eventlog.Request) {
		r.Payload = []byte("devl\xffopaque")
		r.Data.DeploymentID, r.Data.WorkflowName = "shop", workflow
	}}, change...)...)
	return id
}

// driven creates a run that the server drives.
func (a api) driven(t *testing.T, workflow string, change ...func(*eventlog.Request)) entities.RunID {
	t.Helper()
	r := eventlog.Request{
		RunID: newRunID(), Type: entities.EventRunCreated, SpecVersion: entities.SpecDriven, Payload: []byte(`{"n":7}`),
		Data: entities.EventData{Driver: entities.DriverServer, DeploymentID: "shop", WorkflowName: workflow},
	}
	for _, c := range change {
		c(&r)
	}
	if _, _, err := a.log.Start(t.Context(), entities.DefaultProject, r); err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

// get expects status 200.
func (a api) get(t *testing.T, path string) object {
	t.Helper()
	return a.send(t, http.MethodGet, path, "", http.StatusOK)
}

// all returns the items of a list and reads it in pages.
func (a api) all(t *testing.T, path string, limit string) []object {
	t.Helper()
	var items []object
	query := url.Values{"limit": {limit}}
	for range 50 {
		u := check.Value(url.Parse(path))(t)
		q := u.Query()
		for key, values := range query {
			q[key] = values
		}
		u.RawQuery = q.Encode()
		answer := a.get(t, u.String())
		for _, item := range answer["data"].([]any) {
			items = append(items, item.(object))
		}
		cursor, ok := answer["cursor"].(string)
		if !ok {
			return items
		}
		query.Set("cursor", cursor)
	}
	t.Fatalf("%s: no end after %d items", path, len(items))
	return nil
}

// ids returns the IDs of items.
func ids(items []object) []entities.RunID {
	list := []entities.RunID{}
	for _, item := range items {
		list = append(list, entities.RunID(item["id"].(string)))
	}
	return list
}

// same compares a value with wanted JSON.
func same(t *testing.T, what, want string, got any) {
	t.Helper()
	var wanted any
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	check.Equal(t, what, got, wanted)
}

func pointer[T any](v T) *T { return &v }

var later = t0.Add(time.Hour)
