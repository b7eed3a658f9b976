package admin

import (
	"testing"
	"time"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	home     entities.Project = "home"
	stranger entities.Project = "stranger"
)

// day is the time at which the tests take place.
var day = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func now() time.Time { return day }
