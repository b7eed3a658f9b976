package rest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/queue/signing/signingtest"
)

// TestRotateSigningKeys rotates a signing key.
func TestRotateSigningKeys(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const path = "/v1/signing-keys"
	same(t, "none", `{"data":[]}`, a.get(t, path))
	var ids, secrets []string
	for range 2 {
		status, key := a.do(t, http.MethodPost, path, "")
		id, _ := key["id"].(string)
		secret, _ := key["secret"].(string)
		if _, err := signingtest.Parse(secret); status != http.StatusCreated || err != nil || !strings.HasPrefix(id, "skey_") {
			t.Fatalf("create: got %d %v: %v", status, key, err)
		}
		ids, secrets = append(ids, id), append(secrets, secret)
	}
	if ids[0] == ids[1] || secrets[0] == secrets[1] {
		t.Errorf("got %v, %v", ids, secrets)
	}
	a.wantRejected(t, http.MethodPost, path, "", http.StatusConflict, "too_many_signing_keys")
	slices.Sort(ids) // they are of the same millisecond
	listed := func(id string) string { return `{"id":"` + id + `","createdAt":"` + at0 + `"}` }
	same(t, "list", `{"data":[`+listed(ids[0])+`,`+listed(ids[1])+`]}`, a.get(t, path)) // and no secret
	a.send(t, http.MethodDelete, path+"/"+ids[0], "", http.StatusNoContent)
	a.wantRejected(t, http.MethodDelete, path+"/"+ids[0], "", http.StatusNotFound, "signing_key_not_found")
	a.wantRejected(t, http.MethodDelete, path+"/a%20b", "", http.StatusBadRequest, "invalid_request")
	same(t, "list at last", `{"data":[`+listed(ids[1])+`]}`, a.get(t, path))
}
