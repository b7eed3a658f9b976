package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

// TestSearch finds runs by the title of their workflow, their key and the values of their attributes.
func TestSearch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const long = "workflow//./workflows/order//placeOrder"
	a.driven(t, long, data(func(d *entities.EventData) { d.Attributes = map[string]string{"order": "12345"} }))
	a.driven(t, "refund", data(func(d *entities.EventData) { d.Attributes = map[string]string{"of": "12345", "tier": "gold"} }))
	a.driven(t, "refund", data(func(d *entities.EventData) { d.UniqueKey = "12345" }))
	const searched = `,"attributes":{"searched":3,"of":3,"atLeast":false},"workflows":{"searched":2,"of":2,"atLeast":false}}`
	for text, want := range map[string]string{
		"placeorder": `{"data":[{"kind":"workflow","name":"` + long + `","title":"placeOrder"}]`,
		"%2012345%20": `{"data":[{"kind":"key","name":"12345","title":"12345"},{"kind":"attribute","name":"of","title":"of=12345"},
			{"kind":"attribute","name":"order","title":"order=12345"}]`,
		"1234": `{"data":[]`,
	} {
		same(t, text, want+searched, any(a.get(t, "/v1/search?text="+text)))
	}
	for _, text := range []string{"", strings.Repeat("x", 1025)} {
		a.wantRejected(t, http.MethodGet, "/v1/search?text="+text, "", http.StatusBadRequest, "invalid_request")
	}
}
