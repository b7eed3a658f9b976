package stepwell

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stepwell-dev/stepwell/sdk/internal/engine"
)

// SignalKind is the definition of signals with data of type T. A signal reports an event outside, such as order.paid,
// to all runs that wait for it.
type SignalKind[T any] struct{ name string }

// NewSignal returns the definition of signals with this name.
func NewSignal[T any](name string) *SignalKind[T] { return &SignalKind[T]{name} }

// Name returns the name of the signals.
func (k *SignalKind[T]) Name() string { return k.name }

// Received is a signal as a run receives it.
type Received[T any] struct {
	// Signal is the name of the signal, and ID the ID that the server gave it.
	Signal string `json:"signal"`
	ID     string `json:"id"`
	Data   T      `json:"data"`
}

// SignalOption says which signals are received.
type SignalOption func(*signalSpec)

// signalSpec is the part of openHook that is about signals.
type signalSpec struct {
	Name      string `json:"name"`
	Condition string `json:"condition,omitempty"`
	LookBack  string `json:"lookBack,omitempty"`
}

// Where receives only signals for which a condition is true. The condition is written in CEL, in which data is the
// signal's data:
//
//	Where("data.order == %s && data.amount > %d", order.ID, 100)
//
// The verbs stand for the arguments: %s for a text, %d for an int or int64, %f for a float64, %t for a bool. Each
// argument becomes one literal, whatever it contains. For CEL's operator % write %%. A format that does not fit its
// arguments is a panic, as is a verb inside quotes. All conditions of several Where must be true.
func Where(format string, args ...any) SignalOption {
	condition, err := quoteCondition(format, args)
	if err != nil {
		panic(fmt.Sprintf("the condition %q of a signal: %v", format, err))
	}
	return func(s *signalSpec) {
		if s.Condition != "" {
			condition = "(" + s.Condition + ") && (" + condition + ")"
		}
		s.Condition = condition
	}
}

// LookBack also receives signals that were sent up to d before the workflow began to wait, if their sender has kept
// them: see [KeepFor]. Without it, those of the last minute that were sent after the run's start, and that it has not
// received.
func LookBack(d time.Duration) SignalOption { return func(s *signalSpec) { s.LookBack = d.String() } }

// Subscribe opens a hook that receives signals until it is closed.
func (k *SignalKind[T]) Subscribe(w *Context, options ...SignalOption) *Hook[Received[T]] {
	spec := &signalSpec{Name: k.name}
	for _, set := range options {
		set(spec)
	}
	return openedHook[Received[T]](w, k.name, openHook{ID: w.co.Scope.ID(k.name), Signal: spec})
}

// Wait begins to wait for one signal.
func (k *SignalKind[T]) Wait(w *Context, options ...SignalOption) *Future[Received[T]] {
	exec, h := w.exec, k.Subscribe(w, options...)
	v, err := Received[T]{}, ErrCancelled
	return &Future[Received[T]]{
		done: func() bool { return h.ready() || h.op.Cancelled },
		get: func() (Received[T], error) {
			if h.ready() && h.op.Taken == 0 {
				v, err = h.take(w)
				exec.cancel(h.op, "")
			}
			return v, err
		},
		stop: func(reason string) { exec.cancel(h.op, reason) },
		op:   h.op,
	}
}

