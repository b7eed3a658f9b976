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
)

// deployFolder has the manifests.
const deployFolder = "../../deploy"

// manifest is a document of a file, as maps, lists and scalars.
type manifest struct {
	file string
	root map[string]any
}

// manifests are all documents of all files. Keys that come twice are refused.
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
		t.Fatalf("found %d manifests only", len(list))
	}
	return list
}

// the is the manifest of a file.
func the(t *testing.T, file string) manifest {
	t.Helper()
	for _, m := range manifests(t) {
		if m.file == file {
			return m
		}
	}
	t.Fatalf("there is no %s", file)
	return manifest{}
}

// at is what is at a path of keys and indexes; nil if there is nothing.
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

// visitMaps visits all maps below a value.
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

// variables are the environment of the server that a manifest sets: values that come from elsewhere are empty.
func variables(m manifest) map[string]string {
	found := map[string]string{}
	visitMaps(m.root, func(v map[string]any) {
		if strings.HasPrefix(text(v["image"]), "postgres:") {
			delete(v, "environment") // which is not ours
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

// known are the variables that the command reads.
func known() []string {
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

// TestManifestsSetWhatIsRead: all variables of manifests are the command's, and what they say is accepted.
func TestManifestsSetWhatIsRead(t *testing.T) {
	t.Parallel()
	names := known()
	inDockerfile := regexp.MustCompile(`STEPWELL_[A-Z_]+`)
	found := 0
	for _, m := range manifests(t) {
		var environ []string
		for name, value := range variables(m) {
			found++
			if !slices.Contains(names, name) {
				t.Errorf("%s sets %s, which nobody reads", m.file, name)
			}
			if value != "" && !strings.Contains(value, "$") {
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
		t.Errorf("found %d variables only", found)
	}
	for _, file := range []string{"../../Dockerfile", deployFolder + "/lambda/Dockerfile", deployFolder + "/README.md"} {
		for _, name := range inDockerfile.FindAllString(readFile(t, file), -1) {
			if !slices.Contains(names, name) {
				t.Errorf("%s names %s, which nobody reads", file, name)
			}
		}
	}
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestProbesAreAnswered: every path that a manifest asks for is one that a server answers, at the port it listens on.
func TestProbesAreAnswered(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), roleFunction)
	mustStart(t, s)
	probes := 0
	for _, m := range manifests(t) {
		visitMaps(m.root, func(v map[string]any) {
			probe, ok := v["httpGet"].(map[string]any)
			if !ok {
				return
			}
			probes++
			if got := request(t, http.MethodGet, "http://"+s.addr+text(probe["path"]), ""); got.StatusCode != http.StatusOK {
				t.Errorf("%s: %s answers %s", m.file, probe["path"], got.Status)
			}
			if probe["port"] != "http" && probe["port"] != 8788 {
				t.Errorf("%s: a probe asks port %v", m.file, probe["port"])
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
		t.Errorf("found %d probes only", probes)
	}
	for _, want := range []string{"STEPWELL_LISTEN=:8788", "EXPOSE 8788", "USER 65532:65532", `"health"`} {
		if !strings.Contains(readFile(t, "../../Dockerfile"), want) {
			t.Errorf("the Dockerfile does not have %s", want)
		}
	}
}

// hardStop is how long breaking calls off may take when a server stops, beside its grace period.
const hardStop = 10 * time.Second

// TestServersAreGivenTimeToStop, all that their settings say.
func TestServersAreGivenTimeToStop(t *testing.T) {
	t.Parallel()
	m := the(t, "kubernetes/deployment.yaml")
	pod := at(m.root, "spec", "template", "spec")
	given, _ := at(pod, "terminationGracePeriodSeconds").(int)
	asleep, _ := at(pod, "containers", 0, "lifecycle", "preStop", "sleep", "seconds").(int)
	takes := duration(t, variables(m)["STEPWELL_SHUTDOWN_GRACE"]) + hardStop + drainTimeout
	if time.Duration(given-asleep)*time.Second < takes || asleep == 0 {
		t.Errorf("kubernetes: %d s, of which it sleeps %d s, are less than %s", given, asleep, takes)
	}
	compose := the(t, "compose.yaml")
	takes = duration(t, variables(compose)["STEPWELL_SHUTDOWN_GRACE"]) + hardStop + drainTimeout
	if got := duration(t, text(at(compose.root, "services", "stepwell", "stop_grace_period"))); got < takes {
		t.Errorf("compose: %s is less than %s", got, takes)
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

// TestDrainsAreGivenTime: a platform waits for as long as a drain may take, and its scheduler asks for what the server
// understands.
func TestDrainsAreGivenTime(t *testing.T) {
	t.Parallel()
	s := newServer(t, testdb.New(t), roleFunction)
	mustStart(t, s)
	drains := regexp.MustCompile(`budget=(\w+)&linger=(\w+)`)
	for file, tt := range map[string]struct {
		timeout []any
		asks    string
	}{
		"cloudrun/service.yaml": {[]any{"spec", "template", "spec", "timeoutSeconds"}, "cloudrun/deploy.sh"},
		"lambda/template.yaml":  {[]any{"Resources", "Server", "Properties", "Timeout"}, "lambda/template.yaml"},
	} {
		m := the(t, file)
		timeout, _ := at(m.root, tt.timeout...).(int)
		set := variables(m)
		takes := duration(t, set["STEPWELL_DRAIN_BUDGET"]) + duration(t, set["STEPWELL_SHUTDOWN_GRACE"]) + hardStop
		if time.Duration(timeout)*time.Second < takes {
			t.Errorf("%s: %d s are less than %s", file, timeout, takes)
		}
		asked := drains.FindStringSubmatch(readFile(t, deployFolder+"/"+tt.asks))
		if asked == nil || asked[1] != set["STEPWELL_DRAIN_BUDGET"] || asked[2] != asked[1] {
			t.Errorf("%s: the scheduler asks for %v, want the server's budget", file, asked)
		}
		if got := request(t, http.MethodPost, "http://"+s.addr+"/internal/drain?linger=0s&budget="+asked[1], ""); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", file, got.Status)
		}
	}
}

// TestScheduleIsARequest: what Lambda's schedule sends is JSON, in the shape of a request to drain.
func TestScheduleIsARequest(t *testing.T) {
	t.Parallel()
	m := the(t, "lambda/template.yaml")
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

// TestKubernetesFitsTogether: names, labels and ports are those of the pods.
func TestKubernetesFitsTogether(t *testing.T) {
	t.Parallel()
	d := the(t, "kubernetes/deployment.yaml").root
	pod := at(d, "spec", "template")
	labels := at(pod, "metadata", "labels")
	for file, path := range map[string][]any{
		"kubernetes/deployment.yaml": {"spec", "selector", "matchLabels"},
		"kubernetes/service.yaml":    {"spec", "selector"},
		"kubernetes/disruption.yaml": {"spec", "selector", "matchLabels"},
		"kubernetes/network.yaml":    {"spec", "podSelector", "matchLabels"},
	} {
		if got := at(the(t, file).root, path...); got == nil || !reflect.DeepEqual(got, labels) {
			t.Errorf("%s: selects %v, want %v", file, got, labels)
		}
	}
	container := at(pod, "spec", "containers", 0)
	if got := at(the(t, "kubernetes/service.yaml").root, "spec", "ports", 0, "targetPort"); got != at(container, "ports", 0, "name") {
		t.Errorf("the service's port is %v", got)
	}
	if got := at(pod, "metadata", "annotations", "prometheus.io/port"); got != strconv.Itoa(8788) {
		t.Errorf("metrics are asked for at port %v", got)
	}
	secret := at(the(t, "kubernetes/secret.example.yaml").root, "metadata", "name")
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
		t.Error("it may run as root")
	}
	all := at(the(t, "kubernetes/kustomization.yaml").root, "resources")
	for _, resource := range all.([]any) {
		the(t, "kubernetes/"+text(resource))
	}
}
