// Package stepwell is the Go SDK of Stepwell. A workflow is a plain Go function:
//
//	var Order = stepwell.NewWorkflow[Purchase, Receipt]("order")
//	var Charge = stepwell.NewStep[Purchase, Payment]("charge", stepwell.Attempts(5))
//
//	func order(w *stepwell.Context, p Purchase) (Receipt, error) {
//		paid, err := Charge.Run(w, p)
//		if err != nil {
//			return Receipt{}, err
//		}
//		if err := w.Sleep(24 * time.Hour); err != nil {
//			return Receipt{}, err
//		}
//		return Receipt{Payment: paid}, nil
//	}
//
// The function runs from its beginning whenever something has happened. What it asked for before is in the log of its
// run, so it gets the same results again and goes on from there. It must therefore be deterministic: everything that
// talks to the world belongs into steps, which are ordinary functions with a [context.Context], or into [Do].
//
// # Rules for workflows
//
//   - Use the Context that the innermost function gets. Start no goroutines; use [Go] and [Map].
//   - Take the time from [Context.Now], random numbers from [Context.Rand], and IDs from [Context.UUID]; log with
//     [Context.Log].
//   - Deferred functions run whenever the workflow waits, since the function then ends. Use [Context.OnEnd].
//   - Cancellation is a request: each wait then returns [ErrCancelled]. Return it, and clean up by [WithSaga] or with a
//     handle of [Context.Detached].
//   - Do not range over a map to ask for steps: its order is random.
//
// A step runs at least once, and its result is recorded once. Pass [IdempotencyKey] on to what it calls.
//
// This package imports only the standard library and packages of the SDK.
package stepwell
