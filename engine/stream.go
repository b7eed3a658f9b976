package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/message"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

// Limits of the streams that functions write.
const (
	// MaxStreams is how many streams of its own a run has.
	MaxStreams = 16
	// MaxChunks is how many chunks a stream has, and MaxStreamBytes how many bytes they have together.
	MaxChunks      = 100_000
	MaxStreamBytes = 64 << 20
	// MaxWrite is how many chunks one request writes, and MaxChunk how many bytes each of them has.
	MaxWrite = 1000
	MaxChunk = 256 << 10
	// MaxStreamName is how long the name of a stream is, in bytes.
	MaxStreamName = 128
)

// StreamWrite is what a function writes to a stream of its run, during a call.
type StreamWrite struct {
	Stream string
	// Step is the step that writes; empty for the run's function itself. Attempt is the number of its attempt if the
	// function executes it during an invocation. The call of a step needs neither.
	Step    entities.StepID
	Attempt int64
	// From is the index of the first chunk among those of the writer in this stream: of the attempt of a step, or of all
	// calls of the function. What the writer has written before is not written again.
	From   int64
	Chunks [][]byte
	// Close closes the stream.
	Close bool
}

// validate returns what is wrong with the write, whatever the stream has.
func (w StreamWrite) validate() error {
	switch {
	case len(w.Chunks) == 0 && !w.Close:
		return entities.Invalid("chunks: there are none, and the stream is not to be closed")
	case len(w.Chunks) > MaxWrite:
		return entities.Invalid("chunks: there are %d; the limit of one request is %d", len(w.Chunks), MaxWrite)
	case w.From < 0 || w.From > 1<<53:
		return entities.Invalid("from: it is not the index of a chunk")
	}
	for i, c := range w.Chunks {
		if len(c) > MaxChunk {
			return entities.Invalid("chunks[%d]: it has %d bytes; the limit is %d: divide it", i, len(c), MaxChunk)
		}
	}
	return entities.ValidateText("stream name", w.Stream, MaxStreamName)
}

// WriteStream appends chunks to a stream of a run, and creates it. The call is that whose function writes. It
// fails as [Engine.KeepCall] does if the call, its step or the run is over, and with [entities.ErrStreamClosed] and
// [entities.ErrStreamLimit].
func (e *Engine) WriteStream(ctx context.Context, c token.Call, w StreamWrite) error {
	if err := w.validate(); err != nil {
		return err
	}
	err := pg.InTx(ctx, e.pool, func(tx pgx.Tx) error {
		run, call, err := lockWriter(ctx, tx, c)
		if err != nil {
			return err
		}
		writer, attempt, err := w.writer(call, c.Invocation)
		if err != nil {
			return err
		}
		return w.write(ctx, tx, run, writer, attempt)
	})
	if err == nil {
		e.log.AnnounceStream(c.Project, entities.RunStream(c.RunID, w.Stream))
	}
	return e.whyStale(ctx, c, err)
}

// lockWriter locks what lets a function write: its run, which has not ended, and its call.
func lockWriter(ctx context.Context, tx pgx.Tx, c token.Call) (*entities.Run, queue.Call, error) {
	var run *entities.Run
	var call *queue.Call
	var b pgx.Batch
	store.LockRunShared(&b, c.Project, c.RunID, &run)
	queue.LockCall(&b, c, &call)
	err := tx.SendBatch(ctx, &b).Close()
	switch {
	case err != nil:
		return nil, queue.Call{}, fmt.Errorf("lock call: %w", err)
	case run == nil:
		return nil, queue.Call{}, entities.ErrRunNotFound
	case run.Status.Ended():
		return nil, queue.Call{}, endedError(*run)
	case call == nil:
		return nil, queue.Call{}, fmt.Errorf("%w: the call is over, or is made again: stop", message.ErrStale)
	}
	return run, *call, nil
}

// writer returns who writes: a step and its attempt, or the run's function.
func (w StreamWrite) writer(c queue.Call, handle string) (writer, attempt string, err error) {
	switch {
	case c.Work == message.WorkStep && w.Step != "" && string(w.Step) != c.Subject:
		return "", "", entities.Invalid("step: the call is that of step %s", c.Subject)
	case c.Work == message.WorkStep:
		return c.Subject, handle, nil
	case w.Step == "":
		return "", "", nil
	default:
		return string(w.Step), fmt.Sprintf("%s %d", handle, w.Attempt), entities.ValidateID("step", string(w.Step))
	}
}

// write writes to the stream.
func (w StreamWrite) write(ctx context.Context, tx pgx.Tx, run *entities.Run, writer, attempt string) error {
	var s *store.OpenStream
	var reads, writes pgx.Batch
	store.LockRunStream(&reads, run.Project, run.ID, entities.RunStream(run.ID, w.Stream), writer, &s)
	if err := tx.SendBatch(ctx, &reads).Close(); err != nil {
		return fmt.Errorf("lock stream: %w", err)
	}
	if s.Attempt != attempt {
		s.Next = 0
	}
	chunks, next, err := w.missing(*s)
	if err != nil {
		return err
	}
	store.WriteRunStream(&writes, *s, writer, attempt, next, chunks, w.Close)
	return pg.Wrap(tx.SendBatch(ctx, &writes).Close(), "write stream")
}

// missing returns the chunks that the stream does not have yet, and the index of what the writer writes next.
func (w StreamWrite) missing(s store.OpenStream) (chunks [][]byte, next int64, err error) {
	known := min(max(s.Next-w.From, 0), int64(len(w.Chunks)))
	chunks, next = w.Chunks[known:], max(s.Next, w.From+int64(len(w.Chunks)))
	bytes := s.Bytes
	for _, c := range chunks {
		bytes += int64(len(c))
	}
	problem := ""
	switch {
	case s.Closed && len(chunks) > 0:
		return nil, 0, fmt.Errorf("%w: stream %q takes no more chunks", entities.ErrStreamClosed, w.Stream)
	case s.Streams > MaxStreams:
		problem = fmt.Sprintf("the run would have %d streams; the limit is %d", s.Streams, MaxStreams)
	case s.Chunks+int64(len(chunks)) > MaxChunks:
		problem = fmt.Sprintf("stream %q would have more than %d chunks: write larger ones", w.Stream, MaxChunks)
	case bytes > MaxStreamBytes:
		problem = fmt.Sprintf("stream %q would have more than %d bytes: keep large results elsewhere", w.Stream,
			MaxStreamBytes)
	}
	if problem != "" {
		return nil, 0, fmt.Errorf("%w: %s", entities.ErrStreamLimit, problem)
	}
	return chunks, next, nil
}
