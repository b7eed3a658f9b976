package vet

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

// TestRules has a folder for each rule, with the real SDK.
func TestRules(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, analysistest.TestData(), Analyzer, "./...")
}
