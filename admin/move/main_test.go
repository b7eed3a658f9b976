package move

import (
	"testing"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }
