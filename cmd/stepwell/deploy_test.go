package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stepwell-dev/stepwell/migrations/testdb"
	"github.com/stepwell-dev/stepwell/server"
	"github.com/stepwell-dev/stepwell/server/servertest"
)

// deployFolder holds the manifests.
const deployFolder = "../../deploy"

// manifest is a YAML document.
type manifest struct {
	file string
	root map[string]any
}

// manifests returns all documents of all files. Duplicate keys are errors.
func manifests(t *testing.T) []manifest {
	t.Helper()
	var list []manifest
	files, err := filepath.Glob(deployFolder + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob(deployFolder + "/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, below...) {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewDecoder(f); ; {
			m := manifest{file: strings.TrimPrefix(file, deployFolder+"/")}
			err := decoder.Decode(&m.root)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", m.file, err)
			}
			list = append(list, m)
		}
		_ = f.Close()
	}
	if len(list) < 8 {
		t.Fatalf("found only %d manifests", len(list))
	}
	return list
}

// manifestOf returns the manifest in a file.
func manifestOf(t *testing.T, file string) manifest {
	t.Helper()
	for _, m := range manifests(t) {
		if m.file == file {
			return m
		}
	}
	t.Fatalf("no manifest %s", file)
	return manifest{}
}

// at returns the value at a path of keys and indexes, or nil.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// visitMaps visits all maps within a value.
func visitMaps(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, child := range v {
			visitMaps(child, visit)
		}
	case []any:
		for _, child := range v {
			visitMaps(child, visit)
		}
	}
}

// variables returns the environment that a manifest sets. References to other objects are empty.
func variables(m manifest) map[string]string {
	found := map[string]string{}
	visitMaps(m.root, func(v map[string]any) {
		if strings.HasPrefix(text(v["image"]), "postgres:") {
			delete(v, "environment") // of Postgres
		}
		for _, key := range []string{"environment", "Variables", "stringData"} {
			names, _ := v[key].(map[string]any)
			for name, value := range names {
				found[name] = text(value)
			}
		}
		list, _ := v["env"].([]any)
		for _, e := range list {
			found[text(at(e, "name"))] = text(at(e, "value"))
		}
	})
	return found
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// knownVariables returns the variables that the command reads.
func knownVariables() []string {
	names := []string{"STEPWELL_ROLE"} // see serveCmd
	var add func(reflect.Type)
	add = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if name := f.Tag.Get("env"); name != "" {
				names = append(names, strings.Split(name, ",")[0])
			} else if f.Type.Kind() == reflect.Struct {
				add(f.Type)
			}
		}
	}
	add(reflect.TypeFor[config]())
	return names
}

// TestManifestVariablesAreValid: the command reads all variables of the manifests and accepts their values.
func TestManifestVariablesAreValid(t *testing.T) {
	t.Parallel()
	names := knownVariables()
	inDockerfile := regexp.MustCompile(`STEPWELL_[A-Z_]+`)
	found := 0
	for _, m := range manifests(t) {
		var environ []string
		parameters, _ := at(m.root, "Parameters").(map[string]any)
		for name, value := range variables(m) {
			found++
			if !slices.Contains(names, name) {
				t.Errorf("%s sets the unknown variable %s", m.file, name)
			}
			_, isParameter := parameters[value] // the text of a reference
			if value != "" && !strings.Contains(value, "$") && !isParameter {
				environ = append(environ, name+"="+value)
			}
		}
		c, err := readConfig(environ)
		if err == nil {
			_, err = c.newLogger(io.Discard)
		}
		if err != nil {
			t.Errorf("%s: %v", m.file, err)
		}
	}
	if found < 20 {
		t.Errorf("found only %d variables", found)
	}
	for _, file := range []string{deployFolder + "/lambda/Dockerfile", deployFolder + "/systemd/stepwell.env", deployFolder + "/README.md"} {
		for _, name := range inDockerfile.FindAllString(mustRead(t, file), -1) {
			if !slices.Contains(names, name) {
				t.Errorf("%s names the unknown variable %s", file, name)
			}
		}
	}
}

