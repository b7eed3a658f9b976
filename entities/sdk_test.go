package entities

import (
	"errors"
	"strings"
	"testing"
)

func TestKnownSpecVersionsAreThoseOfTheLines(t *testing.T) {
	t.Parallel()
	for i, line := range SDKLines {
		if line.Oldest > line.Mints || i > 0 && line.Mints <= SDKLines[i-1].Mints {
			t.Errorf("line %s: versions %d to %d are out of order", line.Name, line.Oldest, line.Mints)
		}
		for v := line.Oldest; v <= line.Mints; v++ {
			if err := CheckSpecVersion(v); err != nil {
				t.Errorf("line %s: %v", line.Name, err)
			}
		}
	}
	newest := SDKLines[len(SDKLines)-1]
	if newest.Mints != specNewest {
		t.Errorf("line %s mints %d, and the server knows %d", newest.Name, newest.Mints, specNewest)
	}
	for v, remedy := range map[int]string{
		specOldest - 1:     "install workflow 4.8 or newer in the app",
		newest.Mints + 1:   "update the Stepwell server, or install workflow " + newest.Releases + " in the app",
		newest.Mints + 100: "update the Stepwell server",
	} {
		err := CheckSpecVersion(v)
		if !errors.Is(err, ErrSpecVersion) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("version %d: got %v, want that the remedy is: %s", v, err, remedy)
		}
	}
}
