package main

import (
	"encoding/json"
	"errors"
	"io"
	"runtime/debug"
	"strings"
)

// sbomCmd prints which modules the binary contains, as the build recorded them. The image has its output.
type sbomCmd struct{}

// Run prints a bill of materials in the format CycloneDX 1.6.
func (sbomCmd) Run(stdout io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("the binary was built without module information")
	}
	e := json.NewEncoder(stdout)
	e.SetIndent("", "  ")
	return e.Encode(newSBOM(info))
}

// sbom is a bill of materials; see https://cyclonedx.org/docs/1.6/json/.
type sbom struct {
	BOMFormat   string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

func newSBOM(info *debug.BuildInfo) sbom {
	s := sbom{BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1}
	s.Metadata.Component = newComponent("application", info.Main.Path, info.Main.Version)
	s.Components = []component{newComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		s.Components = append(s.Components, newComponent("library", m.Path, m.Version))
	}
	return s
}

func newComponent(kind, path, version string) component {
	return component{kind, path, version, "pkg:golang/" + path + "@" + version}
}
