// Package conform checks whether a function or an SDK keeps to the function contract: see docs/conform.md.
// The runs are real ones of a server, whose calls come by a proxy that doubles and loses them. It imports the types of
// the API, and nothing else of the server.
package conform

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// pause is the time between requests for something that is to happen.
const pause = 50 * time.Millisecond

// Server is the API of the server.
type Server interface {
	// Do sends a request with a body, encoded as JSON unless it is nil, and decodes the answer unless into is nil.
	Do(ctx context.Context, method, path string, body, into any) error
}

// Result is what a check has found out.
type Result struct {
	// Check is the name of the check: that of a fault or a property, and of a workflow.
	Check string `json:"check"`
	// Failure is what the function did that it should not have done; empty if it has passed.
	Failure string `json:"failure,omitempty"`
	// Skipped is why the check was not made; empty if it was.
	Skipped string `json:"skipped,omitempty"`
}

// Check makes all checks of the function at an address, which a server must be able to call, and returns what they have
// found. A run may take as long as patience; calls whose answers are lost are repeated after some seconds. An error
// means that the checks could not be made.
func Check(ctx context.Context, s Server, function *url.URL, patience time.Duration) ([]Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &checker{server: s, patience: patience, name: "conform-" + strings.ToLower(rand.Text()[:8])}
	proxies, err := c.deploy(ctx, function)
	defer func() { c.remove(context.WithoutCancel(ctx), proxies) }()
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(proxies)*len(scenarios))
	var all sync.WaitGroup
	for i := range results {
		p, s := proxies[i/len(scenarios)], scenarios[i%len(scenarios)]
		all.Go(func() { results[i] = Result{Check: string(p.fault) + " " + s.workflow, Failure: c.play(ctx, p, s)} })
	}
	all.Wait()
	return append(results, c.repeat(ctx, proxies[0])...), ctx.Err()
}

type checker struct {
	server   Server
	patience time.Duration
	name     string // begins the names of deployments
}

// deploy registers the function once for each fault.
func (c *checker) deploy(ctx context.Context, function *url.URL) (proxies []*proxy, err error) {
	workflows := make([]string, len(scenarios))
	for i, s := range scenarios {
		workflows[i] = s.workflow
	}
	for _, f := range []fault{faultNone, faultDoubled, faultLost} {
		p, err := newProxy(ctx, f, function)
		if err != nil {
			return proxies, err
		}
		body := map[string]any{"url": p.url, "workflows": workflows}
		if err := c.server.Do(ctx, http.MethodPut, "/v1/deployments/"+c.deployment(p), body, nil); err != nil {
			return proxies, fmt.Errorf("register the function at the server: %w", err)
		}
		proxies = append(proxies, p)
	}
	return proxies, nil
}

func (c *checker) deployment(p *proxy) string { return c.name + "-" + string(p.fault) }

// remove removes the deployments. Those that it cannot remove, nobody calls.
func (c *checker) remove(ctx context.Context, proxies []*proxy) {
	for _, p := range proxies {
		_ = c.server.Do(ctx, http.MethodDelete, "/v1/deployments/"+c.deployment(p), nil, nil)
	}
}

// play makes a scenario, and returns what went wrong.
func (c *checker) play(ctx context.Context, p *proxy, s scenario) string {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	input, token := json.RawMessage(s.input), ""
	if s.act != nil {
		token = strings.ToLower(rand.Text())
		input = json.RawMessage(`"` + token + `"`)
	}
	var run api.Run
	err := c.server.Do(ctx, http.MethodPost, "/v1/runs", map[string]any{
		"workflow": s.workflow, "deployment": c.deployment(p), "input": input, "idempotencyKey": rand.Text(),
	}, &run)
	if err == nil && s.act != nil {
		err = s.act(ctx, c, token)
	}
	if err == nil {
		err = c.until(ctx, "the run has not ended", func() (bool, error) {
			err := c.server.Do(ctx, http.MethodGet, "/v1/runs/"+run.ID+"/wait?timeout=10s", nil, &run)
			return err == nil && !run.CompletedAt.IsZero(), err
		})
	}
	if err != nil {
		return c.explain(context.WithoutCancel(ctx), run.ID, err)
	}
	log, err := c.log(ctx, run.ID)
	if err != nil {
		return err.Error()
	}
	return s.check(run, log)
}

// until asks again until something is so, or the context ends.
func (c *checker) until(ctx context.Context, what string, is func() (bool, error)) error {
	for {
		ok, err := is()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, ctx.Err()) {
				err = nil
			}
			return errors.Join(errors.New(what), err)
		case <-time.After(pause):
		}
	}
}

