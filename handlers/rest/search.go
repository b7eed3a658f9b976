package rest

import (
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/eventlog/store"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// The kinds of what a search finds.
const (
	hitWorkflow  = "workflow"
	hitKey       = "key"
	hitAttribute = "attribute"
)

func newSearchedJSON(s store.Searched) api.Searched {
	return api.Searched{Searched: int64(s.Searched), Of: int64(s.Of), AtLeast: s.AtLeast}
}

// newFoundJSON encodes what a text means.
func newFoundJSON(text string, found store.Found) api.Found {
	hits := encodeAll(found.Workflows, func(name string) api.Hit {
		return api.Hit{Kind: hitWorkflow, Name: name, Title: entities.Title(name)}
	})
	if found.Key {
		hits = append(hits, api.Hit{Kind: hitKey, Name: text, Title: text})
	}
	hits = append(hits, encodeAll(found.Attributes, func(name string) api.Hit {
		return api.Hit{Kind: hitAttribute, Name: name, Title: name + "=" + text}
	})...)
	return api.Found{
		Data: hits, Attributes: newSearchedJSON(found.InAttributes), Workflows: newSearchedJSON(found.InWorkflows),
	}
}

// search answers with the workflows, keys and attributes that a text may mean.
func (s *Server) search(r *request) error {
	text := strings.TrimSpace(r.QueryParam("text"))
	return answer(r, func() (api.Found, error) {
		found, err := store.Search(r.ctx(), s.Reader, r.project(), text)
		return newFoundJSON(text, found), inParam("text", err)
	})
}
