// Package coalesce makes callers who ask for the same at about the same time share one read.
package coalesce

import (
	"context"
	"sync"
	"time"
)

// Reads are reads whose answers are shared for a time, by key. It keeps an answer for no longer. It is safe for
// concurrent use.
type Reads[K comparable, V any] struct {
	lasts time.Duration
	now   func() time.Time

	mu      sync.Mutex
	answers map[K]*answer[V]
}

// answer is read for one caller at a time; those who wait share it.
type answer[V any] struct {
	lock  chan struct{} // has room for the caller that may use the other fields
	value V
	began time.Time // zero before the first answer
}

// New returns reads whose answers last for a time from the beginning of the read; 0 means that no answer is shared.
func New[K comparable, V any](lasts time.Duration, now func() time.Time) *Reads[K, V] {
	return &Reads[K, V]{lasts: lasts, now: now, answers: map[K]*answer[V]{}}
}

// Get returns the answer of a read that began at most so long ago, or reads. It fails as the read does, whose failures
// are not shared, and with the error of ctx.
func (r *Reads[K, V]) Get(ctx context.Context, key K, read func() (V, error)) (v V, err error) {
	if r.lasts == 0 {
		return read()
	}
	a := r.answer(key)
	select {
	case a.lock <- struct{}{}:
	case <-ctx.Done():
		return v, ctx.Err()
	}
	defer func() { <-a.lock }()
	began := r.now()
	if age := began.Sub(a.began); !a.began.IsZero() && age >= 0 && age < r.lasts {
		return a.value, nil
	}
	if v, err = read(); err != nil {
		r.forget(key, a)
		return v, err
	}
	a.value, a.began = v, began
	time.AfterFunc(r.lasts, func() { r.forget(key, a) })
	return v, nil
}

func (r *Reads[K, V]) answer(key K) *answer[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.answers[key]
	if a == nil {
		a = &answer[V]{lock: make(chan struct{}, 1)}
		r.answers[key] = a
	}
	return a
}

// forget removes an answer. Those who wait for it read for themselves, one after the other.
func (r *Reads[K, V]) forget(key K, a *answer[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers[key] == a {
		delete(r.answers, key)
	}
}
