// Command build bundles the dashboard: it makes ../dist of ../src. It needs the packages that `npm ci` installs in the
// folder above, and no Node. It is a module of its own, so that Stepwell does not depend on the bundler.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// root is the folder of the dashboard, seen from this one.
const root = ".."

func main() {
	log.SetFlags(0)
	files, err := bundle()
	if err == nil {
		err = write(filepath.Join(root, "dist"), files)
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range sortedNames(files) {
		fmt.Printf("%8d %s\n", len(files[name]), name)
	}
}

// bundle returns the files of dist by name.
func bundle() (map[string][]byte, error) {
	result := api.Build(options("src/app.tsx"))
	if len(result.Errors) > 0 {
		return nil, errorOf(result.Errors)
	}
	files := map[string][]byte{}
	for _, f := range result.OutputFiles {
		files["assets/"+filepath.Base(f.Path)] = f.Contents
	}
	icon, err := os.ReadFile(filepath.Join(root, "src", "icon.svg"))
	if err != nil {
		return nil, err
	}
	files["assets/icon.svg"] = icon
	page, err := os.ReadFile(filepath.Join(root, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	files["index.html"], err = refer(string(page), files)
	return files, err
}

func options(entry string) api.BuildOptions {
	folder, err := filepath.Abs(root)
	if err != nil {
		log.Fatal(err)
	}
	return api.BuildOptions{
		AbsWorkingDir: folder, EntryPoints: []string{entry}, Outdir: "dist/assets", EntryNames: "[name]-[hash]",
		ChunkNames: "[name]-[hash]", Splitting: true, Bundle: true, Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", LegalComments: api.LegalCommentsNone,
	}
}

// refer replaces the names in the page's {{…}} by those with a hash: {{app.js}} by app-HASH.js.
func refer(page string, files map[string][]byte) ([]byte, error) {
	for _, name := range sortedNames(files) {
		stem, _, hashed := strings.Cut(path.Base(name), "-")
		if hashed {
			page = strings.ReplaceAll(page, "{{"+stem+path.Ext(name)+"}}", path.Base(name))
		}
	}
	if rest := strings.ReplaceAll(page, "{{base}}", ""); strings.Contains(rest, "{{") {
		return nil, errors.New("index.html refers to a file that the bundle does not have")
	}
	return []byte(page), nil
}

// write replaces the folder by the files.
func write(folder string, files map[string][]byte) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "assets"), 0o755); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, filepath.FromSlash(name)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func sortedNames(files map[string][]byte) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func errorOf(messages []api.Message) error {
	text := api.FormatMessages(messages, api.FormatMessagesOptions{Kind: api.ErrorMessage})
	return errors.New(strings.Join(text, "\n"))
}
