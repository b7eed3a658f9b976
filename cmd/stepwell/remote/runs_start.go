package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// jsonFlag is a JSON value, @FILE, or - for standard input.
type jsonFlag string

// read returns the JSON value, or nil if the flag is not set.
func (f jsonFlag) read(s *Session, flag string) (json.RawMessage, error) {
	data := []byte(f)
	var err error
	switch name, isFile := strings.CutPrefix(string(f), "@"); {
	case f == "":
		return nil, nil
	case f == "-":
		data, err = io.ReadAll(s.Stdin)
	case isFile:
		data, err = os.ReadFile(name) //nolint:gosec // the user names it
	}
	if err != nil {
		return nil, usageErrorf("%s: %w", flag, err)
	}
	var value json.RawMessage
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, usageErrorf(`%s is not JSON: %w; write a string as '"text"', a file as @FILE, standard input as -`,
			flag, err)
	}
	return bytes.TrimSpace(data), nil
}

// jsonBody is the body of a request.
type jsonBody map[string]any

// omitZero removes the fields with zero values, those of flags that are not set.
func (b jsonBody) omitZero() jsonBody {
	maps.DeleteFunc(b, func(_ string, value any) bool { return reflect.ValueOf(value).IsZero() })
	return b
}

// waitFlags are the flags that make a command wait for the run it starts.
type waitFlags struct {
	Wait        bool          `field:"-" help:"Wait until the run has ended, as runs wait does."`
	WaitTimeout time.Duration `field:"-" placeholder:"TIME" help:"Wait at most this long, such as 5m."`
}

// start starts a run, prints its ID and, if the flags say so, waits for the run.
func (f waitFlags) start(ctx context.Context, s *Session, path string, body jsonBody) error {
	var r api.Run
	raw, err := s.client.call(ctx, http.MethodPost, path, body, &r)
	if err != nil {
		return err
	}
	if r.ForkOf != nil && againText(r.ForkOf.Steps, r.ForkOf.Children) != "" {
		s.note("fork of %s", forkText(r.ForkOf))
	}
	if !f.Wait && f.WaitTimeout == 0 {
		return s.printResult(raw, "%s", r.ID)
	}
	s.note("%s", r.ID)
	return waitRunCmd{ID: r.ID, Timeout: f.WaitTimeout}.Run(ctx, s)
}

type startRunCmd struct {
	Workflow       string            `arg:"" optional:"" field:"workflow" help:"The name of the workflow; not with --catalog."`
	Deployment     string            `short:"d" placeholder:"ID" help:"${target}"`
	Input          jsonFlag          `short:"i" placeholder:"JSON" help:"The workflow's input: ${json}."`
	Key            string            `placeholder:"KEY" help:"A key that is unique among the workflow's active runs."`
	OnConflict     string            `enum:"${conflicts}" default:"" placeholder:"HOW" help:"${conflict}"`
	IdempotencyKey string            `placeholder:"KEY" help:"Makes the command idempotent: repeats return the same run."`
	Attr           map[string]string `field:"attributes" mapsep:"none" placeholder:"KEY=VALUE" help:"An attribute; may be repeated."`
	Inbox          []string          `sep:"none" placeholder:"NAME" help:"Open this inbox with the run; may be repeated."`
	Delay          string            `placeholder:"TIME" help:"Start the run after this delay, such as 30s."`
	StartAt        string            `placeholder:"TIME" help:"Start the run at this time, in RFC 3339."`
	Timeout        string            `placeholder:"TIME" help:"Fail the run after this time, such as 24h."`
	TimeoutGrace   string            `placeholder:"TIME" help:"Let the run end by itself for this long after it."`
	Parent         string            `placeholder:"ID" help:"The parent run; when it ends, the run is cancelled."`
	goalFlags
	limitFlags
	collectFlags
	waitFlags
}

// goalFlags are the flags of a run that is planned.
type goalFlags struct {
	Catalog string            `placeholder:"NAME" help:"Plan the run with this catalog, instead of naming a workflow."`
	Want    []string          `placeholder:"NAME" help:"What is wanted: attributes or steps of the catalog."`
	Have    map[string]string `field:"-" mapsep:"none" placeholder:"NAME=JSON" help:"A value that is there; may be repeated."`
	HaveAll map[string]string `field:"-" mapsep:"none" placeholder:"NAME=JSON" help:"A list of values; may be repeated."`
}

// addValues adds the values that are there to a request.
func (f goalFlags) addValues(s *Session, body jsonBody) error {
	for _, values := range []struct {
		flag, field string
		texts       map[string]string
	}{{"--have", "have", f.Have}, {"--have-all", "haveAll", f.HaveAll}} {
		read := map[string]json.RawMessage{}
		for name, text := range values.texts {
			if text == "" {
				return usageErrorf("%s %s has no value: want %[2]s=JSON", values.flag, name)
			}
			value, err := jsonFlag(text).read(s, values.flag+" "+name)
			if err != nil {
				return err
			}
			read[name] = value
		}
		if len(read) > 0 {
			body[values.field] = read
		}
	}
	return nil
}

// Run starts the run.
func (c startRunCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	if (c.Workflow == "") == (c.Catalog == "") {
		return usageErrorf("want the name of a workflow, or --catalog")
	}
	r, err := s.request(k)
	if err == nil {
		err = c.addValues(s, r.params)
	}
	if err != nil {
		return err
	}
	return c.start(ctx, s, r.path(), c.addTo(c.addLimits(r.params)))
}

