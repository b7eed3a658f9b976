package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// licences writes, for each target, the licences of all that its binary contains.
func (r release) licences(ctx context.Context) error {
	for _, t := range targets {
		if err := r.licencesOf(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// licencesOf puts the licence of Stepwell, and THIRD_PARTY_LICENSES, into the folder of a target.
func (r release) licencesOf(ctx context.Context, t target) error {
	folders, err := r.modulesIn(ctx, filepath.Join(r.stage(t), "stepwell"))
	if err != nil {
		return err
	}
	packages, err := r.installDashboard(ctx)
	if err != nil {
		return err
	}
	for _, p := range packages {
		folders[p.Name+" "+p.Version+" (npm)"] = r.path("ui/node_modules/" + p.Name)
	}
	goroot, err := output(ctx, r.folder, nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	folders["Go "+strings.TrimPrefix(runtime.Version(), "go")] = goroot
	var text strings.Builder
	var faults []error
	for _, name := range sorted(folders) {
		licences, err := licencesIn(folders[name])
		if err != nil || licences == "" {
			faults = append(faults, fmt.Errorf("found no licence of %s in %s (%w)", name, folders[name], err))
		}
		fmt.Fprintf(&text, "%s\n%s\n\n%s\n\n", name, strings.Repeat("=", len(name)), licences)
	}
	own, err := os.ReadFile(r.path("LICENSE"))
	faults = append(faults, err, writeAll(r.stage(t), map[string]string{
		"LICENSE": string(own), "THIRD_PARTY_LICENSES": text.String(),
	}))
	return errors.Join(faults...)
}

// modulesIn returns the folders of the modules that are in a binary, by name and version.
func (r release) modulesIn(ctx context.Context, binary string) (map[string]string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}
	for _, m := range info.Deps {
		args = append(args, m.Path)
	}
	list, err := output(ctx, r.folder, nil, "go", args...)
	if err != nil {
		return nil, err
	}
	folders := map[string]string{}
	for line := range strings.Lines(list) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		folders[name] = folder
	}
	return folders, nil
}

// npmPackage is a package that is in the dashboard.
type npmPackage struct{ Name, Version, License string }

// installDashboard installs the packages that are bundled in the dashboard, and returns them.
func (r release) installDashboard(ctx context.Context) ([]npmPackage, error) {
	text, err := os.ReadFile(r.path("ui/package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev              bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, err
	}
	var list []npmPackage
	for _, path := range sorted(lock.Packages) {
		if p := lock.Packages[path]; path != "" && !p.Dev {
			list = append(list, npmPackage{strings.TrimPrefix(path, "node_modules/"), p.Version, p.License})
		}
	}
	if _, err := os.Stat(r.path("ui/node_modules")); err == nil {
		return list, nil
	}
	_, err = output(ctx, r.path("ui"), nil, "npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
	return list, err
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-]\w+)*$`)

// licencesIn returns the licences in a folder.
func licencesIn(folder string) (string, error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, f := range files {
		if f.IsDir() || !licenceFile.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	return strings.Join(texts, "\n\n"), nil
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// bills writes for each system what is in the binary, with licences, in the format CycloneDX.
func (r release) bills(ctx context.Context) error {
	tool, err := output(ctx, ".", nil, "go", "tool", "-n", "cyclonedx-gomod")
	if err != nil {
		return err
	}
	packages, err := r.installDashboard(ctx)
	if err != nil {
		return err
	}
	for _, t := range targets {
		file := r.file("_" + t.os + "_" + t.arch + ".cdx.json")
		_, err := output(ctx, r.folder, t.env(), tool, "app", "-json", "-licenses", "-std", "-noserial", "-notimestamp",
			"-main", "cmd/stepwell", "-output", file, ".")
		if err != nil {
			return err
		}
		if err := addPackages(file, packages); err != nil {
			return err
		}
	}
	return nil
}

// addPackages adds those of the dashboard to a bill of materials.
func addPackages(file string, packages []npmPackage) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	bom := new(cyclonedx.BOM)
	if err := cyclonedx.NewBOMDecoder(f, cyclonedx.BOMFileFormatJSON).Decode(bom); err != nil {
		return err
	}
	for _, p := range packages {
		url := "pkg:npm/" + strings.Replace(p.Name, "@", "%40", 1) + "@" + p.Version
		*bom.Components = append(*bom.Components, cyclonedx.Component{
			BOMRef: url, PackageURL: url, Type: cyclonedx.ComponentTypeLibrary, Name: p.Name, Version: p.Version,
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: p.License}}},
		})
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	if err := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}
