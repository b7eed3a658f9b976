package webhook

import "github.com/stepwell-dev/stepwell/entities/share"

const (
	// waitLimit limits the requests that wait for the responses of workflows and apps.
	waitLimit = 1000
	// A project that is alone gets three quarters of them, and a webhook that is alone half.
	projectWaits = 3
	tokenWaits   = 1
)

// waits divides the places of requests that wait between projects, and between webhooks.
type waits struct{ projects, tokens *share.Pool }

func newWaits() waits { return waits{share.NewPool(waitLimit), share.NewPool(waitLimit)} }

// enter takes a place for a request, if there is one.
func (w waits) enter(t target) (leave func(), ok bool) {
	project, token := string(t.project), string(t.project)+"/"+t.token
	if !w.tokens.Try(token, 1, tokenWaits) {
		return nil, false
	}
	if !w.projects.Try(project, 1, projectWaits) {
		w.tokens.Release(token, 1)
		return nil, false
	}
	return func() {
		w.projects.Release(project, 1)
		w.tokens.Release(token, 1)
	}, true
}
