package sw013

import (
	"fmt"
	"log"
	"log/slog"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

func workflow(w *stepwell.Context, in string) (string, error) {
	log.Print(in)   // want "SW013: log.Print is called; each replay repeats it; use w.Log"
	slog.Info(in)   // want "SW013: slog.Info is called"
	fmt.Println(in) // want "SW013: fmt.Println is called"
	w.Log().Info(in)
	return fmt.Sprint(in), nil
}
