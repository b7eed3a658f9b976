package stepwell_test

import (
	"context"
	"fmt"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
	"github.com/stepwell-dev/stepwell/sdk/stepwelltest"
)

var (
	Trip        = stepwell.NewWorkflow[string, string]("trip")
	BookFlight  = stepwell.NewStep[string, string]("book-flight")
	CancelSeat  = stepwell.NewStep[string, stepwell.None]("cancel-flight", stepwell.Attempts(20))
	CancelAny   = stepwell.NewStep[string, stepwell.None]("cancel-any-flight")
	BookHotel   = stepwell.NewStep[string, string]("book-hotel")
	ErrFull     = stepwell.NewErrorKind[string]("hotel_full")
	cancelSeats = BookFlight.Undo(func(w *stepwell.Context, city string, seat *string) error {
		if seat == nil { // perhaps one was booked, and the answer was lost
			_, err := CancelAny.Run(w, city)
			return err
		}
		_, err := CancelSeat.Run(w, *seat)
		return err
	})
)

// trip books a flight and a hotel. If the hotel cannot be booked, or if somebody cancels the run, the seat is given back.
func trip(w *stepwell.Context, city string) (string, error) {
	return stepwell.WithSaga(w, func(w *stepwell.Context, _ *stepwell.Saga) (string, error) {
		seat, err := BookFlight.Run(w, city, cancelSeats)
		if err != nil {
			return "", err
		}
		room, err := BookHotel.Run(w, city)
		return seat + " and " + room, err
	})
}

func ExampleWithSaga() {
	env := stepwelltest.New(t, Trip.Bind(trip))
	stepwelltest.Stub(env, BookFlight, func(context.Context, string) (string, error) { return "seat 9F", nil })
	stepwelltest.Stub(env, BookHotel, func(_ context.Context, city string) (string, error) {
		return "", ErrFull.New(city) // final: not tried again
	})
	stepwelltest.Stub(env, CancelSeat, func(_ context.Context, seat string) (stepwell.None, error) {
		return stepwell.None{}, nil
	})
	cancelled := stepwelltest.Spy(env, CancelSeat)

	run := stepwelltest.Start(env, Trip, "Vienna")
	env.RunUntilDone()
	_, err := run.Result()
	city, full := ErrFull.Find(err)
	fmt.Println("full:", full, city)
	fmt.Println("cancelled:", cancelled.Calls())
	// Output:
	// full: true Vienna
	// cancelled: [seat 9F]
}
