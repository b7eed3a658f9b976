package remote

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
)

type streamsCmd struct {
	List listStreamsCmd `cmd:"" help:"List the streams of a run."`
	Tail tailStreamCmd  `cmd:"" help:"Print what has been written to a stream."`
}

var streamColumns = []column[stream]{
	{"NAME", func(_ *Session, st stream) string { return st.Name }},
	{"CHUNKS", func(_ *Session, st stream) string { return strconv.FormatInt(st.Chunks, 10) }},
	{"CREATED", func(s *Session, st stream) string { return s.when(st.CreatedAt) }},
	{"CLOSED", func(s *Session, st stream) string { return s.when(st.ClosedAt) }},
}

type listStreamsCmd struct {
	RunID string `arg:"" name:"run" help:"The run's ID."`
}

// Run lists the streams.
func (c listStreamsCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("runs", c.RunID, "streams"), streamColumns)
}

type tailStreamCmd struct {
	RunID  string `arg:"" name:"run" help:"The run's ID."`
	Name   string `arg:"" help:"The stream's name."`
	Follow bool   `short:"f" help:"Go on with what is written, until the stream is closed."`
	From   int64  `placeholder:"INDEX" help:"The first chunk's index; --from=-3 for the last three chunks."`
}

// Run copies the stream's bytes to standard output, or prints its chunks as JSON.
func (c tailStreamCmd) Run(ctx context.Context, s *Session) error {
	at := path("runs", c.RunID, "streams", c.Name)
	if c.Follow {
		query := url.Values{"from": {strconv.FormatInt(c.From, 10)}}
		return s.follow(ctx, at+"/tail", query, func(data string) error { return s.printChunk(json.RawMessage(data)) })
	}
	from, err := c.start(ctx, s)
	if err != nil {
		return err
	}
	return s.pages(ctx, at, url.Values{}, paging{All: true, Cursor: strconv.FormatInt(from, 10)},
		func(chunks []json.RawMessage) error {
			for _, raw := range chunks {
				if err := s.printChunk(raw); err != nil {
					return err
				}
			}
			return nil
		})
}

// start is the index of the first chunk, counted from the beginning.
func (c tailStreamCmd) start(ctx context.Context, s *Session) (int64, error) {
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
	return 0, nil // reading it says that there is none
}

func (s *Session) printChunk(raw json.RawMessage) error {
	if s.json {
		return s.printJSON(raw)
	}
	var c chunk
	if err := s.client.decode(raw, &c); err != nil {
		return err
	}
	data := c.Base64
	if data == nil {
		data = []byte(c.Text)
	}
	_, err := s.Stdout.Write(data)
	return err
}
