package cells

import (
	"testing"

	"github.com/stepwell-dev/stepwell/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(2, func() { m.Run() }) }
