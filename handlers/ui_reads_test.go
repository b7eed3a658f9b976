package handlers

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/admin"
)

// readTogether sends reads of a project in one request, and returns their statuses and bodies.
func (d *dashboard) readTogether(project string, paths []string, header ...string) (statuses []int, bodies []string) {
	d.t.Helper()
	w := d.send(http.MethodGet, "/ui/-/reads/"+project+"?"+url.Values{"read": paths}.Encode(), "", header...)
	if w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox") {
		d.t.Fatalf("got %d %s %v", w.Code, w.Body, w.Header())
	}
	var text io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		var err error
		if text, err = gzip.NewReader(w.Body); err != nil {
			d.t.Fatal(err)
		}
	}
	data, err := io.ReadAll(text)
	if err != nil {
		d.t.Fatal(err)
	}
	statuses, bodies = make([]int, len(paths)), make([]string, len(paths))
	for line := range bytes.Lines(data) {
		var answer struct {
			N, Status int
			Body      json.RawMessage
		}
		if err := json.Unmarshal(line, &answer); err != nil || statuses[answer.N] != 0 {
			d.t.Fatalf("%v: %s", err, line)
		}
		statuses[answer.N], bodies[answer.N] = answer.Status, string(answer.Body)
	}
	return statuses, bodies
}

// TestReadsTogetherAreThoseAlone: reads in one request are answered as each by itself.
func TestReadsTogetherAreThoseAlone(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	_, key := d.mint("shop", admin.RoleMetadata)
	d.signIn(key)
	paths := []string{
		"/v1/runs?limit=1&order=asc", "/v1/runs/count", "/v1/keys", "/v1/runs/wrun_none", "/v1/runs?limit=x", "/v1/nothing",
		"/v1/openapi.json", "/v1/stats/now",
	}
	for _, encoding := range []string{"", "gzip"} {
		statuses, bodies := d.readTogether("shop", paths, "Accept-Encoding", encoding)
		for n, path := range paths {
			alone := d.send(http.MethodGet, "/ui/shop"+path, "")
			if statuses[n] != alone.Code {
				t.Errorf("%s: got %d %s, alone %d %s", path, statuses[n], bodies[n], alone.Code, alone.Body)
			}
			var a, b any
			if json.Unmarshal([]byte(bodies[n]), &a) != nil || json.Unmarshal(alone.Body.Bytes(), &b) != nil || !sameShape(a, b) {
				t.Errorf("%s: got %s, alone %s", path, bodies[n], alone.Body)
			}
		}
	}
	if statuses, _ := d.readTogether("default", paths[:1]); statuses[0] != 401 {
		t.Errorf("another project: got %d, want 401", statuses[0])
	}
}

// sameShape reports whether two values of JSON have the same members: those of errors name their requests.
func sameShape(a, b any) bool {
	x, isObject := a.(map[string]any)
	y, both := b.(map[string]any)
	if !isObject || !both || len(x) != len(y) {
		return isObject == both && !isObject
	}
	for name := range x {
		if _, ok := y[name]; !ok || !sameShape(x[name], y[name]) {
			return false
		}
	}
	return true
}

// TestReadsTogetherAreFewAndOfTheAPI: one request is neither many, nor a way to anything but what reads JSON.
func TestReadsTogetherAreFewAndOfTheAPI(t *testing.T) {
	t.Parallel()
	d := newDashboard(t, nil)
	d.signIn(environmentKey)
	for _, paths := range [][]string{
		nil, strings.Split(strings.Repeat("/v1/runs ", 17), " ")[:17], {"/v1"}, {"v1/runs"}, {"/sdk/v1/runs"},
		{"/v1/runs", "http://stepwell.example/v1/runs"}, {"/v1/%zz"},
	} {
		w := d.send(http.MethodGet, "/ui/-/reads/default?"+url.Values{"read": paths}.Encode(), "")
		if w.Code != 400 {
			t.Errorf("%q: got %d %s, want 400", paths, w.Code, w.Body)
		}
	}
	statuses, bodies := d.readTogether("default", []string{"/v1/runs", "/v1/live?topics=true", "/v1/../../-/reads/default?read=/v1/runs"})
	if statuses[0] != 200 || statuses[1] != 406 || bodies[1] != "null" || statuses[2] != 404 {
		t.Errorf("got %v %q", statuses, bodies)
	}
	if w := d.send(http.MethodPost, "/ui/-/reads/default?read=/v1/runs", "{}"); w.Code != 404 {
		t.Errorf("POST: got %d, want 404", w.Code)
	}
}
