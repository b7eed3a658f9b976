package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type stepsCmd struct {
	List listStepsCmd `cmd:"" help:"List the steps of a run in the order of their creation."`
	Show showStepCmd  `cmd:"" help:"Show a step with its input and result."`
}

var stepColumns = []column[api.Step]{
	{"ID", func(st api.Step) any { return st.ID }},
	{"NAME", func(st api.Step) any { return entities.Title(st.Name) }},
	{"STATUS", func(st api.Step) any { return st.Status }},
	{"ATTEMPT", func(st api.Step) any { return st.Attempt }},
	{"CREATED", func(st api.Step) any { return st.CreatedAt }},
	{"TOOK", func(st api.Step) any { return elapsed(st.StartedAt, st.CompletedAt) }},
	{"RETRY", func(st api.Step) any { return st.RetryAfter }},
}

type listStepsCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	paging
}

// Run lists the steps.
func (c listStepsCmd) Run(ctx context.Context, s *Session) error {
	return list(ctx, s, path("runs", c.RunID, "steps"), nil, c.paging, stepColumns)
}

type showStepCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
	ID    string `arg:"" name:"step" help:"The step's ID."`
}

// Run prints the step.
func (c showStepCmd) Run(ctx context.Context, s *Session) error {
	return show(ctx, s, path("runs", c.RunID, "steps", c.ID), nil, func(st api.Step) []field {
		return []field{
			{"step", st.ID},
			{"run", st.RunID},
			{"name", st.Name},
			{"status", st.Status},
			{"attempt", st.Attempt},
			{"deployment", st.Deployment},
			{"child", st.ChildID},
			{"created", st.CreatedAt},
			{"started", st.StartedAt},
			{"ended", st.CompletedAt},
			{"took", elapsed(st.StartedAt, st.CompletedAt)},
			{"retry", st.RetryAfter},
			{"input", payloadText(st.Input, string(st.InputEncoding))},
			{"output", payloadText(st.Output, string(st.OutputEncoding))},
			{"error", failureText(st.Error)},
			{"details", failureDetails(st.Error)},
		}
	})
}

var timelineColumns = []column[api.TimelinePart]{
	{"KIND", func(p api.TimelinePart) any { return p.Kind }},
	{"ID", func(p api.TimelinePart) any { return p.ID }},
	{"NAME", func(p api.TimelinePart) any { return entities.Title(p.Name) }},
	{"STATUS", func(p api.TimelinePart) any { return cmp.Or(outcomeText(p.Outcome), p.Status) }},
	{"CREATED", func(p api.TimelinePart) any { return p.CreatedAt }},
	{"TOOK", func(p api.TimelinePart) any { return elapsed(p.CreatedAt, p.EndedAt) }},
	{"ATTEMPTS", func(p api.TimelinePart) any { return len(p.Attempts) }},
	{"RECEIVED", func(p api.TimelinePart) any { return len(p.Received) }},
}

var timelineNameColumns = []column[api.TimelineName]{
	{"NAME", func(n api.TimelineName) any { return n.Name }},
	{"STEPS", func(n api.TimelineName) any { return n.Count }},
	{"OPEN", func(n api.TimelineName) any { return n.Pending + n.Running }},
	{"FAILED", func(n api.TimelineName) any { return n.Failed }},
	{"RETRIED", func(n api.TimelineName) any { return n.Retried }},
	{"P50", func(n api.TimelineName) any { return milliseconds(n.P50Ms) }},
	{"SLOWEST", func(n api.TimelineName) any { return milliseconds(n.MaxMs) }},
	{"WHICH", func(n api.TimelineName) any { return n.Slowest }},
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
	Names  bool     `help:"Sum up the steps by their names: 10,000 steps at a time."`
	Name   string   `placeholder:"NAME" help:"List only steps with this name."`
	Status []string `placeholder:"STATUS,..." help:"List only steps that are pending, running, completed, failed."`
	paging
}

// Run lists the parts of the run, or the names of its steps.
func (c timelineCmd) Run(ctx context.Context, s *Session) error {
	if c.Names {
		return c.listNames(ctx, s)
	}
	query := nonEmpty(url.Values{"status": c.Status, "name": {c.Name}})
	return list(ctx, s, path("runs", c.ID, "timeline"), query, c.paging, timelineColumns)
}

// listNames prints one page of names, and a note if there are more steps.
func (c timelineCmd) listNames(ctx context.Context, s *Session) error {
	if c.Name != "" || len(c.Status) > 0 || c.All || c.Limit != 0 || c.Order != "" {
		return usageErrorf("--names goes only with --cursor")
	}
	query := nonEmpty(url.Values{"cursor": {c.Cursor}})
	data, cursor, err := s.page(ctx, path("runs", c.ID, "timeline", "names"), query)
	if err != nil {
		return err
	}
	if cursor != "" {
		s.note("more steps: use --cursor %s", cursor)
	}
	return printTable(s, timelineNameColumns, data)
}

type waitsCmd struct {
	List listWaitsCmd `cmd:"" help:"List the waits of a run, or those of all runs that are not over by when they end."`
}

var waitColumns = []column[api.Wait]{
	{"ID", func(w api.Wait) any { return w.ID }},
	{"STATUS", func(w api.Wait) any { return w.Status }},
	{"RESUMES", func(w api.Wait) any { return w.ResumeAt }},
	{"CREATED", func(w api.Wait) any { return w.CreatedAt }},
	{"ENDED", func(w api.Wait) any { return w.CompletedAt }},
}

var openWaitColumns = []column[api.Wait]{
	{"ENDS", func(w api.Wait) any { return w.ResumeAt }},
	{"WORKFLOW", func(w api.Wait) any { return entities.Title(w.Workflow) }},
	{"RUN", func(w api.Wait) any { return w.RunID }},
	{"ID", func(w api.Wait) any { return w.ID }},
	{"CREATED", func(w api.Wait) any { return w.CreatedAt }},
}

type listWaitsCmd struct {
	RunID    string `arg:"" optional:"" name:"run" help:"The run's ID; all runs if missing."`
	Workflow string `placeholder:"NAME" help:"List waits of runs of this workflow."`
	paging
}

// Run lists the waits.
func (c listWaitsCmd) Run(ctx context.Context, s *Session) error {
	query := nonEmpty(url.Values{"workflow": {c.Workflow}})
	switch {
	case c.RunID == "":
		return list(ctx, s, path("waits"), query, c.paging, openWaitColumns)
	case c.Workflow != "":
		return usageErrorf("give either the ID of a run, or --workflow")
	default:
		return list(ctx, s, path("runs", c.RunID, "waits"), nil, c.paging, waitColumns)
	}
}

type streamsCmd struct {
	List listStreamsCmd `cmd:"" help:"List the streams of a run."`
	Tail tailStreamCmd  `cmd:"" help:"Print the contents of a stream."`
}

var streamColumns = []column[api.Stream]{
	{"NAME", func(st api.Stream) any { return st.Name }},
	{"CHUNKS", func(st api.Stream) any { return st.Chunks }},
	{"CREATED", func(st api.Stream) any { return st.CreatedAt }},
	{"CLOSED", func(st api.Stream) any { return st.ClosedAt }},
}

type listStreamsCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
}

// Run lists the streams.
func (c listStreamsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("runs", c.RunID, "streams"), nil, streamColumns)
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
