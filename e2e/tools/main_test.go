package tools

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
	"github.com/stepwell-dev/stepwell/migrations/testdb"
)

// TestMain: tests wait for servers and apps as much as they compute, but each tool is a Node process that wants
// a whole processor for a second.
func TestMain(m *testing.M) { harness.Main(6, func() { testdb.Main(m) }) }
