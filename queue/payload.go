package queue

import (
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
