package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type stepsCmd struct {
	List listCmd[stepRow, inRun]      `cmd:"" at:"runs/*/steps" help:"List the steps of a run in the order of their creation."`
	Show objectCmd[stepRow, stepArgs] `cmd:"" at:"runs/*/steps/*" help:"Show a step with its input and result."`
}

// stepArgs name a step.
type stepArgs struct {
	inRun
	ID string `arg:"" name:"step" help:"The step's ID."`
}

type stepRow api.Step

func (st stepRow) columns() []field {
	return []field{
		{"id", st.ID}, {"name", entities.Title(st.Name)}, {"status", st.Status}, {"attempt", st.Attempt},
		{"created", st.CreatedAt}, {"took", elapsed(st.StartedAt, st.CompletedAt)}, {"retry", st.RetryAfter},
	}
}

func (st stepRow) details() []field {
	return []field{
		{"run", st.RunID}, {"full name", fullName(st.Name)}, {"deployment", st.Deployment}, {"child", st.ChildID},
		{"started", st.StartedAt}, {"ended", st.CompletedAt}, {"input", payloadText(st.Input, string(st.InputEncoding))},
		{"output", payloadText(st.Output, string(st.OutputEncoding))}, {"error", failureText(st.Error)},
		{"details", failureDetails(st.Error)},
	}
}

// fullName returns a name that has another title, or nothing.
func fullName(name string) string {
	if entities.Title(name) == name {
		return ""
	}
	return name
}

type timelineRow api.TimelinePart

func (p timelineRow) columns() []field {
	return []field{
		{"kind", p.Kind}, {"id", p.ID}, {"name", entities.Title(p.Name)},
		{"status", cmp.Or(outcomeText(p.Outcome), p.Status)}, {"created", p.CreatedAt},
		{"took", elapsed(p.CreatedAt, p.EndedAt)}, {"attempts", len(p.Attempts)}, {"received", len(p.Received)},
	}
}

func timelineNameColumns(n api.TimelineName) []field {
	return []field{
		{"name", n.Name}, {"steps", n.Count}, {"open", n.Pending + n.Running}, {"failed", n.Failed},
		{"retried", n.Retried}, {"p50", milliseconds(n.P50Ms)}, {"slowest", milliseconds(n.MaxMs)},
		{"which", n.Slowest},
	}
}

// milliseconds returns a duration as text; empty for none.
func milliseconds(n *int64) string {
	if n == nil {
		return ""
	}
	return (time.Duration(*n) * time.Millisecond).String()
}

type timelineCmd struct {
	ID     string   `arg:"" help:"The run's ID."`
	Names  bool     `field:"-" help:"Sum up the steps by their names: 10,000 steps at a time."`
	Name   string   `placeholder:"NAME" help:"List only steps with this name."`
	Status []string `placeholder:"STATUS,..." help:"List only steps that are pending, running, completed, failed."`
	paging
}

// Run lists the parts of the run, or the names of its steps.
func (c timelineCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	switch {
	case err != nil:
		return err
	case !c.Names:
		return list[timelineRow](ctx, s, r.path(), r.query(), c.paging)
	case len(r.params) > 0 || c.paging != paging{Cursor: c.Cursor}:
		return usageErrorf("--names goes only with --cursor")
	}
	data, cursor, err := s.page(ctx, r.path()+"/names", nonEmpty(url.Values{"cursor": {c.Cursor}}))
	if err != nil {
		return err
	}
	if cursor != "" {
		s.note("more steps: use --cursor %s", cursor)
	}
	return printTable(s, timelineNameColumns, data)
}

type waitsCmd struct {
	List listWaitsCmd `cmd:"" at:"waits" help:"List the waits of a run, or those of all runs that are not over by when they end."`
}

type waitRow api.Wait

func (w waitRow) columns() []field {
	return []field{
		{"id", w.ID}, {"status", w.Status}, {"resumes", w.ResumeAt}, {"created", w.CreatedAt},
		{"ended", w.CompletedAt},
	}
}

type openWaitRow api.Wait

