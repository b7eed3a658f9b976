package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stepwell-dev/stepwell/handlers"
	"github.com/stepwell-dev/stepwell/pg"
)

const (
	// awaitTimeout limits one attempt to reach the database, which may accept connections and then say nothing.
	awaitTimeout = 5 * time.Second
	// awaitPause is the time between two attempts, and awaitLog that between two lines about them.
	awaitPause = time.Second
	awaitLog   = 10 * time.Second
)

// awaitDatabase waits until the database can be reached. Meanwhile, requests are answered with 503. It fails if waiting
// does not help, such as with a wrong password. In function mode it does not wait: nothing may run between requests.
func (s *Server) awaitDatabase(ctx context.Context) error {
	var waiting *http.Server
	defer func() {
		if waiting != nil {
			_ = waiting.Close()
		}
	}()
	var failure error // of the server's address, for which it does not wait
	err := s.untilAvailable(ctx, func() error {
		err := s.reachDatabase(ctx)
		if waiting == nil && s.waitsAfter(err) && s.Listen != "" {
			if waiting, failure = s.serveWaiting(ctx); failure != nil {
				return nil
			}
		}
		return err
	})
	return cmp.Or(failure, err)
}

// untilAvailable calls do, and again while it fails because the database is away. It logs that it waits.
func (s *Server) untilAvailable(ctx context.Context, do func() error) error {
	var logged time.Time
	for {
		err := do()
		if !s.waitsAfter(err) {
			return err
		}
		if now := time.Now(); now.Sub(logged) >= awaitLog {
			logged = now
			s.Logger.WarnContext(ctx, "waiting for the database: it cannot be reached", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitPause):
		}
	}
}

// waitsAfter reports whether an error of the start is the database's, and the server waits for it.
func (s *Server) waitsAfter(err error) bool { return s.Role != RoleFunction && pg.IsUnavailable(err) }

// reachDatabase connects to the database once.
func (s *Server) reachDatabase(ctx context.Context) error {
	for _, address := range s.addresses() {
		if err := s.reach(ctx, address); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) reach(ctx context.Context, address string) error {
	config, err := pgxpool.ParseConfig(address) // which may have parameters of the pool
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	s.install(config)
	trying, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(trying, config.ConnConfig)
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return conn.Close(ctx)
}

// serveWaiting answers on the server's address while the server waits for the database.
func (s *Server) serveWaiting(ctx context.Context) (*http.Server, error) {
	h, serve, err := s.bind(ctx, handlers.NewWaiting())
	if err != nil {
		return nil, err
	}
	go func() { _ = serve() }() // it ends with the wait
	return h, nil
}