// TestManifestProbesSucceed: their paths exist and their ports are the one that the server listens on.
func TestManifestProbesSucceed(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleFunction)
	mustStart(t, s)
	probes := 0
	for _, m := range manifests(t) {
		visitMaps(m.root, func(v map[string]any) {
			probe, ok := v["httpGet"].(map[string]any)
			if !ok {
				return
			}
			probes++
			if got := servertest.Request(t, http.MethodGet, "http://"+s.Addr()+text(probe["path"]), ""); got.StatusCode != http.StatusOK {
				t.Errorf("%s: %s returns %s", m.file, probe["path"], got.Status)
			}
			if probe["port"] != "http" && probe["port"] != 8788 {
				t.Errorf("%s: a probe uses port %v", m.file, probe["port"])
			}
		})
		visitMaps(m.root, func(v map[string]any) {
			if port, ok := v["containerPort"]; ok && port != 8788 {
				t.Errorf("%s: containerPort is %v", m.file, port)
			}
		})
		if listen := variables(m)["STEPWELL_LISTEN"]; listen != "" && !strings.HasSuffix(listen, ":8788") {
			t.Errorf("%s: listens on %s", m.file, listen)
		}
	}
	if probes < 4 {
		t.Errorf("found only %d probes", probes)
	}
}

// hardStop is how long canceling the remaining calls may take after the grace period.
const hardStop = 10 * time.Second

// TestManifestsAllowGracefulShutdown: the platforms' limits exceed the server's grace period and timeouts.
func TestManifestsAllowGracefulShutdown(t *testing.T) {
	t.Parallel()
	m := manifestOf(t, "kubernetes/deployment.yaml")
	pod := at(m.root, "spec", "template", "spec")
	given, _ := at(pod, "terminationGracePeriodSeconds").(int)
	asleep, _ := at(pod, "containers", 0, "lifecycle", "preStop", "sleep", "seconds").(int)
	takes := duration(t, variables(m)["STEPWELL_SHUTDOWN_GRACE"]) + hardStop + server.ShutdownTimeout
	if time.Duration(given-asleep)*time.Second < takes || asleep == 0 {
		t.Errorf("kubernetes: %d s, including %d s of preStop sleep, are less than %s", given, asleep, takes)
	}
	compose := manifestOf(t, "compose.yaml")
	takes = duration(t, variables(compose)["STEPWELL_SHUTDOWN_GRACE"]) + hardStop + server.ShutdownTimeout
	if got := duration(t, text(at(compose.root, "services", "stepwell", "stop_grace_period"))); got < takes {
		t.Errorf("compose: %s is less than %s", got, takes)
	}
	unit := regexp.MustCompile(`TimeoutStopSec=(\w+)`).FindStringSubmatch(mustRead(t, deployFolder+"/systemd/stepwell.service"))
	if unit == nil || duration(t, unit[1]) < takes {
		t.Errorf("systemd: %v is less than %s", unit, takes)
	}
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Error(err)
	}
	return d
}

// TestManifestsAllowFullDrains: the platforms' request timeouts exceed the drain budget, and their schedulers send valid
// drain requests.
func TestManifestsAllowFullDrains(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), server.RoleFunction)
	mustStart(t, s)
	drains := regexp.MustCompile(`budget=(\w+)&linger=(\w+)`)
	for file, tt := range map[string]struct {
		timeout []any
		asks    string
	}{
		"cloudrun/service.yaml": {[]any{"spec", "template", "spec", "timeoutSeconds"}, "cloudrun/deploy.sh"},
		"lambda/template.yaml":  {[]any{"Resources", "Server", "Properties", "Timeout"}, "lambda/template.yaml"},
	} {
		m := manifestOf(t, file)
		timeout, _ := at(m.root, tt.timeout...).(int)
		set := variables(m)
		takes := duration(t, set["STEPWELL_DRAIN_BUDGET"]) + duration(t, set["STEPWELL_SHUTDOWN_GRACE"]) + hardStop
		if time.Duration(timeout)*time.Second < takes {
			t.Errorf("%s: %d s are less than %s", file, timeout, takes)
		}
		asked := drains.FindStringSubmatch(mustRead(t, deployFolder+"/"+tt.asks))
		if asked == nil || asked[1] != set["STEPWELL_DRAIN_BUDGET"] || asked[2] != asked[1] {
			t.Errorf("%s: the scheduler requests %v, want the server's budget", file, asked)
		}
		if got := servertest.Request(t, http.MethodPost, "http://"+s.Addr()+"/internal/drain?linger=0s&budget="+asked[1], ""); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", file, got.Status)
		}
	}
}

