package eventlog

import (
	"context"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
)

// Observer watches appends, for metrics and traces. It is called by many at once, and must be quick.
type Observer interface {
	// Append is called before requests about a run are appended. The append goes on with the context that it
	// returns, and calls the function once when it is over.
	Append(ctx context.Context, runID entities.RunID, requests []Request) (context.Context, func(Appended))
}

// Appended is what became of an append.
type Appended struct {
	// Events are those that were committed, of the run and of children that began with it; none when Err is set.
	Events []entities.Event
	// Run is the run afterwards; nil when there is none, or Err is set.
	Run *entities.Run
	// Refused is why the first request was refused that was; nil when none was, or Err is set.
	Refused error
	// Err is why nothing was committed.
	Err error
}

// Option changes how a [Log] is made.
type Option func(*Log)

// WithObserver has the log's appends watched.
func WithObserver(o Observer) Option { return func(l *Log) { l.observer = o } }

// WithGroup has appends share transactions with whatever else the group commits.
func WithGroup(g *pg.GroupCommit) Option { return func(l *Log) { l.group = g } }

// unobserved is the observer of a log that has none.
type unobserved struct{}

func (unobserved) Append(
	ctx context.Context, _ entities.RunID, _ []Request,
) (context.Context, func(Appended)) {
	return ctx, func(Appended) {}
}

// append decides and writes requests for one run in one transaction. Those that are refused have the reason
// in their outcome; the others are appended in the order of the requests.
func (l *Log) append(
	ctx context.Context, project entities.Project, runID entities.RunID, requests []Request, t terms,
) ([]Outcome, error) {
	ctx, done := l.observer.Append(ctx, runID, requests)
	j, err := l.appendIn(ctx, project, runID, requests, t)
	if err != nil {
		done(Appended{Err: err})
		return nil, err
	}
	done(j.appended())
	return j.outcomes, nil
}

// appended is what an observer is told of it, once it is committed.
func (j judgement) appended() Appended {
	a := Appended{Events: j.events, Run: j.after.Run}
	for _, child := range j.children {
		a.Events = append(a.Events[:len(a.Events):len(a.Events)], child.events...)
	}
	for _, o := range j.outcomes {
		if o.Err != nil {
			a.Refused = o.Err
			break
		}
	}
	return a
}
