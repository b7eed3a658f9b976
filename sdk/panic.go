package stepwell

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
)

var jsonMarshaler = reflect.TypeFor[json.Marshaler]()

// longestStack limits the part of a stack that is kept in the log, in bytes.
const longestStack = 8 << 10

// newPanicError returns the error of a step that panicked. It is retried.
func newPanicError(value any) error {
	stack := debug.Stack()
	details, _ := json.Marshal(map[string]string{"stack": string(stack[:min(len(stack), longestStack)])})
	return &failure{Message: fmt.Sprintf("panic: %v", value), Code: "panic", Details: details}
}

func isPermanent(err error) bool {
	p := (*permanentError)(nil)
	return errors.As(err, &p)
}
