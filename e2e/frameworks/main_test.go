package frameworks

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMain limits parallel tests to two: the frameworks use all processors when they build.
func TestMain(m *testing.M) { harness.Main(2, func() { testdb.Main(m) }) }
