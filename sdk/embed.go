package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/stepwell-dev/stepwell/sdk/internal/schema"
)

// EmbeddedServer is the address of a server in the same process: see package embedded of the server. What answers there
// is the HTTP client that the server offers.
const EmbeddedServer = "http://embedded.stepwell"

// Embed makes the app write to a server in the same process, which the client reaches, and returns the handler of that
// server's calls. Nothing of it leaves the process, so calls need no signature. Package embedded calls it; an app can
// be embedded once.
func (a *App) Embed(server *http.Client) (calls http.Handler, err error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	if a.serving.server == EmbeddedServer {
		return nil, fmt.Errorf("app %s is embedded already: make an app for each server", a.name)
	}
	a.serving.server, a.serving.http = EmbeddedServer, server
	return a.guard(http.HandlerFunc(a.serve)), nil
}

// Registration returns the ID of the app's deployment, which is its name and its build, and what the API registers it
// with at a URL: its workflows, and the schemas of their inputs and outputs.
func (a *App) Registration(url string) (id string, registration json.RawMessage, err error) {
	if err := a.check(); err != nil {
		return "", nil, err
	}
	build := a.build
	if build == "" {
		build = revision()
	}
	if build == "" {
		return "", nil, errors.New("the program does not know its revision, and cannot read itself: set Build of AppConfig")
	}
	d := deployment{url, build, []string{}, map[string]schemas{}}
	for name, w := range a.workflows {
		if d.Workflows = append(d.Workflows, name); a.codec != nil {
			continue
		}
		input, _ := schema.Of(w.input) // types that are lost were refused
		output, _ := schema.Of(w.output)
		d.Schemas[name] = schemas{input, output}
	}
	slices.Sort(d.Workflows)
	registration, err = json.Marshal(d)
	return a.name + "@" + build, registration, err
}

// Name returns the name of the app.
func (a *App) Name() string { return a.name }
