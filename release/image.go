package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificates is where Go looks for the authorities that a client trusts.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// makeImage makes the image for a processor from nothing but a static binary, the authorities for calling functions by
// HTTPS, and licences. It has no shell and no packages, and does not run as root.
func makeImage(folder, arch string, at time.Time, labels map[string]string) (v1.Image, error) {
	authorities := filepath.Join(folder, "authorities.pem")
	if err := writeAuthorities(authorities); err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	err := writeTar(&packed, []entry{
		{certificates, authorities},
		{"licenses/LICENSE", filepath.Join(folder, "LICENSE")},
		{"licenses/THIRD_PARTY_LICENSES", filepath.Join(folder, "THIRD_PARTY_LICENSES")},
		{"stepwell", filepath.Join(folder, "stepwell")},
	}, at)
	if err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: at}, CreatedBy: "make release",
	}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configOf(image, arch, at, labels))
}

// configOf says how the image runs. The health check is for Docker: manifests of OCI have none.
func configOf(image v1.Image, arch string, at time.Time, labels map[string]string) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		panic(err) // it is in memory
	}
	config := file.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: at}
	config.Config = v1.Config{
		User:         "65532:65532",
		Env:          []string{"PATH=/", "STEPWELL_LISTEN=:8788", "STEPWELL_LOG=json"},
		ExposedPorts: map[string]struct{}{"8788/tcp": {}},
		Entrypoint:   []string{"/stepwell"},
		Cmd:          []string{"serve"},
		Labels:       maps.Clone(labels),
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/stepwell", "health"}, Interval: 5 * time.Second, Timeout: 5 * time.Second,
			StartPeriod: 30 * time.Second,
		},
	}
	return config
}

// writeAuthorities writes those that Mozilla trusts.
func writeAuthorities(file string) error {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // Go's own roots would check it, a file cannot
		}
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return err
		}
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// image writes an OCI layout with the images of both processors, as a tar file.
func (r release) image(context.Context) error {
	labels := map[string]string{
		"org.opencontainers.image.title":       "Stepwell",
		"org.opencontainers.image.description": "Durable workflows for serverless functions, on nothing but Postgres",
		"org.opencontainers.image.source":      "https://github.com/stepwell-dev/stepwell",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.number(),
		"org.opencontainers.image.revision":    r.commit,
	}
	var both []mutate.IndexAddendum
	for _, t := range targets {
		if t.os != "linux" {
			continue
		}
		image, err := makeImage(r.stage(t), t.arch, r.time, labels)
		if err != nil {
			return err
		}
		both = append(both, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: t.os, Architecture: t.arch},
		}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), both...)
	folder := filepath.Join(r.work, "layout")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	annotations := map[string]string{"org.opencontainers.image.ref.name": r.number()}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	list, err := below(folder)
	if err != nil {
		return err
	}
	f, err := os.Create(r.file("_image.oci.tar"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := writeTar(f, list, r.time); err != nil {
		return err
	}
	return f.Close()
}

// writeImage writes the image of what is in the working tree, as the tag stepwell:latest.
func writeImage(ctx context.Context, arch, file string) error {
	work, err := os.MkdirTemp("", "stepwell-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	r := release{source: source{folder: "..", version: "v0.0.0"}, work: work}
	t := target{"linux", arch}
	if err := build(ctx, r.folder, t, filepath.Join(r.stage(t), "stepwell")); err != nil {
		return err
	}
	if err := r.licencesOf(ctx, t); err != nil {
		return err
	}
	image, err := makeImage(r.stage(t), t.arch, time.Unix(0, 0), nil)
	if err != nil {
		return err
	}
	tag, err := name.NewTag("stepwell:latest")
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, image)
}
