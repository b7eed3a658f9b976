package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPagesDoNotGetIntoAnOpenServer: a browser on the machine shows pages of anybody, and any of them can have it send
// requests here.
func TestPagesDoNotGetIntoAnOpenServer(t *testing.T) {
	t.Parallel()
	here, everywhere := Options{Open: true, Local: true}, Options{Open: true}
	for name, tt := range map[string]struct {
		options      Options
		method, host string
		header       []string
		status       int
	}{
		"no browser":                   {here, "GET", "127.0.0.1:8788", nil, 200},
		"no browser, writes":           {here, "POST", "127.0.0.1:8788", nil, 200},
		"by name":                      {here, "POST", "localhost:8788", nil, 200},
		"by another name":              {here, "POST", "stepwell.localhost:8788", nil, 200},
		"by its name in capitals":      {here, "POST", "LOCALHOST", nil, 200},
		"by IPv6":                      {here, "POST", "[::1]:8788", nil, 200},
		"by IPv6 without a port":       {here, "POST", "[::1]", nil, 200},
		"from a container":             {here, "POST", "host.docker.internal:8788", nil, 200},
		"rebound name":                 {here, "GET", "attacker.example:8788", nil, 403},
		"rebound name, writes":         {here, "POST", "attacker.example:8788", nil, 403},
		"name that looks like ours":    {here, "GET", "localhost.attacker.example", nil, 403},
		"address that is a name":       {here, "GET", "127.0.0.1.attacker.example:8788", nil, 403},
		"no name":                      {here, "GET", "", nil, 403},
		"told to be open, by any name": {everywhere, "GET", "stepwell.example:8788", nil, 200},
		"page of another site":         {here, "POST", "127.0.0.1:8788", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"page of another port":         {here, "POST", "127.0.0.1:8788", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"page of an old browser":       {here, "POST", "127.0.0.1:8788", []string{"Origin", "https://attacker.example"}, 403},
		"page without an origin":       {here, "POST", "127.0.0.1:8788", []string{"Origin", "null"}, 403},
		"told to be open, page":        {everywhere, "POST", "stepwell.example", []string{"Origin", "https://attacker.example"}, 403},
		"page of ours":                 {here, "POST", "127.0.0.1:8788", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		"page of ours, old browser":    {here, "POST", "127.0.0.1:8788", []string{"Origin", "http://127.0.0.1:8788"}, 200},
		"page with a key": {
			here, "POST", "attacker.example", []string{"Sec-Fetch-Site", "cross-site", "Authorization", "Bearer sw_write"}, 200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := newRing()
			k := keys.keys["sw_read"]
			k.Role = "write"
			keys.keys["sw_write"] = k
			tt.options.Keys = keys
			path := map[string]string{http.MethodGet: "/v1/read", http.MethodPost: "/v1/sub/write"}[tt.method]
			r := httptest.NewRequest(tt.method, path, nil)
			r.Host = tt.host
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			w := httptest.NewRecorder()
			served(tt.options).ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}
