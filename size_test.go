package stepwell_test

import (
	"go/ast"
	"go/token"
	"os"
	"slices"
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

// TestPackagesAreSmall limits the files of a folder and the names that a package exports.
func TestPackagesAreSmall(t *testing.T) {
	t.Parallel()
	const maxFiles = 20
	maxNames := map[string]int{"entities": 100, "eventlog": 40, "queue": 40}
	folders, names := map[string]int{}, map[string]int{}
	for _, f := range files(t) {
		if !f.isTest() {
			folders[f.pkg()]++
			names[f.pkg()] += f.exported()
		}
	}
	for folder, n := range folders {
		if n > maxFiles {
			t.Errorf("%s has %d files without tests; the limit is %d", folder, n, maxFiles)
		}
	}
	for pkg, most := range maxNames {
		if n := names[pkg]; n > most || n == 0 {
			t.Errorf("package %s exports %d names; the limit is %d", pkg, n, most)
		}
	}
}

// exported returns how many names the file exports. The constants of one declaration, such as the values of a type,
// count as one name; fields and methods do not count.
func (f file) exported() (n int) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				n++
			}
		case *ast.GenDecl:
			exports := 0
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						exports++
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
						exports++
					}
				}
			}
			if d.Tok == token.CONST {
				exports = min(exports, 1)
			}
			n += exports
		}
	}
	return n
}
