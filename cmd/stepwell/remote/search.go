package remote

import (
	"context"
	"errors"

	"github.com/alecthomas/kong"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

type searchCmd struct {
	Text string `arg:"" field:"text" help:"What a run has as its key or the value of an attribute, or a part of a workflow's title."`
}

// hitColumns end with the name that flags of stepwell runs list take: --workflow, --key or --attr.
func hitColumns(h api.Hit) []field {
	return []field{{"kind", h.Kind}, {"title", h.Title}, {"name", h.Name}}
}

// Run prints what the text may mean, and what was not searched.
func (searchCmd) Run(ctx context.Context, k *kong.Context, s *Session) error {
	found, raw, err := sendFor[api.Found](ctx, k, s)
	if err != nil || s.json {
		return errors.Join(err, s.printJSON(raw))
	}
	s.noteSearched("attributes", found.Attributes)
	s.noteSearched("workflows", found.Workflows)
	return printItems(s, hitColumns, found.Data)
}

// noteSearched says that not all was searched.
func (s *Session) noteSearched(what string, in api.Searched) {
	if in.Searched < in.Of || in.AtLeast {
		s.note("searched %d of %s %s: stepwell runs list searches one", in.Searched, countText(in.Of, in.AtLeast), what)
	}
}
