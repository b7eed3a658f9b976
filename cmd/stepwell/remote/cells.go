package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type cellsCmd struct {
	Map cellMapCmd `cmd:"" help:"Print which projects are in the server's cell, for the proxy before several cells."`
}

type cellMapCmd struct {
	For string `enum:"haproxy,nginx" default:"haproxy" help:"The proxy whose map it is: ${enum}."`
}

// Run prints a line for each project but the default one, which each cell has. The lines of all cells are one map.
func (c cellMapCmd) Run(ctx context.Context, s *Session) error {
	var client api.Client
	if _, err := s.client.get(ctx, path("whoami"), nil, &client); err != nil {
		return err
	}
	if client.Cell == "" {
		return errors.New("the server has no cell: set STEPWELL_CELL at all servers of its database")
	}
	var projects struct{ Data []api.Project }
	if _, err := s.client.get(ctx, path("projects"), nil, &projects); err != nil {
		return err
	}
	line := haproxyLine
	if c.For == "nginx" {
		line = nginxLine
	}
	for _, p := range projects.Data {
		if p.Name == string(entities.DefaultProject) {
			continue
		}
		if _, err := fmt.Fprintln(s.Stdout, line(url.PathEscape(p.Name), client.Cell)); err != nil {
			return err
		}
	}
	return nil
}

// haproxyLine has a key, and after a space its value.
func haproxyLine(project, cell string) string { return project + " " + cell }

// nginxWords mean something else in a map, unless a backslash precedes them. So does ~, which begins a pattern.
var nginxWords = []string{"default", "hostnames", "include", "volatile"}

func nginxLine(project, cell string) string {
	if strings.HasPrefix(project, "~") || slices.Contains(nginxWords, project) {
		project = `\\` + project
	}
	return project + " " + cell + ";"
}
