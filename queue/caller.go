package queue

import (
	"fmt"
	"net/http"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/queue/egress"
)

// Caller makes calls that are no deliveries: nothing waits for them, and what becomes of them says nothing about a
// deployment.
type Caller struct {
	http   *http.Client
	signer *Signer
}

// NewCaller returns a caller of functions at allowed addresses, whose calls are signed.
func NewCaller(allowed egress.Allowed, signer *Signer) *Caller {
	return &Caller{newDeliveryClient(allowed), signer}
}

// Call sends a signed request with the given body to a function of the project.
func (c *Caller) Call(req *http.Request, p entities.Project, body []byte) (*http.Response, error) {
	if err := c.signer.sign(req, p, body); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req) //nolint:gosec // the dialer refuses addresses that functions may not have
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", req.URL, err)
	}
	return resp, nil
}
