package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOpenServerRejectsCrossSiteRequests checks that a page in a browser on the machine cannot use an open server.
func TestOpenServerRejectsCrossSiteRequests(t *testing.T) {
	t.Parallel()
	local, public := Options{Open: true, Local: true}, Options{Open: true}
	for name, tt := range map[string]struct {
		options      Options
		method, host string
		header       []string
		status       int
	}{
		"not a browser":                  {local, "GET", "127.0.0.1:8788", nil, 200},
		"not a browser, writes":          {local, "POST", "127.0.0.1:8788", nil, 200},
		"by name":                        {local, "POST", "localhost:8788", nil, 200},
		"by another name":                {local, "POST", "stepwell.localhost:8788", nil, 200},
		"by its name in capitals":        {local, "POST", "LOCALHOST", nil, 200},
		"by IPv6":                        {local, "POST", "[::1]:8788", nil, 200},
		"by IPv6 without a port":         {local, "POST", "[::1]", nil, 200},
		"from a container":               {local, "POST", "host.docker.internal:8788", nil, 200},
		"rebound name":                   {local, "GET", "attacker.example:8788", nil, 403},
		"rebound name, writes":           {local, "POST", "attacker.example:8788", nil, 403},
		"name that resembles ours":       {local, "GET", "localhost.attacker.example", nil, 403},
		"name that resembles an address": {local, "GET", "127.0.0.1.attacker.example:8788", nil, 403},
		"no host":                        {local, "GET", "", nil, 403},
		"explicitly open, by any name":   {public, "GET", "stepwell.example:8788", nil, 200},
		"page of another site":           {local, "POST", "127.0.0.1:8788", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"page of another port":           {local, "POST", "127.0.0.1:8788", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"page of an old browser":         {local, "POST", "127.0.0.1:8788", []string{"Origin", "https://attacker.example"}, 403},
		"page without an origin":         {local, "POST", "127.0.0.1:8788", []string{"Origin", "null"}, 403},
		"explicitly open, page":          {public, "POST", "stepwell.example", []string{"Origin", "https://attacker.example"}, 403},
		"rebound name, replaces":         {local, "PUT", "attacker.example:8788", nil, 403},
		"rebound name, page replaces":    {local, "PUT", "attacker.example:8788", []string{"Origin", "http://attacker.example:8788"}, 403},
		"explicitly open, replaces":      {public, "PUT", "stepwell.example:8788", nil, 200},
		"explicitly open, rebound name": {
			public, "PUT", "attacker.example:8788", []string{"Origin", "http://attacker.example:8788"}, 403,
		},
		"explicitly open, rebound name over https": {
			public, "PUT", "attacker.example", []string{"Sec-Fetch-Site", "same-origin"}, 403,
		},
		"explicitly open, page of an address": {
			public, "PUT", "10.0.0.1:8788", []string{"Origin", "http://10.0.0.1:8788"}, 200,
		},
		"same-origin page":              {local, "POST", "127.0.0.1:8788", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		"same-origin page, old browser": {local, "POST", "127.0.0.1:8788", []string{"Origin", "http://127.0.0.1:8788"}, 200},
		"page with a key": {
			local, "POST", "attacker.example", []string{"Sec-Fetch-Site", "cross-site", "Authorization", "Bearer sw_write"}, 200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := newKeyStore()
			k := keys.keys["sw_read"]
			k.Role = "write"
			keys.keys["sw_write"] = k
			tt.options.Keys = keys
			path := map[string]string{http.MethodGet: "/v1/read", http.MethodPost: "/v1/sub/write", http.MethodPut: "/v1/sub/replace"}[tt.method]
			r := httptest.NewRequest(tt.method, path, nil)
			r.Host = tt.host
			for i := 0; i < len(tt.header); i += 2 {
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			w := httptest.NewRecorder()
			newServer(tt.options).ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
		})
	}
}
