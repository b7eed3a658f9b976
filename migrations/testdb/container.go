package testdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// The image of containers, and its data folder.
const (
	image      = "postgres:17"
	dataFolder = "/var/lib/postgresql/data"
)

// startContainer starts a server in a container. Its data is in memory. Should this process be killed, the reaper of
// testcontainers removes the container.
func startContainer(ctx context.Context) (instance, error) {
	if err := dockerAnswers(ctx); err != nil {
		return instance{}, &noDaemonError{err}
	}
	c, err := postgres.Run(ctx, image,
		postgres.WithPassword(rand.Text()),
		testcontainers.WithEnv(map[string]string{"POSTGRES_INITDB_ARGS": "--encoding=UTF8 --locale=C"}),
		testcontainers.WithTmpfs(map[string]string{dataFolder: "rw"}),
		testcontainers.WithCmdArgs(arguments()...),
		postgres.BasicWaitStrategies(),
	)
	stop := func(ctx context.Context) error {
		return testcontainers.TerminateContainer(c, testcontainers.StopContext(ctx))
	}
	if err != nil {
		return instance{}, errors.Join(fmt.Errorf("start %s in Docker: %w", image, err), stop(context.WithoutCancel(ctx)))
	}
	dsn, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return instance{}, errors.Join(fmt.Errorf("find port of %s: %w", image, err), stop(context.WithoutCancel(ctx)))
	}
	return instance{dsn: dsn, stop: stop}, nil
}

// arguments are the settings as the server's command line takes them. The module turns fsync off by itself.
func arguments() []string {
	all := settings()
	all["full_page_writes"] = "off"
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

// dockerAnswers returns nil if a Docker daemon answers.
func dockerAnswers(ctx context.Context) error {
	provider, err := testcontainers.ProviderDefault.GetProvider()
	if err != nil {
		return err
	}
	defer func() { _ = provider.Close() }()
	return provider.Health(ctx)
}
