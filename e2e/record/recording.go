package record

import "time"

// Recording is the traffic between one app and a server during one case, in the order in which the server processed it.
type Recording struct {
	// Client lists the client packages and their versions.
	Client string
	// Case is the name of the test case.
	Case      string
	Exchanges []Exchange
}

// Exchange is a request and its answer, or a delivery.
type Exchange struct {
	// Clock is the server's time: that of the written event, if there is one.
	Clock time.Time
	// Delivery is set if the server called the app. Request and Answer are then empty.
	Delivery *Delivery

	Request Request
	Answer  Answer
}

// Request is a client's request.
type Request struct {
	Method string
	// Path is the path and query below the base URL.
	Path   string
	Header map[string]string
	// Body holds the exact bytes.
	Body []byte
}

// Says returns the decoded form of the body.
func (r Request) Says() any {
	if r.Header["X-Stream-Multi"] == "true" {
		if chunks, err := fromChunks(r.Body); err == nil {
			return chunks
		}
	}
	return Value(r.Path, r.Header["Content-Type"], r.Body)
}

// Answer is the server's answer.
type Answer struct {
	Status int
	Header map[string]string
	// Body is a [Value].
	Body any
	// Cut is set if the client did not wait for the end of the answer. Body then holds the part that it received.
	Cut bool
}

// Delivery is the delivery of a message to the app. Its body is the body that was sent.
type Delivery struct {
	Topic   string `json:"topic"`
	Message string `json:"message"`
	Receipt string `json:"receipt"`
	Count   int    `json:"count"`
}
