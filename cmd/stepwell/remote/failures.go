package remote

import (
	"fmt"
	"strings"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// errorText returns "code: message".
func errorText(code, message string) string {
	switch {
	case strings.HasPrefix(message, code+": "):
		return message
	case code != "" && message != "":
		return code + ": " + message
	default:
		return code + message
	}
}

// failureText returns the error of a run or a step as "code: message", or "" for nil.
func failureText(f *api.Failure) string {
	v := orZero(f)
	return errorText(v.Code, v.Message)
}

// failureDetails returns the details of an error as text, or "" for nil.
func failureDetails(f *api.Failure) multiline { return payloadText(orZero(f).Details, "") }

// blockedText says why a run does not go on, or returns "" for nil.
func blockedText(h *api.Blocked) multiline {
	if h == nil {
		return ""
	}
	text := errorText(h.Code, h.Message)
	return escapeLines(fmt.Sprintf("since %s, %d attempts: %s", timestamp(h.Since.Time), h.Attempts, text))
}
