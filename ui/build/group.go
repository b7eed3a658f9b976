package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// build is what the bundler has made: its files, and what it says of them.
type build struct {
	files   []api.OutputFile
	outputs map[string]output // by path
}

type output struct {
	EntryPoint string
	Inputs     map[string]any // the sources in it, by path
	Imports    []struct{ Path, Kind string }
}

func parse(result api.BuildResult) (build, error) {
	if len(result.Errors) > 0 {
		return build{}, errorOf(result.Errors)
	}
	var meta struct{ Outputs map[string]output }
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return build{}, fmt.Errorf("metafile: %w", err)
	}
	return build{result.OutputFiles, meta.Outputs}, nil
}

// entry returns the file that the program begins with.
func (b build) entry() string {
	for name, o := range b.outputs {
		if o.EntryPoint == entry {
			return name
		}
	}
	return ""
}

// program returns the file that has the program: the entry, or what that does nothing but import.
func (b build) program() string {
	name := b.entry()
	if o := b.outputs[name]; len(o.Inputs) == 0 && len(o.Imports) == 1 {
		return o.Imports[0].Path
	}
	return name
}

// lazy returns the sources that the program imports when they are needed.
func (b build) lazy() (sources []string) {
	for _, o := range b.outputs {
		if o.EntryPoint != "" && o.EntryPoint != entry && o.EntryPoint != style {
			sources = append(sources, o.EntryPoint)
		}
	}
	slices.Sort(sources)
	return sources
}

// shared returns the sources that several lazy ones have in common, and that the program does not have.
func (b build) shared() (sources []string) {
	first := map[string]bool{}
	var add func(string)
	add = func(name string) {
		if first[name] {
			return
		}
		first[name] = true
		for _, i := range b.outputs[name].Imports {
			if i.Kind == "import-statement" {
				add(i.Path)
			}
		}
	}
	add(b.entry())
	for name, o := range b.outputs {
		if o.EntryPoint != "" || first[name] {
			continue
		}
		for source := range o.Inputs {
			sources = append(sources, source)
		}
	}
	slices.Sort(sources)
	return sources
}

// group makes few files where the bundler would make one for each set of pages that have a source in common: one with the
// program, one with what is shared, and one for each lazy source. It does so by letting all lazy sources import both.
func group(lazy, shared []string) api.Plugin {
	setup := func(b api.PluginBuild) {
		folder := b.InitialOptions.AbsWorkingDir
		b.OnLoad(api.OnLoadOptions{Filter: `\.tsx?$`}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
			name, err := filepath.Rel(folder, args.Path)
			if err != nil || !slices.Contains(lazy, filepath.ToSlash(name)) {
				return api.OnLoadResult{}, err
			}
			source, err := os.ReadFile(args.Path)
			text := string(source)
			for _, other := range append([]string{entry}, shared...) {
				text = fmt.Sprintf("import %q;\n", filepath.ToSlash(filepath.Join(folder, other))) + text
			}
			loader := api.LoaderTS
			if strings.HasSuffix(name, "x") {
				loader = api.LoaderTSX
			}
			return api.OnLoadResult{Contents: &text, Loader: loader}, err
		})
	}
	return api.Plugin{Name: "group", Setup: setup}
}
