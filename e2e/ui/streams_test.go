package ui

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestAFollowedStreamComesByItself: what is written to a stream is shown without the page asking for it.
func TestAFollowedStreamComesByItself(t *testing.T) {
	harness.SkipIfShort(t)
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	run := i.start("reminder", nil)
	i.wait(run, "wait_created")
	write := func(text, done string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
			i.server+"/sdk/v2/runs/"+run+"/stream/strm_letters", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Stream-Done", done)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 300 {
			t.Fatalf("write a stream: %s", resp.Status)
		}
	}
	write("Once upon ", "")
	b := newTab(t, i.web)
	m := b.measure()
	b.open("/ui/default/runs/" + run + "/streams")
	b.shows("Once upon")
	for n := 1; ; n++ { // until the connection stands, the page may ask
		m.reset()
		write("a", "")
		b.until("what was written", `document.querySelector(".stream pre")?.textContent === "Once upon `+strings.Repeat("a", n)+`"`)
		asked := m.asked()
		if !slices.ContainsFunc(asked, func(r string) bool { return strings.Contains(r, "/streams/strm_letters?") }) {
			break
		}
		if n == 10 {
			t.Fatalf("the page asks for %q", asked)
		}
	}
	write(" time", "true")
	b.shows("a time", "closed")
}
