package remote

import (
	"context"
	"net/url"
	"strconv"
)

type streamsCmd struct {
	List listStreamsCmd `cmd:"" help:"List the streams of a run."`
	Tail tailStreamCmd  `cmd:"" help:"Print the contents of a stream."`
}

var streamColumns = []column[stream]{
	{"NAME", func(st stream) any { return st.Name }},
	{"CHUNKS", func(st stream) any { return st.Chunks }},
	{"CREATED", func(st stream) any { return st.CreatedAt }},
	{"CLOSED", func(st stream) any { return st.ClosedAt }},
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
}

// Run copies the stream's bytes to standard output, or prints its chunks as JSON.
func (c tailStreamCmd) Run(ctx context.Context, s *Session) error {
	at, print := path("runs", c.RunID, "streams", c.Name), entryPrinter(s, s.printChunk)
	if c.Follow {
		query := url.Values{"from": {strconv.FormatInt(c.From, 10)}}
		return s.follow(ctx, at+"/tail", query, print)
	}
	from, err := c.startIndex(ctx, s)
	if err != nil {
		return err
	}
	return s.entries(ctx, at, nil, paging{All: true, Cursor: strconv.FormatInt(from, 10)}, print)
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
		var st stream
		if err := s.client.decode(raw, &st); err != nil {
			return 0, err
		}
		if st.Name == c.Name {
			return max(0, st.Chunks+c.From), nil
		}
	}
	return 0, nil // reading the stream will return the not-found error
}

func (s *Session) printChunk(c chunk) error {
	data := c.Base64
	if data == nil {
		data = []byte(c.Text)
	}
	_, err := s.Stdout.Write(data)
	return err
}