type waitRunCmd struct {
	ID      string        `arg:"" help:"The run's ID."`
	Timeout time.Duration `placeholder:"TIME" help:"Wait at most this long, such as 5m; default is no limit."`
}

// longPoll is how long the server may hold one request that waits for a run.
const longPoll = 30 * time.Second

// Run prints the run once it has ended. It fails unless the run completed.
func (c waitRunCmd) Run(ctx context.Context, s *Session) error {
	r, raw, err := s.await(ctx, c.ID, c.Timeout)
	if err != nil {
		return err
	}
	if s.json {
		err = s.printJSON(raw)
	} else {
		err = s.printRun(r)
	}
	if err != nil {
		return err
	}
	switch r.Status {
	case "completed":
		return nil
	case "failed":
		return exitError{ExitFailed, fmt.Errorf("run %s failed", r.ID)}
	case "cancelled":
		return exitError{ExitCancelled, fmt.Errorf("run %s was cancelled", r.ID)}
	default:
		return exitError{ExitTimeout, fmt.Errorf("run %s is still %s after %s", r.ID, r.Status, c.Timeout)}
	}
}

// await returns the run once it has ended, or its current state after the timeout. It survives server restarts.
func (s *Session) await(
	ctx context.Context, id string, timeout time.Duration,
) (r api.Run, raw json.RawMessage, err error) {
	err = s.poll(ctx, timeout, func(hold time.Duration) (ended bool, err error) {
		raw, err = s.client.get(ctx, path("runs", id, "wait"), url.Values{"timeout": {hold.String()}}, &r)
		return !r.CompletedAt.IsZero(), err
	})
	return r, raw, err
}

// poll asks, in requests that the server may hold for a while, until that is done which they wait for, or the timeout
// is over; 0 is none. It survives server restarts.
func (s *Session) poll(ctx context.Context, timeout time.Duration, ask func(time.Duration) (bool, error)) error {
	until := s.Now().Add(timeout)
	retry := retrier{s: s}
	for {
		hold := longPoll
		if timeout > 0 {
			hold = max(min(hold, until.Sub(s.Now())), time.Millisecond)
		}
		asked := s.Now()
		done, err := ask(hold)
		timedOut := timeout > 0 && !s.Now().Before(until)
		switch {
		case err != nil:
			err = retry.wait(ctx, err)
		case done || timedOut:
			return nil
		default:
			retry.connected()
			if s.Now().Sub(asked) < hold/2 { // a stopping server answers long polls at once
				err = s.sleep(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

type catalogsCmd struct {
	List    wholeListCmd[catalogRow, none] `cmd:"" at:"catalogs" help:"List the catalogs."`
	Show    showDocumentCmd                `cmd:"" at:"catalogs/*" help:"Print the document of a catalog."`
	Put     putCatalogCmd                  `cmd:"" help:"Store a document as the newest version of its catalog."`
	Preview previewCatalogCmd              `cmd:"" at:"POST catalogs/*/preview" help:"Show the plan that a run would have."`
}

type catalogRow api.Catalog

func (c catalogRow) columns() []field {
	return []field{{"name", c.Name}, {"version", c.Version}, {"created", c.CreatedAt}}
}

type putCatalogCmd struct{ documentFile }

// Run stores the document, or prints all of its faults.
func (c putCatalogCmd) Run(ctx context.Context, s *Session) error {
	return c.put(ctx, s, path("catalogs"))
}

type previewCatalogCmd struct {
	Name    string   `arg:"" help:"The catalog's name."`
	Want    []string `required:"" placeholder:"NAME" help:"What is wanted: attributes or steps."`
	Have    []string `placeholder:"NAME" help:"The attributes that are there."`
	HaveAll []string `placeholder:"NAME" help:"The attributes of which there are lists of values."`
	Version int      `placeholder:"NUMBER" help:"The version; by default the newest."`
	Mermaid bool     `field:"-" help:"Print the plan as a Mermaid diagram."`
}

// Run prints the plan: its steps in their order, what is left out, and what is missing.
func (c previewCatalogCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	p, raw, err := sendFor[api.Preview](ctx, k, s)
	if err != nil {
		return err
	}
	switch {
	case s.json:
		return s.printJSON(raw)
	case c.Mermaid:
		_, err = fmt.Fprint(s.Stdout, p.Mermaid)
	default:
		_, err = fmt.Fprint(s.Stdout, escapeLines(planText(p)))
	}
	if err == nil && len(p.Missing) > 0 {
		err = fmt.Errorf("%s cannot be had", strings.Join(c.Want, ", "))
	}
	return err
}

// planText returns what a run of a catalog does, in lines.
func planText(p api.Preview) string {
	var b strings.Builder
	for _, step := range p.Steps {
		fmt.Fprintf(&b, "%d %s", step.Wave+1, step.ID)
		for _, take := range step.Takes {
			if len(take.From) > 0 {
				fmt.Fprintf(&b, ", %s from %s", take.Name, strings.Join(take.From, " or "))
			}
		}
		if step.Spare {
			b.WriteString(", if the others fail")
		}
		b.WriteByte('\n')
	}
	for _, e := range p.Excluded {
		fmt.Fprintf(&b, "- %s: %s\n", e.Step, e.Reason)
	}
	for _, m := range p.Missing {
		fmt.Fprintf(&b, "missing %s: %s\n", m.Name, strings.Join(m.Chain, " needs "))
	}
	return b.String()
}
