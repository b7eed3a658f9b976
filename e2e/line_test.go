package e2e

import "github.com/stepwell-dev/stepwell/e2e/harness"

// line is a line of the SDK: the same app on other packages. What only the 5.x line has is in folder beta.
type line struct {
	name string
	dir  string
	// spec is the version that the World announces, and that runs carry.
	spec int
	// otherBuild is a folder with a build that has another World compiled in, where the line compiles it in.
	otherBuild string

	folder *harness.Folder
}

var (
	stable = newLine(line{name: "stable", dir: "app", spec: 3})
	beta35 = newLine(line{name: "beta35", dir: "beta35", spec: 5, otherBuild: "./other-world"})
	beta55 = newLine(line{name: "beta55", dir: "beta55", spec: 7})

	lines = []*line{stable, beta35, beta55}
)

// later says that the line has all that came with another.
func (l *line) later(than *line) bool { return l.spec >= than.spec }

// named makes a name that no other line uses: all share one server.
func (l *line) named(name string) string { return name + "-" + l.name }

func newLine(l line) *line {
	l.folder = harness.AppFolder(l.dir)
	return &l
}
