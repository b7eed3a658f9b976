package remote

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
)

type deploymentsCmd struct {
	Add    addDeploymentCmd    `cmd:"" help:"Register a deployment, or move it to another URL."`
	List   listDeploymentsCmd  `cmd:"" help:"List the deployments."`
	Show   showDeploymentCmd   `cmd:"" help:"Show a deployment."`
	Remove removeDeploymentCmd `cmd:"" help:"Forget a deployment; its messages wait until it is registered again."`
}

type addDeploymentCmd struct {
	ID        string   `arg:"" help:"The app's STEPWELL_DEPLOYMENT_ID."`
	URL       string   `arg:"" help:"Where the app is, such as http://127.0.0.1:3000."`
	Workflows []string `name:"workflow" short:"w" sep:"none" placeholder:"NAME" help:"A workflow it has; for each one."`
}

// Run registers the deployment.
func (c addDeploymentCmd) Run(ctx context.Context, s *Session) error {
	body := options{"url": c.URL}
	if len(c.Workflows) > 0 {
		body["workflows"] = c.Workflows
	}
	raw, err := s.client.do(ctx, http.MethodPut, path("deployments", c.ID), body)
	if err != nil {
		return err
	}
	return s.say(raw, "%s is at %s", c.ID, c.URL)
}

var deploymentColumns = []column[deployment]{
	{"ID", func(_ *Session, d deployment) string { return d.ID }},
	{"URL", func(_ *Session, d deployment) string { return d.URL }},
	{"SINCE", func(s *Session, d deployment) string { return s.when(d.UpdatedAt) }},
	{"WORKFLOWS", func(_ *Session, d deployment) string { return strings.Join(d.Workflows, " ") }},
}

type listDeploymentsCmd struct{}

// Run lists the deployments.
func (listDeploymentsCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("deployments"), deploymentColumns)
}

type showDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`
}

// Run prints the deployment.
func (c showDeploymentCmd) Run(ctx context.Context, s *Session) error {
	var d deployment
	raw, err := s.client.get(ctx, path("deployments", c.ID), nil, &d)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	return s.fields([]field{
		{"deployment", clean(d.ID)},
		{"url", clean(d.URL)},
		{"workflows", clean(strings.Join(d.Workflows, " "))},
		{"created", s.exactly(d.CreatedAt)},
		{"updated", s.exactly(d.UpdatedAt)},
	})
}

type removeDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`
}

// Run removes the deployment.
func (c removeDeploymentCmd) Run(ctx context.Context, s *Session) error {
	_, err := s.client.do(ctx, http.MethodDelete, path("deployments", c.ID), nil)
	return err
}

type secretsCmd struct {
	List   listSecretsCmd  `cmd:"" help:"List the secrets, without their values."`
	Set    setSecretCmd    `cmd:"" help:"Write a secret; its values are read from standard input, one on each line."`
	Remove removeSecretCmd `cmd:"" help:"Forget a secret."`
}

var secretColumns = []column[secret]{
	{"NAME", func(_ *Session, c secret) string { return c.Name }},
	{"CREATED", func(s *Session, c secret) string { return s.when(c.CreatedAt) }},
	{"UPDATED", func(s *Session, c secret) string { return s.when(c.UpdatedAt) }},
}

type listSecretsCmd struct{}

// Run lists the secrets.
func (listSecretsCmd) Run(ctx context.Context, s *Session) error {
	return listWhole(ctx, s, path("secrets"), secretColumns)
}

type setSecretCmd struct {
	Name string `arg:"" help:"The secret's name, by which hooks demand it."`
}

// Run writes the secret. Its values are no arguments: those are seen by everybody on the machine.
func (c setSecretCmd) Run(ctx context.Context, s *Session) error {
	values := []string{}
	lines := bufio.NewScanner(s.Stdin)
	for lines.Scan() {
		if v := strings.TrimSpace(lines.Text()); v != "" {
			values = append(values, v)
		}
	}
	if err := lines.Err(); err != nil {
		return usage("read standard input: %w", err)
	}
	if len(values) == 0 {
		return usage("standard input has no value for the secret: echo VALUE | stepwell secrets set %s", c.Name)
	}
	raw, err := s.client.do(ctx, http.MethodPut, path("secrets", c.Name), map[string]any{"values": values})
	if err != nil {
		return err
	}
	return s.say(raw, "%s is set", c.Name)
}

type removeSecretCmd struct {
	Name string `arg:"" help:"The secret's name."`
}

// Run removes the secret.
func (c removeSecretCmd) Run(ctx context.Context, s *Session) error {
	_, err := s.client.do(ctx, http.MethodDelete, path("secrets", c.Name), nil)
	return err
}
