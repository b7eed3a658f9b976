package pg

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// surveyPause is the time between two surveys.
	surveyPause = 10 * time.Second
	// surveyTimeout limits how long a host may take to answer.
	surveyTimeout = 2 * time.Second
)

// Find asks the hosts of a database URL which of them is the newest primary, before the first connection.
func (p *Primary) Find(ctx context.Context, databaseURL string) error {
	config, err := pgxpool.ParseConfig(databaseURL) // which may have parameters of the pool
	if err != nil {
		return fmt.Errorf("parse database URL: %w", err)
	}
	p.survey(ctx, config.ConnConfig)
	return nil
}

// survey asks all hosts of the configuration which of them accept writes, so that of several the one with the highest
// timeline is used: a former primary that was not shut down accepts writes too. Hosts that do not answer within 2 s are
// skipped. With one host there is nothing to compare.
func (p *Primary) survey(ctx context.Context, config *pgx.ConnConfig) {
	all := hosts(config)
	if len(all) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, host := range all {
		wg.Go(func() { p.ask(ctx, config, host) })
	}
	wg.Wait()
}

// KeepSurveying asks the hosts of the configuration again every 10 s, until the context ends.
func (p *Primary) KeepSurveying(ctx context.Context, config *pgx.ConnConfig) {
	for len(hosts(config)) > 1 && sleep(ctx, surveyPause) {
		p.survey(ctx, config)
	}
}

// ask learns from one host, if that answers.
func (p *Primary) ask(ctx context.Context, config *pgx.ConnConfig, host *pgconn.FallbackConfig) {
	c := config.Copy()
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = host.Host, host.Port, host.TLSConfig, nil
	c.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		n, err := describe(ctx, conn)
		if err == nil && !n.readOnly {
			p.learn(n)
		}
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, &c.Config)
	if err == nil {
		_ = conn.Close(ctx) // the answer has arrived
	}
}

// hosts returns the different hosts of the configuration, each with the TLS settings that the driver tries first.
func hosts(c *pgx.ConnConfig) []*pgconn.FallbackConfig {
	all := []*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}
	for _, fallback := range c.Fallbacks {
		known := func(host *pgconn.FallbackConfig) bool {
			return host.Host == fallback.Host && host.Port == fallback.Port
		}
		if !slices.ContainsFunc(all, known) {
			all = append(all, fallback)
		}
	}
	return all
}
