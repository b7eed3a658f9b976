package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// messagesCmd speaks to a running server.
type messagesCmd struct {
	Server string `name:"url" default:"http://127.0.0.1:8788" env:"STEPWELL_URL" help:"The server's address."`
	Key    string `name:"api-key" env:"STEPWELL_API_KEY" help:"The server's API key."`

	List    listMessagesCmd   `cmd:"" help:"List messages; the parked ones unless told otherwise."`
	Retry   retryMessageCmd   `cmd:"" help:"Deliver messages that failed now, as if for the first time."`
	Discard discardMessageCmd `cmd:"" help:"Delete messages for good."`
}

// AfterApply gives the sub-commands their client.
func (c *messagesCmd) AfterApply() error { //nolint:unparam // kong wants the error
	client := &client{server: strings.TrimRight(c.Server, "/"), key: c.Key}
	c.List.client, c.Retry.client, c.Discard.client = client, client, client
	return nil
}

type listMessagesCmd struct {
	State string `enum:"waiting,leased,parked,all" default:"parked" help:"Which to list: ${enum}."`

	client *client
}

// Run prints all messages in the state.
func (c listMessagesCmd) Run(ctx context.Context, stdout io.Writer) error {
	query := url.Values{"limit": {"1000"}}
	if c.State != "all" {
		query.Set("state", c.State)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tSTATE\tDEPLOYMENT\tTOPIC\tRUN\tDELIVERIES\tSENT\tLAST ERROR")
	for {
		var page struct {
			Data []struct {
				ID            string    `json:"id"`
				State         string    `json:"state"`
				DeploymentID  string    `json:"deploymentId"`
				Topic         string    `json:"topic"`
				RunID         string    `json:"runId"`
				DeliveryCount int       `json:"deliveryCount"`
				CreatedAt     time.Time `json:"createdAt"`
				LastError     string    `json:"lastError"`
			} `json:"data"`
			Cursor string `json:"cursor"`
		}
		if err := c.client.do(ctx, http.MethodGet, "/v1/messages?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		for _, m := range page.Data {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%q\n", m.ID, m.State, m.DeploymentID, m.Topic, m.RunID,
				m.DeliveryCount, m.CreatedAt.Format(time.RFC3339), m.LastError)
		}
		if page.Cursor == "" {
			return w.Flush()
		}
		query.Set("cursor", page.Cursor)
	}
}

type retryMessageCmd struct {
	IDs []string `arg:"" name:"id" help:"The messages' IDs."`

	client *client
}

// Run retries the messages, up to the first that cannot be.
func (c retryMessageCmd) Run(ctx context.Context) error {
	for _, id := range c.IDs {
		if err := c.client.do(ctx, http.MethodPost, "/v1/messages/"+url.PathEscape(id)+"/retry", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

type discardMessageCmd struct {
	IDs []string `arg:"" name:"id" help:"The messages' IDs."`

	client *client
}

// Run discards the messages, up to the first that cannot be.
func (c discardMessageCmd) Run(ctx context.Context) error {
	for _, id := range c.IDs {
		if err := c.client.do(ctx, http.MethodDelete, "/v1/messages/"+url.PathEscape(id), nil, nil); err != nil {
			return err
		}
	}
	return nil
}
