package stepwell_test

import (
	"os"
	"strings"
	"testing"
)

// TestFilesAreShort checks the house style's limit on the length of files.
func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	const limit = 500
	for _, f := range files(t) {
		data, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(data), "\n"); n > limit {
			t.Errorf("%s has %d lines; the limit is %d", f.path, n, limit)
		}
	}
}
