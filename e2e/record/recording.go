package record

import "time"

// Recording is all that the clients of one app said to a server while one case ran, in the order in which the
// server decided it.
type Recording struct {
	// Client names the packages that spoke, and their versions.
	Client string
	// Case is what the app was made to do.
	Case      string
	Exchanges []Exchange
}

// Exchange is a request and its answer, or a delivery.
type Exchange struct {
	// Clock is what the server's clock showed: the time of the event that was written, if one was.
	Clock time.Time
	// Delivery is set when the server called the app; then there is nothing else.
	Delivery *Delivery

	Request Request
	Answer  Answer
}

// Request is what a client asked.
type Request struct {
	Method string
	// Path is below the server's root, with the query.
	Path   string
	Header map[string]string
	// Body is exactly what came.
	Body []byte
}

// Says is what the body of a request says, to be read.
func (r Request) Says() any {
	if r.Header["X-Stream-Multi"] == "true" {
		if chunks, err := fromChunks(r.Body); err == nil {
			return chunks
		}
	}
	return Value(r.Path, r.Header["Content-Type"], r.Body)
}

// Answer is what the server answered.
type Answer struct {
	Status int
	Header map[string]string
	// Body is a [Value].
	Body any
	// Cut says that the client did not wait for the end of the answer. Body is then what it had seen.
	Cut bool
}

// Delivery is a message on its way to the app. Its body is what was sent.
type Delivery struct {
	Topic   string `json:"topic"`
	Message string `json:"message"`
	Receipt string `json:"receipt"`
	Count   int    `json:"count"`
}