// TestLambdaScheduleSendsDrainRequest: the input of the schedule is an event for a drain request.
func TestLambdaScheduleSendsDrainRequest(t *testing.T) {
	t.Parallel()
	m := manifestOf(t, "lambda/template.yaml")
	input := text(at(m.root, "Resources", "Minute", "Properties", "Target", "Input"))
	var event struct {
		Version, RawPath, RawQueryString string
		Headers                          map[string]string
		RequestContext                   struct {
			HTTP struct{ Method, Path string }
		}
	}
	err := json.Unmarshal([]byte(strings.ReplaceAll(input, "${APIKey}", "key")), &event)
	if err != nil || event.Version != "2.0" || event.RawPath != "/internal/drain" || event.RequestContext.HTTP.Method != "POST" ||
		event.RequestContext.HTTP.Path != event.RawPath || event.Headers["authorization"] != "Bearer key" {
		t.Errorf("got %+v and %v from %s", event, err, input)
	}
}

// TestKubernetesManifestsAreConsistent: names, labels and ports match the pods.
func TestKubernetesManifestsAreConsistent(t *testing.T) {
	t.Parallel()
	d := manifestOf(t, "kubernetes/deployment.yaml").root
	pod := at(d, "spec", "template")
	labels := at(pod, "metadata", "labels")
	for file, path := range map[string][]any{
		"kubernetes/deployment.yaml": {"spec", "selector", "matchLabels"},
		"kubernetes/service.yaml":    {"spec", "selector"},
		"kubernetes/disruption.yaml": {"spec", "selector", "matchLabels"},
		"kubernetes/network.yaml":    {"spec", "podSelector", "matchLabels"},
	} {
		if got := at(manifestOf(t, file).root, path...); got == nil || !reflect.DeepEqual(got, labels) {
			t.Errorf("%s: selects %v, want %v", file, got, labels)
		}
	}
	container := at(pod, "spec", "containers", 0)
	if got := at(manifestOf(t, "kubernetes/service.yaml").root, "spec", "ports", 0, "targetPort"); got != at(container, "ports", 0, "name") {
		t.Errorf("the service's port is %v", got)
	}
	if got := at(pod, "metadata", "annotations", "prometheus.io/port"); got != strconv.Itoa(8788) {
		t.Errorf("metrics are scraped at port %v", got)
	}
	secret := at(manifestOf(t, "kubernetes/secret.example.yaml").root, "metadata", "name")
	if got := at(container, "envFrom", 0, "secretRef", "name"); got != secret {
		t.Errorf("the environment is from %v, want %v", got, secret)
	}
	for _, want := range [][]any{
		{"securityContext", "readOnlyRootFilesystem"}, {"resources", "limits", "memory"}, {"resources", "requests", "cpu"},
		{"livenessProbe"}, {"readinessProbe"}, {"startupProbe"},
	} {
		if at(container, want...) == nil {
			t.Errorf("the container has no %v", want)
		}
	}
	if at(pod, "spec", "securityContext", "runAsNonRoot") != true {
		t.Error("the pod may run as root")
	}
	all := at(manifestOf(t, "kubernetes/kustomization.yaml").root, "resources")
	for _, resource := range all.([]any) {
		manifestOf(t, "kubernetes/"+text(resource))
	}
}