// explain returns an error with what the server says of a run that does not go on, and cancels the run.
func (c *checker) explain(ctx context.Context, run string, err error) string {
	if run == "" {
		return err.Error()
	}
	said := err.Error()
	var why api.Explanation
	if c.server.Do(ctx, http.MethodGet, "/v1/runs/"+run+"/why", nil, &why) == nil {
		for _, r := range why.Reasons {
			said += "; " + r.Sentence
			if r.Error != nil {
				said += ": " + r.Error.Message
			}
		}
	}
	_ = c.server.Do(ctx, http.MethodPost, "/v1/runs/"+run+"/cancel", map[string]any{"reason": "a check failed"}, nil)
	return said
}

// log returns the events of a run. Those of the scenarios are few.
func (c *checker) log(ctx context.Context, run string) ([]api.Event, error) {
	var page api.Page[api.Event]
	err := c.server.Do(ctx, http.MethodGet, "/v1/runs/"+run+"/events?payloads=true&limit=1000", nil, &page)
	return page.Data, err
}

// repeat sends the calls of workflows again that have come without a fault, now that their runs have ended; and some
// whose signature is wrong.
func (c *checker) repeat(ctx context.Context, p *proxy) []Result {
	repeated := Result{Check: "repeated calls"}
	forged := Result{Check: "forged calls", Skipped: "the project has no signing key, so that no call is signed"}
	for run, calls := range p.ofWorkflows() {
		before, err := c.log(ctx, run)
		for _, again := range calls {
			if err == nil && repeated.Failure == "" {
				repeated.Failure = repeatCall(ctx, p, again)
			}
			if again.header.Get("Signature") != "" {
				forged.Skipped = ""
				forged.Failure = cmp.Or(forged.Failure, forge(ctx, p, again))
			}
		}
		after, readErr := c.log(ctx, run)
		if err := errors.Join(err, readErr); err != nil {
			repeated.Failure = cmp.Or(repeated.Failure, err.Error())
		} else if len(after) != len(before) {
			repeated.Failure = cmp.Or(repeated.Failure, fmt.Sprintf("run %s has %d events after them, and had %d", run,
				len(after), len(before)))
		}
	}
	return []Result{repeated, forged}
}

// repeatCall sends a call again, and returns why the answer is wrong. The same call has the same commands, unless it is
// refused because what it would write is not wanted any more. But results of steps may have been written before either
// answer.
func repeatCall(ctx context.Context, p *proxy, again call) string {
	got, err := p.send(ctx, again)
	switch {
	case err != nil:
		return err.Error()
	case got.status == http.StatusConflict || got.status == http.StatusPreconditionFailed:
		return ""
	case got.status != again.answer.status:
		return fmt.Sprintf("a call was answered with %d, and when it was repeated with %d", again.answer.status, got.status)
	}
	if was, is := commandsOf(again.answer.body), commandsOf(got.body); !sameCommands(was, is) {
		return fmt.Sprintf("a call was answered with the commands %q, and when it was repeated with %q", was, is)
	}
	return ""
}

// commandsOf returns the commands of an answer: their types and IDs, since results of steps may differ, in an order of
// its own, since steps that are executed at the same time end in any.
func commandsOf(body []byte) (list []string) {
	var answer struct{ Commands []struct{ Type, ID string } }
	_ = json.Unmarshal(body, &answer) // an answer that is none has no commands
	for _, c := range answer.Commands {
		list = append(list, strings.TrimSpace(c.Type+" "+c.ID))
	}
	slices.Sort(list)
	return list
}

// sameCommands compares the commands of two answers. Results of steps need not be in both.
func sameCommands(one, other []string) bool {
	without := func(list, results []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(c string) bool {
			return strings.HasPrefix(c, "recordStep ") && !slices.Contains(results, c)
		})
	}
	return slices.Equal(without(one, other), without(other, one))
}

// forge returns why the answer to a call is wrong if that is changed after it was signed, or has no signature.
func forge(ctx context.Context, p *proxy, c call) string {
	changed, unsigned := c, c
	changed.body = append(slices.Clone(c.body), ' ')
	unsigned.header = c.header.Clone()
	for _, name := range []string{"Signature", "Signature-Input", "Content-Digest"} {
		unsigned.header.Del(name)
	}
	for what, c := range map[string]call{"that was changed": changed, "without a signature": unsigned} {
		if got, err := p.send(ctx, c); err != nil {
			return err.Error()
		} else if got.status != http.StatusUnauthorized {
			return fmt.Sprintf("a call %s was answered with %d, and should be with 401", what, got.status)
		}
	}
	return ""
}
