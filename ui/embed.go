// Package ui embeds the dashboard: dist is what ui/build makes of src.
package ui

import (
	"embed"
	"io/fs"
)

//go:embed dist
var dist embed.FS

// Files returns the dashboard's files: index.html, and below assets the files that it refers to. The names of those
// contain a hash of their content. In index.html, {{base}} stands for the path below which a server is reached.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // only an invalid path fails
	}
	return files
}
