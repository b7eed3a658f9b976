package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// TestPictures makes the pictures of docs/dashboard.md, in the folder that E2E_PICTURES names.
func TestPictures(t *testing.T) {
	folder := os.Getenv("E2E_PICTURES")
	if folder == "" {
		t.Skip("E2E_PICTURES names no folder")
	}
	t.Parallel()
	i := newInstallation(t, "", "STEPWELL_API_KEY=", "STEPWELL_OPEN=true")
	app := httptest.NewServer(studio{})
	t.Cleanup(app.Close)
	i.call("PUT", "/v1/deployments/shop", map[string]any{"url": app.URL, "workflows": []string{"order", "refund", "reminder"}}, nil)
	i.call("PUT", "/v1/deployments/legacy", map[string]any{"url": "http://127.0.0.1:1"}, nil)
	for n := range 24 {
		i.start("order", map[string]any{
			"key":        fmt.Sprintf("customer-%d", 40+n),
			"attributes": map[string]string{"customer": fmt.Sprint(40 + n), "tier": []string{"gold", "silver", "basic"}[n%3]},
		})
		if n%4 == 0 {
			i.start("refund", map[string]any{"input": map[string]any{"card": 4242 + n}, "attributes": map[string]string{"customer": fmt.Sprint(n)}})
		}
		if n%5 == 0 {
			i.start("reminder", map[string]any{"delay": "2h"})
		}
	}
	i.start("order", map[string]any{"deployment": "legacy", "key": "customer-7"})
	for n := range 2 {
		parked := i.start("refund", map[string]any{"input": map[string]any{"card": n}, "key": fmt.Sprintf("customer-%d", n)})
		i.exec(`UPDATE messages SET parked_at = now() - interval '3 hours', delivery_count = 64
			WHERE run_id = $1 AND lease = '' AND delivery_count > 0`, parked)
	}
	i.inventHour()
	harness.Eventually(t, "what the pages show is counted", func() bool {
		var wants struct{ Data []any }
		var stats struct{ CompleteTo time.Time }
		i.call("GET", "/v1/attention", nil, &wants)
		i.call("GET", "/v1/stats/runs?step=1m", nil, &stats)
		return len(wants.Data) == 3 && stats.CompleteTo.Unix() > 0
	})
	run := i.start("order", map[string]any{
		"key": "customer-77", "attributes": map[string]string{"customer": "77", "tier": "gold"}, "timeout": "24h",
	})
	harness.Eventually(t, "two failed attempts", func() bool {
		var list struct{ Data []any }
		i.call("GET", "/v1/runs/"+run+"/events?type=step_retrying", nil, &list)
		return len(list.Data) == 2
	})
	b := newTab(t, i.web)
	b.do(chromedp.EmulateViewport(1400, 800))
	for _, page := range []struct{ name, path, shows string }{
		{"run", "runs/" + run, "is tried again: attempt 3 of 5"}, // before its next attempt
		{"overview", "overview", "legacy cannot be reached"},
		{"runs", "runs", "customer-77"},
		{"failures", "failures", "card_declined"},
		{"queue", "queue", "the card service is down"},
	} {
		b.open("/ui/default/" + page.path)
		b.shows(page.shows)
		b.until("it is drawn", `!document.body.innerText.includes("Reading ")`)
		b.picture(filepath.Join(folder, page.name+".png"))
	}
}

