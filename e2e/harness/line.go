package harness

import (
	"os"
	"strconv"
	"strings"
)

// Line is a version of the SDK that is tested in place of the usual ones; see scripts/sdk-line.
type Line struct {
	Name string
	// Dir is the folder of its app, beside those of the others.
	Dir string
	// Spec is the spec version of its runs.
	Spec int
}

// GivenLine returns the version in the environment variables SDK_LINE and SDK_SPEC, if there is one.
func GivenLine() (l Line, given bool) {
	version := os.Getenv("SDK_LINE")
	if version == "" {
		return Line{}, false
	}
	spec, err := strconv.Atoi(os.Getenv("SDK_SPEC"))
	if err != nil {
		panic("SDK_SPEC is the spec version of SDK_LINE: " + err.Error())
	}
	return Line{Name: "v" + strings.ReplaceAll(version, ".", "-"), Dir: "line-" + version, Spec: spec}, true
}
