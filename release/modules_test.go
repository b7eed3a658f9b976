package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const root = "github.com/stepwell-dev/stepwell"

// program uses the SDK, and the module beside it.
const program = `package main

import (
	"fmt"

	"github.com/stepwell-dev/stepwell/sdk"
	_ "github.com/stepwell-dev/stepwell/sdk/stepwellotel"
)

func main() { fmt.Println(stepwell.NewApp(stepwell.AppConfig{Name: "orders"}) != nil) }
`

// tryModules serves the modules as a proxy would after their tags are pushed, and gets them in an empty module.
func tryModules(t *testing.T, r release) {
	work := t.TempDir()
	s, err := checkOut(t.Context(), "..", r.version, filepath.Join(work, "source"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range modules {
		if err := writeProxy(s, filepath.Join(work, "proxy"), folder); err != nil {
			t.Fatal(err)
		}
	}
	shared, err := output(t.Context(), ".", nil, "go", "env", "GOMODCACHE")
	if err != nil {
		t.Fatal(err)
	}
	others, err := output(t.Context(), ".", nil, "go", "env", "GOPROXY")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"GOPROXY=file://" + work + "/proxy,file://" + shared + "/cache/download," + others, "GONOSUMDB=" + root + "," + root + "/*",
		"GOMODCACHE=" + work + "/cache", "GOFLAGS=-modcacherw -mod=mod -trimpath", "GOWORK=off",
	}
	app := filepath.Join(work, "app")
	if err := writeAll(app, map[string]string{"main.go": program}); err != nil {
		t.Fatal(err)
	}
	want(t, "", app, env, "go", "mod", "init", "example.test/app")
	want(t, "", app, env, "go", "get", root+"/sdk@"+r.version, root+"/sdk/stepwellotel@"+r.version)
	want(t, "true", app, env, "go", "run", ".")
	want(t, "", app, env, "go", "get", root+"/embedded@"+r.version, root+"/sdk/vet@"+r.version)
	want(t, root+"/embedded", app, env, "go", "list", root+"/embedded")
}

// writeProxy adds a module to a folder that is a GOPROXY.
func writeProxy(s source, proxy, folder string) error {
	path := root
	if folder != "" {
		path += "/" + folder
	}
	info, err := json.Marshal(map[string]any{"Version": s.version, "Time": s.time})
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(s.path(filepath.Join(folder, "go.mod")))
	if err != nil {
		return err
	}
	versions := filepath.Join(proxy, path, "@v")
	if err := writeAll(versions, map[string]string{
		"list": s.version + "\n", s.version + ".info": string(info), s.version + ".mod": string(mod),
	}); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(versions, s.version+".zip"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := zip.CreateFromVCS(f, module.Version{Path: path, Version: s.version}, s.folder, "HEAD", folder); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}