// picture saves a picture of the page, when it has had two frames to be drawn, with at most 256 colours.
func (b *tab) picture(name string) {
	b.t.Helper()
	evaluate[chromedp.Void](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))`)
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	small := image.NewPaletted(full.Bounds(), commonColours(full))
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var file bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, small); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(name, file.Bytes(), 0o600); err != nil {
		b.t.Error(err)
	}
}

// commonColours returns up to 256 colours of a picture: the most frequent ones, of those that look alike only one.
func commonColours(of image.Image) color.Palette {
	counts := map[color.RGBA]int{}
	for y := of.Bounds().Min.Y; y < of.Bounds().Max.Y; y++ {
		for x := of.Bounds().Min.X; x < of.Bounds().Max.X; x++ {
			c := of.At(x, y)
			counts[color.RGBAModel.Convert(c).(color.RGBA)]++
		}
	}
	var chosen color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return cmp.Compare(counts[b], counts[a]) }) {
		if len(chosen) < 256 && !slices.ContainsFunc(chosen, func(k color.Color) bool { return alike(c, k.(color.RGBA)) }) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// alike reports whether one cannot tell two colours apart.
func alike(a, b color.RGBA) bool {
	near := func(a, b uint8) bool { return max(a, b)-min(a, b) <= 5 }
	return near(a.R, b.R) && near(a.G, b.G) && near(a.B, b.B)
}

// inventHour adds runs of the last hour to the statistics, so that the charts show something.
func (i *installation) inventHour() {
	i.exec(`
		INSERT INTO stats (project, width, metric, at, workflow, label, took, count)
		SELECT 'default', 1, metric, date_trunc('minute', now()) - n * interval '1 minute', workflow, 'shop', CASE WHEN took > 0 THEN took + (n * 13) % 3 ELSE 0 END,
			greatest(1, round(share * (9 + 5 * sin(n / 7.0) + (n * 7919) % 5)))
		FROM generate_series(1, 59) n, (VALUES
			('run_created', 'order', 0, 1.0), ('run_completed', 'order', 25, 0.7), ('run_completed', 'order', 28, 0.2),
			('run_completed', 'refund', 21, 0.2), ('run_started', 'order', 9, 1.0), ('run_started', 'order', 13, 0.1)
		) AS m(metric, workflow, took, share)
		UNION ALL
		SELECT 'default', 1, 'run_failed', date_trunc('minute', now()) - n * interval '1 minute', 'refund', 'shop', 20, 1 + n % 4
		FROM generate_series(3, 17) n
		ON CONFLICT DO NOTHING`)
}

// studio is the function of the pictures' runs.
type studio struct{}

func (studio) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Type string
		Run  struct {
			ID, Workflow string
			Key          string
			Input        struct{ Card int }
		}
		Step   struct{ ID string }
		Events []struct{ Type string }
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if call.Type == "step" && call.Run.Key == "customer-77" {
		time.Sleep(time.Duration(400+100*int(call.Step.ID[len(call.Step.ID)-1]%8)) * time.Millisecond) // it works
	}
	slow := call.Run.Key == "customer-77"
	switch {
	case call.Type == "step" && slow && call.Step.ID == "charge":
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{"error": {"code": "busy", "message": "The bank is busy."}}`)
	case call.Type == "step":
		_, _ = fmt.Fprint(w, `{"output": 1}`)
	case call.Run.Workflow == "refund" && call.Run.Key != "":
		http.Error(w, "the card service is down", http.StatusBadGateway)
	case call.Run.Workflow == "refund":
		_, _ = fmt.Fprintf(w, `{"commands": [{"type": "fail", "error": {"code": "card_declined", "message": "The card that ends in %d was declined."}}]}`, call.Run.Input.Card)
	case len(call.Events) <= 2:
		reserve := strings.ReplaceAll(strings.Join(items(12), ","), "item", "reserve")
		more := ""
		if slow {
			more = `, {"type": "openHook", "id": "approval"}`
		}
		_, _ = fmt.Fprintf(w, `{"commands": [{"type": "runStep", "id": "charge", "retry": {"backoff": "3s", "factor": 8}}, %s%s]}`, reserve, more)
	case slow || areOpen(call.Events):
		_, _ = fmt.Fprint(w, `{"commands": []}`)
	default:
		_, _ = fmt.Fprint(w, `{"commands": [{"type": "complete"}]}`)
	}
}

// areOpen reports whether steps have not ended.
func areOpen(events []struct{ Type string }) bool {
	n := 0
	for _, e := range events {
		switch e.Type {
		case "step_created":
			n++
		case "step_completed":
			n--
		}
	}
	return n > 0
}