// quoteCondition puts arguments as literals into a condition.
func quoteCondition(format string, args []any) (string, error) {
	var b strings.Builder
	for rest := format; rest != ""; {
		n := literal(rest, strings.HasSuffix(strings.ToLower(b.String()), "r"))
		if n > 0 {
			if i := strings.IndexByte(rest[:n], '%'); i >= 0 && i+1 < n && strings.IndexByte("sdft", rest[i+1]) >= 0 {
				return "", fmt.Errorf("%s is inside quotes: leave the quotes out", rest[i:i+2])
			}
			b.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		if rest[0] != '%' {
			b.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		if len(rest) < 2 {
			return "", errors.New("it ends with %")
		}
		verb := rest[1]
		rest = rest[2:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if len(args) == 0 {
			return "", fmt.Errorf("there is no argument for %%%c", verb)
		}
		text, err := celLiteral(verb, args[0])
		if err != nil {
			return "", err
		}
		if touches(b.String(), rest) {
			return "", fmt.Errorf("%%%c has no space around it", verb)
		}
		b.WriteString(text)
		args = args[1:]
	}
	if len(args) > 0 {
		return "", fmt.Errorf("it has %d arguments too many", len(args))
	}
	return b.String(), nil
}

// literal returns the length of the string literal or comment at the beginning of a CEL expression; 0 if there is none.
// Raw literals have no escapes.
func literal(text string, raw bool) int {
	if strings.HasPrefix(text, "//") {
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			return i
		}
		return len(text)
	}
	for _, quote := range []string{`"""`, `'''`, `"`, `'`} {
		if !strings.HasPrefix(text, quote) {
			continue
		}
		for i := len(quote); i < len(text); i++ {
			switch {
			case strings.HasPrefix(text[i:], quote):
				return i + len(quote)
			case text[i] == '\\' && !raw:
				i++
			}
		}
		return len(text)
	}
	return 0
}

// touches reports whether what stands before or after a literal would become a part of it.
func touches(before, after string) bool {
	part := func(c byte) bool {
		return c == '_' || c == '.' || c == '"' || c == '\'' || c == '%' || c >= 0x80 ||
			'0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	return before != "" && part(before[len(before)-1]) || after != "" && part(after[0])
}

// celLiteral returns an argument as a literal of CEL.
func celLiteral(verb byte, arg any) (string, error) {
	var want byte
	var literal string
	switch v := arg.(type) {
	case string:
		want, literal = 's', celString(v)
	case int, int64:
		want, literal = 'd', fmt.Sprintf("(%d)", v)
	case bool:
		want, literal = 't', fmt.Sprintf("(%t)", v)
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			want, literal = 'f', "("+celDouble(v)+")"
		}
	}
	if literal == "" || verb != want {
		return "", fmt.Errorf("%%%c cannot stand for the %T %v", verb, arg, arg)
	}
	return literal, nil
}

func celDouble(v float64) string {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// celString returns a string literal, whose escapes mean the same in CEL and Go. Bytes that are not UTF-8 become
// U+FFFD.
func celString(text string) string { return strconv.QuoteToASCII(string([]rune(text))) }

// InboxKind is the definition of an inbox with messages of type T. It is opened with the run, so that no message is
// lost that is sent after the start. Messages come in their order, and one with the ID of an earlier one is ignored.
type InboxKind[T any] struct{ name string }

// NewInbox returns the definition of an inbox. Workflows have it that are declared with [WithInbox].
func NewInbox[T any](name string) *InboxKind[T] { return &InboxKind[T]{name} }

// Name returns the name of the inbox.
func (k *InboxKind[T]) Name() string { return k.name }

func (k *InboxKind[T]) inboxName() string { return k.name }

// lossy returns why messages cannot be kept in the log, if they cannot.
func (k *InboxKind[T]) lossy() []string {
	return unkeepable[T]("messages", fmt.Sprintf(" of inbox %q", k.name))
}

// Receive waits for the next message. If the message does not decode, the error has the code undecodable; the message
// is then consumed.
func (k *InboxKind[T]) Receive(w *Context) (T, error) { return k.Messages(w).Receive(w) }

// ReceiveWithin is [InboxKind.Receive], but waits no longer than d. Then the error is [ErrTimeout].
func (k *InboxKind[T]) ReceiveWithin(w *Context, d time.Duration) (T, error) {
	return k.Messages(w).ReceiveWithin(w, d)
}

// Messages returns the inbox as a hook, for [Hook.All], [On] and [First]. An inbox that was not opened with the run is
// opened then.
func (k *InboxKind[T]) Messages(w *Context) *Hook[T] {
	w.co.Check()
	op := w.exec.engine.Inbox(k.name)
	if !w.exec.engine.HasInbox(k.name) && !w.exec.inboxes[k.name] {
		w.exec.inboxes[k.name] = true
		w.exec.request(engine.KindOpenInbox, op, openHook{Type: "openHook", ID: op.ID})
	}
	return &Hook[T]{op}
}
