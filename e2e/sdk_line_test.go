package e2e

import "github.com/stepwell-dev/stepwell/e2e/harness"

// sdkLine is a version line of the SDK. All lines build the same app; workflows for the 5.x line alone are in folder
// beta.
type sdkLine struct {
	name string
	dir  string
	// spec is the spec version of the World, and of its runs.
	spec int
	// otherBuild is the folder of a build with another World compiled in, for the line whose builds contain the World.
	otherBuild string

	folder *harness.Folder
}

var (
	stable = newLine(sdkLine{name: "stable", dir: "app", spec: 3})
	beta35 = newLine(sdkLine{name: "beta35", dir: "beta35", spec: 5, otherBuild: "./other-world"})
	beta55 = newLine(sdkLine{name: "beta55", dir: "beta55", spec: 7})

	sdkLines = tested(stable, beta35, beta55)
)

// tested returns the lines to test: the usual ones, or the version that is given instead.
func tested(usual ...*sdkLine) []*sdkLine {
	if l, ok := harness.GivenLine(); ok {
		return []*sdkLine{newLine(sdkLine{name: l.Name, dir: l.Dir, spec: l.Spec})}
	}
	return usual
}

// newestLine returns the lines for tests of what does not depend on the line: all of them in a long test, else the newest.
func newestLine() []*sdkLine {
	if harness.IsLong() {
		return sdkLines
	}
	return sdkLines[len(sdkLines)-1:]
}

// atLeast reports whether the line has all features of the other.
func (l *sdkLine) atLeast(other *sdkLine) bool { return l.spec >= other.spec }

// named makes a name unique to the line, because all lines share one server.
func (l *sdkLine) named(name string) string { return name + "-" + l.name }

func newLine(l sdkLine) *sdkLine {
	l.folder = harness.AppFolder(l.dir)
	return &l
}
