package stepwell

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// APIError is the error of a request that the server refused.
type APIError struct {
	// Status is the HTTP status.
	Status int
	// Code is one of the codes in docs/api.md; empty if something in front of the server refused the request.
	Code, Message string
	// RequestID finds the request in the server's log.
	RequestID string
	// Details depend on the code; nil if there are none.
	Details json.RawMessage
	// RetryAfter is how long the server asks to wait, if the request can succeed later; otherwise 0.
	RetryAfter time.Duration
	// Uncertain means that the answer to an earlier attempt of the request was lost, so that one may have succeeded. A
	// hook, for example, is not found when the payload that arrived was the last one of its run.
	Uncertain bool

	request string
}

// Error implements error.
func (e *APIError) Error() string {
	text := e.Message
	switch {
	case e.Code != "":
		text = e.Code + ": " + e.Message
	case e.Status/100 == 3:
		text = "the answer is a redirect to " + e.Message + ", which is not followed: change the server's address"
	case text == "":
		text = "the answer is not Stepwell's: is something else at this address?"
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	if e.Uncertain {
		text += "; the answer to an earlier attempt was lost, so that one may have succeeded"
	}
	return fmt.Sprintf("%s: %d %s", e.request, e.Status, text)
}

// mayHaveActed reports whether the request may have had its effect all the same: the server failed, or something in
// front of it did not get its answer.
func (e *APIError) mayHaveActed() bool {
	switch e.Status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// longestError is the size limit in bytes of an error's body.
const longestError = 1 << 20

func newAPIError(r apiRequest, resp *http.Response) *APIError {
	e := &APIError{
		Status: resp.StatusCode, request: r.method + " " + r.path, RequestID: resp.Header.Get("X-Request-Id"),
		Uncertain: r.uncertain,
	}
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	if resp.StatusCode/100 == 3 {
		e.Message = resp.Header.Get("Location")
		return e
	}
	var body struct {
		Error struct {
			Code, Message, RequestID string
			Details                  json.RawMessage
		}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, longestError))
	if err != nil || json.Unmarshal(data, &body) != nil {
		return e // the status says enough
	}
	e.Code, e.Message, e.Details = body.Error.Code, body.Error.Message, body.Error.Details
	if body.Error.RequestID != "" {
		e.RequestID = body.Error.RequestID
	}
	return e
}

// lostError means that there is no answer, or only a part of one. Whether the server has acted is unknown.
type lostError struct {
	server string
	err    error
}

// Error implements error.
func (e *lostError) Error() string {
	return fmt.Sprintf("no answer from %s: is the server running at this address? (%v)", e.server, e.err)
}

// Unwrap returns the reason.
func (e *lostError) Unwrap() error { return e.err }

func (c *Client) lost(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return &lostError{c.base.Redacted(), err}
}

// transient reports whether the request is worth repeating: there was no answer, or the answer asks for it, or the
// server failed.
func transient(err error) bool {
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return false
	}
	if e, ok := errors.AsType[*APIError](err); ok {
		switch e.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return e.RetryAfter <= longestRetryAfter
		}
		return false
	}
	_, lost := errors.AsType[*lostError](err)
	return lost
}
