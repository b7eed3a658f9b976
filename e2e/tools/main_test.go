package tools

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMain limits parallel tests to six: tests mostly wait for servers and apps, but each tool is a Node process that
// uses a whole processor for a second.
func TestMain(m *testing.M) { harness.Main(6, func() { testdb.Main(m) }) }
