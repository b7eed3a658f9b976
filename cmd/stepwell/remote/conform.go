package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/stepwell-dev/stepwell/cmd/stepwell/conform"
)

type conformCmd struct {
	Function string        `arg:"" name:"url" help:"The function's URL."`
	Timeout  time.Duration `default:"1m" help:"How long a run may take."`
}

// Run checks the function.
func (c conformCmd) Run(ctx context.Context, s *Session) error {
	function, err := url.Parse(c.Function)
	if err != nil || function.Host == "" {
		return usageErrorf("invalid address %q of a function: want one such as http://127.0.0.1:3000", c.Function)
	}
	results, err := conform.Check(ctx, apiOf{s.client}, function, c.Timeout)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	failed := 0
	for _, r := range results {
		state := "ok"
		switch {
		case r.Failure != "":
			state = "FAILED"
			failed++
		case r.Skipped != "":
			state = "skipped"
		}
		if s.json {
			raw, _ := json.Marshal(r) // it has only texts
			err = s.printJSON(raw)
		} else {
			text := fmt.Sprintf("%-8s%s", state, r.Check)
			if why := r.Failure + r.Skipped; why != "" {
				text += ": " + why
			}
			_, err = s.Stdout.Write([]byte(string(escapeLines(text)) + "\n"))
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks have failed", failed, len(results))
	}
	return nil
}

// apiOf is the API of a client's server.
type apiOf struct{ *client }

// Do implements [conform.Server].
func (a apiOf) Do(ctx context.Context, method, path string, body, into any) error {
	if into == nil {
		_, err := a.do(ctx, method, path, body)
		return err
	}
	_, err := a.call(ctx, method, path, body, into)
	return err
}
