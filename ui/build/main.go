// Command build bundles the dashboard: it makes ../dist of ../src. It needs the packages that `npm ci` installs in the
// folder above, and no Node. It is a module of its own, so that Stepwell does not depend on the bundler.
package main

import (
	"encoding/base64"
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

// root is the folder of the dashboard, seen from this one, entry its program, and style its style sheet, in that folder.
const (
	root  = ".."
	entry = "src/app.tsx"
	style = "src/css/app.css"
)

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
	apart, err := parse(api.Build(options(entry, style)))
	if err != nil {
		return nil, err
	}
	grouped := options(entry, style)
	grouped.Plugins = []api.Plugin{group(apart.lazy(), apart.shared())}
	built, err := parse(api.Build(grouped))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range built.files {
		files["assets/"+filepath.Base(f.Path)] = f.Contents
	}
	program := built.program()
	if stub := built.entry(); stub != program {
		delete(files, "assets/"+path.Base(stub))
	}
	icon, err := os.ReadFile(filepath.Join(root, "src", "icon.svg"))
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(root, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	text := strings.ReplaceAll(string(page), "{{icon}}", "data:image/svg+xml;base64,"+base64.StdEncoding.EncodeToString(icon))
	text = strings.ReplaceAll(text, "{{app.js}}", path.Base(program))
	files["index.html"], err = refer(text, files)
	return files, err
}

func options(entries ...string) api.BuildOptions {
	folder, err := filepath.Abs(root)
	if err != nil {
		log.Fatal(err)
	}
	return api.BuildOptions{
		AbsWorkingDir: folder, EntryPoints: entries, Outdir: "dist/assets", EntryNames: "[name]-[hash]",
		ChunkNames: "[name]-[hash]", Splitting: true, Bundle: true, Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		Metafile: true, MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", LegalComments: api.LegalCommentsNone,
	}
}

// refer replaces the names in the page's {{…}} by those with a hash: {{app.css}} by app-HASH.css.
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