func (w openWaitRow) columns() []field {
	return []field{
		{"ends", w.ResumeAt}, {"workflow", entities.Title(w.Workflow)}, {"run", w.RunID}, {"id", w.ID},
		{"created", w.CreatedAt},
	}
}

type listWaitsCmd struct {
	RunID    string `arg:"" optional:"" name:"run" help:"The run's ID; all runs if missing."`
	Workflow string `placeholder:"NAME" help:"List waits of runs of this workflow."`
	paging
}

// Run lists the waits.
func (c listWaitsCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	r, err := s.request(k)
	switch {
	case err != nil:
		return err
	case c.RunID == "":
		return list[openWaitRow](ctx, s, r.path(), r.query(), c.paging)
	case c.Workflow != "":
		return usageErrorf("give either the ID of a run, or --workflow")
	default:
		return list[waitRow](ctx, s, path("runs", c.RunID, "waits"), nil, c.paging)
	}
}

type streamsCmd struct {
	List wholeListCmd[streamRow, inRun] `cmd:"" at:"runs/*/streams" help:"List the streams of a run."`
	Tail tailStreamCmd                  `cmd:"" help:"Print the contents of a stream."`
}

type streamRow api.Stream

func (st streamRow) columns() []field {
	return []field{{"name", st.Name}, {"chunks", st.Chunks}, {"created", st.CreatedAt}, {"closed", st.ClosedAt}}
}

type tailStreamCmd struct {
	RunID  string `arg:"" name:"run" help:"The run's ID."`
	Name   string `arg:"" help:"The stream's name."`
	Follow bool   `short:"f" help:"Keep printing new chunks until the stream is closed."`
	From   int64  `placeholder:"INDEX" help:"Start at this chunk; --from=-3 prints the last three."`
	Raw    bool   `help:"Print the bytes as they were written. Otherwise, values of the Workflow SDK are decoded."`
}

// Run copies what is in the stream to standard output, or prints its chunks as JSON.
func (c tailStreamCmd) Run(ctx context.Context, s *Session) error {
	at, print := path("runs", c.RunID, "streams", c.Name), entryPrinter(s, (&chunkPrinter{out: s.Stdout}).print)
	query := nonEmpty(url.Values{"decoded": {strconv.FormatBool(!c.Raw)}})
	if c.Follow {
		query.Set("from", strconv.FormatInt(c.From, 10))
		return s.follow(ctx, at+"/tail", query, print)
	}
	from, err := c.startIndex(ctx, s)
	if err != nil {
		return err
	}
	return s.entries(ctx, at, query, paging{All: true, Cursor: strconv.FormatInt(from, 10)}, print)
}

// startIndex resolves a negative --from, which counts from the end of the stream.
func (c tailStreamCmd) startIndex(ctx context.Context, s *Session) (int64, error) {
	if c.From >= 0 {
		return c.From, nil
	}
	data, _, err := s.page(ctx, path("runs", c.RunID, "streams"), nil)
	if err != nil {
		return 0, err
	}
	for _, raw := range data {
		var st api.Stream
		if err := s.client.decode(raw, &st); err != nil {
			return 0, err
		}
		if st.Name == c.Name {
			return max(0, st.Chunks+c.From), nil
		}
	}
	return 0, nil // reading the stream will return the not-found error
}

// chunkPrinter prints what is in chunks: texts as they are, and other values as lines of JSON.
type chunkPrinter struct {
	out   io.Writer
	begun bool // a line has begun
}

func (p *chunkPrinter) print(c api.Chunk) error {
	data := c.Base64
	var text string
	switch {
	case c.Encoding == "encrypted":
		data = p.line("(encrypted)")
	case c.Value != nil && json.Unmarshal(c.Value, &text) == nil && c.Value[0] == '"':
		data = []byte(text)
	case c.Value != nil:
		data = p.line(string(c.Value))
	case data == nil:
		data = []byte(orZero(c.Text))
	}
	if n := len(data); n > 0 {
		p.begun = data[n-1] != '\n'
	}
	_, err := p.out.Write(data)
	return err
}

// line returns a line of its own.
func (p *chunkPrinter) line(text string) []byte {
	if p.begun {
		text = "\n" + text
	}
	return []byte(text + "\n")
}
