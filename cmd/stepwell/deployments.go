package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// deploymentsCmd speaks to a running server.
type deploymentsCmd struct {
	Server string `name:"url" default:"http://127.0.0.1:8788" env:"STEPWELL_URL" help:"The server's address."`
	Key    string `name:"api-key" env:"STEPWELL_API_KEY" help:"The server's API key."`

	Add    addDeploymentCmd    `cmd:"" help:"Register a deployment, or move it to another URL."`
	List   listDeploymentsCmd  `cmd:"" help:"List the deployments."`
	Remove removeDeploymentCmd `cmd:"" help:"Forget a deployment; its messages wait until it is registered again."`
}

// AfterApply gives the sub-commands their client.
func (c *deploymentsCmd) AfterApply() error { //nolint:unparam // kong wants the error
	client := &client{server: strings.TrimRight(c.Server, "/"), key: c.Key}
	c.Add.client, c.List.client, c.Remove.client = client, client, client
	return nil
}

type addDeploymentCmd struct {
	ID  string `arg:"" help:"The app's STEPWELL_DEPLOYMENT_ID."`
	URL string `arg:"" help:"Where the app is, such as http://127.0.0.1:3000."`

	client *client
}

// Run registers the deployment.
func (c addDeploymentCmd) Run(ctx context.Context, stdout io.Writer) error {
	err := c.client.do(ctx, http.MethodPut, "/v1/deployments/"+url.PathEscape(c.ID), map[string]string{"url": c.URL}, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s is at %s\n", c.ID, c.URL)
	return err
}

type listDeploymentsCmd struct{ client *client }

// Run prints the deployments.
func (c listDeploymentsCmd) Run(ctx context.Context, stdout io.Writer) error {
	var list struct {
		Data []struct {
			ID        string    `json:"id"`
			URL       string    `json:"url"`
			UpdatedAt time.Time `json:"updatedAt"`
		} `json:"data"`
	}
	if err := c.client.do(ctx, http.MethodGet, "/v1/deployments", nil, &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tURL\tSINCE")
	for _, d := range list.Data {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", d.ID, d.URL, d.UpdatedAt.Format(time.RFC3339))
	}
	return w.Flush()
}

type removeDeploymentCmd struct {
	ID string `arg:"" help:"The deployment's ID."`

	client *client
}

// Run removes the deployment.
func (c removeDeploymentCmd) Run(ctx context.Context) error {
	return c.client.do(ctx, http.MethodDelete, "/v1/deployments/"+url.PathEscape(c.ID), nil, nil)
}

// client calls the native API.
type client struct {
	server, key string
}

// do sends a request and decodes the answer into result, unless that is nil. An answer that is not 2xx
// is an error with the server's own words.
func (c *client) do(ctx context.Context, method, path string, body, result any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w\nis the server up? STEPWELL_URL or --url says where", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		var problem struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.Unmarshal(answer, &problem) == nil && problem.Error.Message != "" {
			return fmt.Errorf("%s", problem.Error.Message)
		}
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if result == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}
