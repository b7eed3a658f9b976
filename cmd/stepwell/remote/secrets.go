package remote

import (
	"bufio"
	"context"
	"net/http"
	"strings"
)

type secretsCmd struct {
	List   listSecretsCmd  `cmd:"" help:"List the secrets, without their values."`
	Set    setSecretCmd    `cmd:"" help:"Create or replace a secret; reads its values from standard input, one per line."`
	Remove removeSecretCmd `cmd:"" help:"Delete a secret."`
}

var secretColumns = []column[secret]{
	{"NAME", func(c secret) any { return c.Name }},
	{"CREATED", func(c secret) any { return c.CreatedAt }},
	{"UPDATED", func(c secret) any { return c.UpdatedAt }},
}

type listSecretsCmd struct{}

// Run lists the secrets.
func (listSecretsCmd) Run(ctx context.Context, s *Session) error {
	return listUnpaged(ctx, s, path("secrets"), secretColumns)
}

type setSecretCmd struct {
	Name string `arg:"" help:"The secret's name, as hooks refer to it."`
}

// Run stores the secret. Its values are not arguments, which every user of the machine can see.
func (c setSecretCmd) Run(ctx context.Context, s *Session) error {
	values := []string{}
	lines := bufio.NewScanner(s.Stdin)
	for lines.Scan() {
		if v := strings.TrimSpace(lines.Text()); v != "" {
			values = append(values, v)
		}
	}
	if err := lines.Err(); err != nil {
		return usageErrorf("read standard input: %w", err)
	}
	if len(values) == 0 {
		return usageErrorf("no value on standard input: echo VALUE | stepwell secrets set %s", c.Name)
	}
	raw, err := s.client.do(ctx, http.MethodPut, path("secrets", c.Name), map[string]any{"values": values})
	if err != nil {
		return err
	}
	return s.printResult(raw, "set secret %s", c.Name)
}

type removeSecretCmd struct {
	Name string `arg:"" help:"The secret's name."`
}

// Run deletes the secret.
func (c removeSecretCmd) Run(ctx context.Context, s *Session) error {
	return s.client.delete(ctx, path("secrets", c.Name))
}
