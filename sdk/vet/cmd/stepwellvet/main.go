// Command stepwellvet reports workflows of the Stepwell SDK that are not deterministic. Package vet describes its
// rules.
//
//	stepwellvet ./...
//	go vet -vettool=$(which stepwellvet) ./...
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/stepwell-dev/stepwell/sdk/vet"
)

func main() { multichecker.Main(vet.Analyzer) }
