package engine

import (
	"context"
	"sync"
	"time"

	"github.com/stepwell-dev/stepwell/admin"
	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/token"
	"github.com/stepwell-dev/stepwell/pg"
	"github.com/stepwell-dev/stepwell/queue"
)

const (
	// tokenValidity is how long the token of a call is valid at most. It ends earlier with the call's invocation, which no
	// call outlives.
	tokenValidity = contract.MaxAttemptTimeout + time.Hour
	// stepTokenMargin is how long the token of a step's call is valid after the time of the attempt. A function that its
	// server has left can then no longer keep the call.
	stepTokenMargin = time.Minute
	// callKeyName is the name of the key for the tokens of calls.
	callKeyName = "calls"
	// callKeyTime is how long the key is cached, and callKeyTimeout the time limit for reading it. The key changes only
	// if an operator deletes it, or a failover of the database loses it right after its creation.
	callKeyTime    = time.Minute
	callKeyTimeout = 5 * time.Second
)

// callKey caches the key for the tokens of calls, which all servers of the database share.
type callKey struct {
	read func(context.Context) ([]byte, error)
	now  func() time.Time

	mu    sync.Mutex
	key   token.Key
	until time.Time
}

func newCallKey(pool pg.Pool, now func() time.Time) *callKey {
	return &callKey{now: now, read: func(ctx context.Context) ([]byte, error) {
		return admin.ServerKey(ctx, pool, callKeyName)
	}}
}

// get returns the key. Concurrent callers share one read. If the database does not answer, the last key still counts.
func (k *callKey) get(ctx context.Context) (token.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if now.Before(k.until) {
		return k.key, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callKeyTimeout)
	defer cancel()
	key, err := k.read(ctx)
	if err != nil && k.key == nil {
		return nil, err
	}
	if err == nil {
		k.key = key
	}
	k.until = now.Add(callKeyTime)
	return k.key, nil
}

// tokenOf returns the token with which the function that is called may act for its run until its call ends, or is over.
func (e *Engine) tokenOf(ctx context.Context, d queue.Delivery, valid time.Duration) (string, error) {
	key, err := e.callKey.get(ctx)
	if err != nil {
		return "", err
	}
	c := token.Call{Project: d.Project, RunID: d.RunID, Invocation: d.Lease}
	return key.SignCall(e.cell, c, e.log.Now().Add(valid)), nil
}

// VerifyCall returns the call for which a token was made. It reports false if the token is invalid or has expired. It
// does not say whether the call's invocation is active: see [queue.Queue.CheckLease]. It fails with an
// *[entities.WrongCellError] if a server of another cell made the token, unless its project has moved from there.
func (e *Engine) VerifyCall(ctx context.Context, text string) (c token.Call, ok bool, err error) {
	if cell, _ := entities.CutCell(token.CallPrefix, text); cell != "" && cell != e.cell {
		c, ok, err = e.verifyMoved(ctx, cell, text)
		if err == nil && !ok {
			err = &entities.WrongCellError{What: "the token of the call", Here: e.cell, In: cell}
		}
		return c, ok, err
	}
	key, err := e.callKey.get(ctx)
	if err != nil {
		return token.Call{}, false, err
	}
	c, ok = key.VerifyCall(text, e.log.Now())
	return c, ok, nil
}

// verifyMoved is [Engine.VerifyCall] for a token that another cell has made: it counts if its run's project has come
// from there.
func (e *Engine) verifyMoved(ctx context.Context, cell entities.Cell, text string) (c token.Call, ok bool, err error) {
	key, err := admin.ArrivedKey(ctx, pg.NewPool(e.pool), token.ClaimedProject(text), cell)
	if err != nil {
		return token.Call{}, false, err
	}
	c, ok = token.Key(key).VerifyCall(text, e.log.Now())
	return c, ok, nil
}

// CheckHere fails with an *[entities.WrongCellError] if the project has moved to another cell.
func (e *Engine) CheckHere(ctx context.Context, p entities.Project) error {
	_, err := admin.ProjectExists(ctx, pg.NewPool(e.pool), p)
	return err
}
