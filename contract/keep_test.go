package contract

import (
	"errors"
	"strings"
	"testing"

	"github.com/stepwell-dev/stepwell/entities"
)

func TestKeepIsParsed(t *testing.T) {
	t.Parallel()
	for keep, want := range map[string]string{
		`null`:                          "",
		`{"seq":1,"by":"p","for":"5m"}`: "",
		`{"seq":0,"by":"p","for":"5m"}`: "seq 0 is no position",
		`{"seq":1,"by":"","for":"5m"}`:  "by is missing",
		`{"seq":1,"by":"` + strings.Repeat("p", 65) + `","for":"5m"}`: "65 bytes long",
		`{"seq":1,"by":"p"}`:                     `want "for" between 0 and 5m`,
		`{"seq":1,"by":"p","for":"6m"}`:          `want "for" between 0 and 5m`,
		`{"seq":1,"by":"p","for":"5m","url":""}`: "url",
	} {
		_, err := orders.Plan([]byte(`{"keep":` + keep + `}`))
		if (err != nil) != (want != "") || err != nil && (!strings.Contains(err.Error(), want) || !errors.Is(err, entities.ErrInvalid)) {
			t.Errorf("%s: got error %v, want %q", keep, err, want)
		}
	}
}
