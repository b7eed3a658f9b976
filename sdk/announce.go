package stepwell

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/stepwell-dev/stepwell/sdk/internal/schema"
)

// description is what an app says about itself.
type description struct {
	Name      string                `json:"name"`
	Build     string                `json:"build,omitempty"`
	Workflows []workflowDescription `json:"workflows"`
}

type workflowDescription struct {
	Name   string        `json:"name"`
	Input  schema.Schema `json:"input"`
	Output schema.Schema `json:"output"`
}

func (a *App) describe() description {
	d := description{a.name, a.build, []workflowDescription{}}
	if d.Build == "" {
		d.Build = revision()
	}
	for _, name := range slices.Sorted(maps.Keys(a.workflows)) {
		w := a.workflows[name]
		d.Workflows = append(d.Workflows, workflowDescription{name, schema.Of(w.input), schema.Of(w.output)})
	}
	return d
}

// revision returns the revision that the program was built from; empty if go build did not store one.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	r := settings["vcs.revision"]
	if r = r[:min(len(r), 12)]; r != "" && settings["vcs.modified"] == "true" {
		r += "-modified"
	}
	return r
}

// deployment is how the API registers a deployment.
type deployment struct {
	URL       string                     `json:"url"`
	Build     string                     `json:"build"`
	Workflows []string                   `json:"workflows"`
	Schemas   map[string]workflowSchemas `json:"schemas"`
}

type workflowSchemas struct {
	Input  schema.Schema `json:"input"`
	Output schema.Schema `json:"output"`
}

// Announce registers the app at its URL, with its workflows and the schemas of their inputs and outputs. The ID of the
// deployment is the app's name and its build: orders@3f20b23. New runs of the workflows go to it, and runs that have
// begun stay on the deployment they have. The client's key needs the role admin, or worker with a pattern such as
// orders@*.
func (a *App) Announce(ctx context.Context, c *Client, url string) error {
	if err := a.check(); err != nil {
		return err
	}
	about := a.describe()
	if about.Build == "" {
		return errors.New("the program does not know its revision: build it in its repository, or set Build")
	}
	d := deployment{url, about.Build, []string{}, map[string]workflowSchemas{}}
	for _, w := range about.Workflows {
		d.Workflows = append(d.Workflows, w.Name)
		d.Schemas[w.Name] = workflowSchemas{w.Input, w.Output}
	}
	id := a.name + "@" + about.Build
	if err := c.putDeployment(ctx, id, d); err != nil {
		return fmt.Errorf("register deployment %s: %w", id, err)
	}
	a.logger.InfoContext(ctx, "registered", "deployment", id, "url", url)
	return nil
}
