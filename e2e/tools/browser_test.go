package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

// browsers are the names of Chromium and compatible browsers.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium"}

// browserProgram finds a browser.
func browserProgram(t *testing.T) string {
	t.Helper()
	for _, name := range browsers {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	t.Fatal("The dashboard tests need Chromium, which was not found. Install it: " +
		"on Debian with `sudo apt-get install chromium`, on Fedora with `sudo dnf install chromium`, " +
		"on macOS with `brew install --cask google-chrome`.")
	return ""
}

// browser is a headless Chromium, controlled through two pipes with JSON messages that end in a zero byte.
type browser struct {
	in   io.WriteCloser
	out  *bufio.Reader
	last int // ID of the last call
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	args := []string{"--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
		"--window-size=1400,1000", "--user-data-dir=" + t.TempDir()}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium's sandbox does not work as root
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*timeout)
	cmd := exec.CommandContext(ctx, browserProgram(t), args...)
	read, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env, cmd.ExtraFiles = cleanEnv(), []*os.File{read, write}
	harness.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = read.Close(), write.Close() // the browser has its own copies
	b := &browser{in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		defer cancel()
		b.call(t, "", "Browser.close", nil, nil)
		_ = cmd.Wait() // its exit status does not matter
		_, _ = in.Close(), out.Close()
	})
	return b
}

// call calls a method of the browser, or of one of its pages.
func (b *browser) call(t *testing.T, session, method string, params map[string]any, result any) {
	t.Helper()
	b.last++
	request := map[string]any{"id": b.last, "method": method, "params": params}
	if session != "" {
		request["sessionId"] = session
	}
	message, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.in.Write(append(message, 0)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		message, err := b.out.ReadBytes(0)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(bytes.TrimSuffix(message, []byte{0}), &answer); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if answer.ID != b.last {
			continue // an event
		}
		if answer.Error != nil {
			t.Fatalf("%s: %s", method, answer.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

// tab is one page of the browser.
type tab struct {
	*browser
	session string
}

func (b *browser) open(t *testing.T, url string) *tab {
	t.Helper()
	var target struct{ TargetID string }
	b.call(t, "", "Target.createTarget", map[string]any{"url": url}, &target)
	var attached struct{ SessionID string }
	b.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	return &tab{b, attached.SessionID}
}

// readPage returns the page's text and its ARIA labels: the bars of a timeline show their text only if they are wide
// enough.
const readPage = `(document.body?.innerText ?? '') + '\n' +
	Array.from(document.querySelectorAll('[aria-label]'), (element) => element.ariaLabel).join('\n')`

// text returns the text of the page.
func (p *tab) text(t *testing.T) string {
	t.Helper()
	var got struct{ Result struct{ Value string } }
	p.call(t, p.session, "Runtime.evaluate", map[string]any{"expression": readPage}, &got)
	return got.Result.Value
}

// want waits until the page shows all texts, each at least as often as it is listed. If E2E_SCREENSHOTS is set, it
// saves a screenshot to that folder.
func (p *tab) want(t *testing.T, name string, texts ...string) {
	t.Helper()
	seen, times := "", map[string]int{}
	for _, text := range texts {
		times[text]++
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page %s showed:\n%s", name, seen)
		}
	})
	eventually(t, fmt.Sprintf("the page %s shows %q", name, texts), func() bool {
		seen = p.text(t)
		for text, n := range times {
			if strings.Count(seen, text) < n {
				return false
			}
		}
		return true
	})
	p.save(t, name)
}

func (p *tab) save(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("E2E_SCREENSHOTS")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	p.call(t, p.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

// dashboardPages opens the list of runs and the page of one run in a browser.
func dashboardPages(t *testing.T, d *dashboard) {
	b := newBrowser(t)
	var texts []string
	for _, r := range d.runs {
		texts = append(texts, r.Workflow, r.ID, strings.ToUpper(r.Status[:1])+r.Status[1:])
	}
	b.open(t, d.url).want(t, d.name+"-runs", texts...)
	done := d.run(t, "sequential")
	b.open(t, d.url+"/run/"+done.ID).want(t, d.name+"-run", "sequential", "Completed", "add", "add", "add")
}
