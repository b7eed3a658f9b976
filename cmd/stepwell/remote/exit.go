package remote

import (
	"errors"
	"fmt"
	"net/http"
)

// The codes that commands exit with.
const (
	ExitError       = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitRefused     = 4
	ExitDenied      = 5
	ExitUnreachable = 6
	ExitFailed      = 10
	ExitCancelled   = 11
	ExitTimeout     = 12
	ExitInterrupted = 130
)

// Exit is an exit code and what it means.
type Exit struct {
	Code    int
	Meaning string
}

// Exits are all exit codes: --help prints them, and docs/cli.md has them.
var Exits = []Exit{
	{0, "It is done; the run that was waited for has completed."},
	{ExitError, "It failed, for a reason without a code of its own."},
	{ExitUsage, "The command line is wrong, or asks for what can never be."},
	{ExitNotFound, "There is no such run, hook, deployment, …"},
	{ExitRefused, "It cannot be done as things are now: a conflict, or the run has ended."},
	{ExitDenied, "The API key is missing or wrong, or may not do this."},
	{ExitUnreachable, "The server does not answer, or has no room now."},
	{ExitFailed, "The run that was waited for has failed."},
	{ExitCancelled, "The run that was waited for was cancelled."},
	{ExitTimeout, "The run that was waited for has not ended in time."},
	{ExitInterrupted, "It was interrupted while it waited or followed."},
}

// exitError is an error that ends the process with a code.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// ErrInterrupted says that the command ends because it was told to. Nobody needs to hear that.
var ErrInterrupted error = exitError{ExitInterrupted, errors.New("interrupted")}

// usage is an error in the command line that kong does not see.
func usage(format string, a ...any) error { return UsageError(fmt.Errorf(format, a...)) }

// UsageError is an error in the command line, which ends the process with [ExitUsage].
func UsageError(err error) error { return exitError{ExitUsage, err} }

// ExitCode is the code for an error, 0 for none. Of several joined ones it is that of the first that has one.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if coded := (exitError{}); errors.As(err, &coded) {
		return coded.code
	}
	if refusal := (*ServerError)(nil); errors.As(err, &refusal) {
		return exitOfStatus(refusal.Status)
	}
	return ExitError
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return ExitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitDenied
	case http.StatusNotFound:
		return ExitNotFound
	case http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusTooEarly:
		return ExitRefused
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnreachable
	default:
		return ExitError
	}
}
