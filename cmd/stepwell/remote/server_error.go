package remote

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxProblem is how much is read of an answer that is an error, in bytes.
const maxProblem = 1 << 20

// ServerError is a request that the server refused.
type ServerError struct {
	// Status is the answer's.
	Status int
	// Code is the API's code of the error; empty if the answer is not the API's.
	Code string
	// Message is the server's sentence, or says which request was answered how.
	Message string
	// Hint says what to do about it; empty where the message does.
	Hint string
}

// Error is one line: what is wrong, what to do about it, and the code to look up.
func (e *ServerError) Error() string {
	text := e.Message
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return clean(text)
}

// hints say where to look, by the codes of errors.
var hints = map[string]string{
	"run_not_found":         "stepwell runs list shows what there is",
	"step_not_found":        "stepwell steps list RUN shows what there is",
	"hook_not_found":        "stepwell hooks list shows what there is",
	"stream_not_found":      "stepwell streams list RUN shows what there is",
	"deployment_not_found":  "stepwell deployments list shows what there is",
	"secret_not_found":      "stepwell secrets list shows what there is",
	"message_not_found":     "stepwell messages list --state all shows what there is",
	"key_not_found":         "stepwell keys list shows what there is",
	"project_not_found":     "stepwell projects create makes one",
	"signing_key_not_found": "stepwell signing-keys list shows what there is",
	"unauthorized":          "--api-key or STEPWELL_API_KEY gives the key",
	"not_found":             "is the server older than this command?",
}

func newServerError(req *http.Request, resp *http.Response) *ServerError {
	e := &ServerError{
		Status:  resp.StatusCode,
		Message: fmt.Sprintf("%s %s: %s", req.Method, req.URL.Path, resp.Status),
	}
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		e.Hint = "it leads to " + to + ": is that what --url or STEPWELL_URL should say?"
		return e
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return e
	}
	var problem struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(data, &problem) != nil || problem.Error.Message == "" {
		return e
	}
	e.Code, e.Message, e.Hint = problem.Error.Code, problem.Error.Message, hints[problem.Error.Code]
	if id := runOf(req.URL); e.Code == "run_not_found" && id != "" {
		e.Message = "no run " + id + " in this project"
	}
	return e
}

// runOf is the run that a path is about; empty if there is none.
func runOf(u *url.URL) string {
	_, rest, ok := strings.Cut(u.Path, "/v1/runs/")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}
