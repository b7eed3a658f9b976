package queue

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/atrest"
	"github.com/stepwell-dev/stepwell/entities/message"
)

// Payloads implements [atrest.Row].
func (d *Delivery) Payloads(o *atrest.Opener) {
	o.Bytes(bodyPlace(d.ID), &d.Body)
	o.Bytes(progressPlace(d.RunID), &d.Progress)
}

func bodyPlace(id string) atrest.Place { return atrest.Place{Kind: atrest.Message, Owner: id} }

func progressPlace(id entities.RunID) atrest.Place {
	return atrest.Place{Kind: atrest.Progress, Owner: string(id)}
}

// bodyOf returns the body of a message as an argument.
func bodyOf(id string, m message.Message) atrest.Payload {
	return atrest.Payload{Place: bodyPlace(id), Project: string(m.Project), Bytes: m.Body}
}

// encrypted is the condition that the payloads of the message m are encrypted. What functions say when they fail may
// quote payloads, so it is not stored then.
const encrypted = `EXISTS (SELECT FROM data_keys k WHERE k.project = m.project AND k.retired_at IS NULL)`

// hiddenText is stored in place of what a function has said.
const hiddenText = "the function failed; its text is not stored, as the project is encrypted"

// hiddenReason returns the reason without what the function has said.
func (f Failure) hiddenReason() string {
	switch {
	case !f.Reached || slices.Contains(message.ServerErrors, f.Reason):
		return f.Reason
	case strings.HasPrefix(f.Reason, message.AnswerRefused):
		return message.AnswerRefused + hiddenText
	default:
		return cmp.Or(f.Public, hiddenText)
	}
}

// unclaimed is the failure of a message whose claim failed. Unless its body cannot be read, it is due at once.
func unclaimed(err error) Failure {
	f := Failure{Reason: err.Error()}
	if errors.Is(err, atrest.ErrUnavailable) || errors.Is(err, atrest.ErrAltered) {
		f.After = unreachedBackoff
	}
	return f
}
