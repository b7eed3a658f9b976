package flow

import (
	"errors"
	"fmt"

	"github.com/stepwell-dev/stepwell/contract"
	"github.com/stepwell-dev/stepwell/eventlog/payload"
)

// MaxPayload is the largest payload of a flow's run, in bytes.
const MaxPayload = payload.MaxDecoded

// ErrPayloadTooLarge refuses a payload that a flow could not read.
var ErrPayloadTooLarge = errors.New("the payload is too large")

// CheckSize fails with [ErrPayloadTooLarge] if a payload is larger than those of flows may be.
func CheckSize(text []byte) error {
	if len(text) <= MaxPayload {
		return nil
	}
	return fmt.Errorf("%w: it has %d bytes, and those of flows at most %d: hand on a reference instead",
		ErrPayloadTooLarge, len(text), MaxPayload)
}

// codePayload means that a step has ended with a payload that flows cannot read. It is never null instead.
const codePayload = "flow.payload"

// Unreadable returns the failure of a step that has ended with a payload which flows cannot read; nil if they can.
func (e Event) Unreadable() *contract.Failure {
	switch {
	case e.Truncated:
		return failedAs(codePayload, "the payload has more than %d bytes: hand on a reference instead", MaxPayload)
	case e.Encoding == payload.EncodingEncrypted:
		return failedAs(codePayload, "the payload is encrypted, and flows have no key: send it in the clear")
	case e.Encoding == payload.EncodingOpaque:
		return failedAs(codePayload, "the payload is no JSON, and in no encoding that flows know")
	default:
		return nil
	}
}
