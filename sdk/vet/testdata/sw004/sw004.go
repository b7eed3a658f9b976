package sw004

import (
	crand "crypto/rand"
	"math/rand/v2"
	"net/http"
	"os"

	stepwell "github.com/stepwell-dev/stepwell/sdk"
)

func workflow(w *stepwell.Context, in http.Header) (string, error) {
	n := rand.IntN(6) // want "SW004: rand.IntN is called; use w.Rand"
	n += w.Rand().IntN(6)
	_ = crand.Text()              // want "SW004: rand.Text is called"
	_ = os.Getenv("HOME")         // want "SW004: os.Getenv is called; do it in a step"
	_, err := http.Get("http://") // want "SW004: http.Get is called"
	_ = rand.New(rand.NewPCG(1, uint64(n))).IntN(6)
	_ = in.Get("Accept")
	return stepwell.Value(w, "token", func() string { return crand.Text() }), err
}
