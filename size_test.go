package stepwell_test

import (
	"go/ast"
	"os"
	"strings"
	"testing"
)

// TestFilesAreShort checks the house style's limit on the length of files that people write.
func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	const limit = 500
	for _, f := range files(t) {
		if ast.IsGenerated(f.File) {
			continue
		}
		data, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > limit {
			t.Errorf("%s has %d lines; the limit is %d", f.path, n, limit)
		}
	}
}
