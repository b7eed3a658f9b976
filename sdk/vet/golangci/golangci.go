// Package golangci makes the analyzer a linter of golangci-lint. Add it to a .custom-gcl.yml:
//
//	plugins:
//	  - module: github.com/stepwell-dev/stepwell/sdk/vet
//	    import: github.com/stepwell-dev/stepwell/sdk/vet/golangci
//
// and enable the linter stepwellvet, of the type module, in the settings.
package golangci

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/stepwell-dev/stepwell/sdk/vet"
)

func init() {
	register.Plugin(vet.Analyzer.Name, func(any) (register.LinterPlugin, error) { return plugin{}, nil })
}

type plugin struct{}

// BuildAnalyzers implements register.LinterPlugin.
func (plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{vet.Analyzer}, nil
}

// GetLoadMode implements register.LinterPlugin.
func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
