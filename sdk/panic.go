package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

var jsonMarshaler = reflect.TypeFor[json.Marshaler]()

// longestStack limits the part of a stack that is kept in the log, in bytes.
const longestStack = 8 << 10

// newPanicError returns the error of a step that panicked. It is retried. The misuse of a workflow's handle is none of
// the step's errors: it holds the run.
func newPanicError(value any) error {
	if m, ok := value.(*engine.MisuseError); ok {
		return m
	}
	f := panicFailure(value, debug.Stack())
	return &f
}

func panicFailure(value any, stack []byte) failure {
	details, _ := json.Marshal(map[string]string{"stack": string(stack[:min(len(stack), longestStack)])}) // a text
	return failure{Message: fmt.Sprintf("panic: %v", value), Code: codePanic, Details: details}
}

func isPermanent(err error) bool {
	p := (*permanentError)(nil)
	return errors.As(err, &p)
}
