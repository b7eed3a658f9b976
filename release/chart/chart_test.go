// Package chart_test renders the chart of deploy/helm as Helm does, and checks the manifests of deploy/kubernetes and of
// the chart against the types of Kubernetes. It is a module of its own, so that nothing else depends on these.
package chart_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const deploy = "../../deploy/"

// monitor is the part of the Prometheus operator's ServiceMonitor that the chart may use.
type monitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port, Path, Interval string
			Authorization        struct {
				Credentials core.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// kinds makes an empty object of each kind that the manifests may have.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"v1 Service":                              func() any { return new(core.Service) },
	"v1 Secret":                               func() any { return new(core.Secret) },
	"batch/v1 Job":                            func() any { return new(batch.Job) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"networking.k8s.io/v1 Ingress":            func() any { return new(networking.Ingress) },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return new(monitor) },
}

// decode decodes a manifest, without unknown or duplicate fields.
func decode(t *testing.T, from, text string) (kind string, object any) {
	t.Helper()
	var header meta.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &header); err != nil {
		t.Fatalf("%s: %v\n%s", from, err, text)
	}
	make := kinds[header.APIVersion+" "+header.Kind]
	if make == nil {
		t.Fatalf("%s: unknown kind %s %s", from, header.APIVersion, header.Kind)
	}
	object = make()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Errorf("%s: %v\n%s", from, err, text)
	}
	return header.Kind, object
}

// render returns the objects of the chart by kind.
func render(t *testing.T, values string) (map[string]any, error) {
	t.Helper()
	chart, err := loader.LoadDir(deploy + "helm/stepwell")
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "stepwell", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]any{}
	for name, text := range files {
		if strings.TrimSpace(text) == "" || filepath.Ext(name) == ".tpl" {
			continue
		}
		kind, object := decode(t, name, text)
		objects[kind] = object
	}
	return objects, nil
}

func mustRender(t *testing.T, values string) map[string]any {
	t.Helper()
	objects, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// everything switches all on.
const everything = `
image: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123", pullSecrets: [{name: pull}]}
role: worker
settings: {STEPWELL_ALLOW_ADDRESSES: "10.0.0.0/8", STEPWELL_SCHEMA: other}
shutdownGraceSeconds: 60
migrationJob: {enabled: true, secret: owner}
ingress: {enabled: true, host: stepwell.example.com, tlsSecret: tls, className: nginx, annotations: {a: b}}
serviceMonitor: {enabled: true, keySecret: scraper}
autoscaling: {enabled: true}
podAnnotations: {a: b}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
affinity: {podAntiAffinity: {}}
`

func TestChartIsValid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values string
		kinds  int
	}{
		"the defaults":   {"", 4},
		"everything":     {everything, 8},
		"nothing":        {"{networkPolicy: {enabled: false}, disruptionBudget: {enabled: false}, postgresCA: ''}", 2},
		"no one calls":   {"{networkPolicy: {callers: [], functions: [], postgres: [], public: false}}", 4},
		"a name and tag": {"{nameOverride: other, image: {tag: '1'}}", 4},
	} {
		if objects := mustRender(t, tt.values); len(objects) != tt.kinds {
			t.Errorf("%s: got %d objects, want %d", name, len(objects), tt.kinds)
		}
	}
}

func TestEverythingOfChart(t *testing.T) {
	t.Parallel()
	objects := mustRender(t, everything)
	server := objects["Deployment"].(*apps.Deployment)
	pod := server.Spec.Template.Spec
	if server.Spec.Replicas != nil || *pod.TerminationGracePeriodSeconds != 90 || !strings.Contains(pod.Containers[0].Image, "@sha256:") {
		t.Errorf("the servers: %v replicas, %d s, image %s", server.Spec.Replicas, *pod.TerminationGracePeriodSeconds, pod.Containers[0].Image)
	}
	job := objects["Job"].(*batch.Job).Spec.Template.Spec.Containers[0]
	if job.Image != pod.Containers[0].Image || job.Args[0] != "migrate" || job.Env[2].ValueFrom.SecretKeyRef.Name != "owner" {
		t.Errorf("the job: %+v", job)
	}
	scaler := objects["HorizontalPodAutoscaler"].(*autoscaling.HorizontalPodAutoscaler).Spec
	if scaler.ScaleTargetRef.Name != server.Name || scaler.Metrics[0].External.Target.Value.String() != "10" {
		t.Errorf("the autoscaler: %+v", scaler)
	}
	service := objects["Service"].(*core.Service)
	if backend := objects["Ingress"].(*networking.Ingress).Spec.Rules[0].HTTP.Paths[0].Backend.Service; backend.Name != service.Name {
		t.Errorf("the ingress leads to %+v", backend)
	}
	for name, selector := range map[string]map[string]string{
		"service": service.Spec.Selector, "deployment": server.Spec.Selector.MatchLabels,
		"budget": objects["PodDisruptionBudget"].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels,
	} {
		if !reflect.DeepEqual(selector, server.Spec.Template.Labels) {
			t.Errorf("the %s selects %v, want %v", name, selector, server.Spec.Template.Labels)
		}
	}
	selector := objects["ServiceMonitor"].(*monitor).Spec.Selector.MatchLabels
	for key, value := range selector {
		if service.Labels[key] != value {
			t.Errorf("the monitor selects %v, the service has %v", selector, service.Labels)
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"{replicaCount: 2}":                    "replicaCount",
		"{replicas: 0}":                        "replicas",
		"{role: function}":                     "role",
		"{image: {digest: latest}}":            "digest",
		"{settings: {DATABASE_URL: postgres}}": "DATABASE_URL",
		"{ingress: {enabled: true}}":           "host",
		"{serviceMonitor: {enabled: true}}":    "keySecret",
		"{secret: ''}":                         "secret",
		"{autoscaling: {queueAge: 10m}}":       "queueAge",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %s", values, err, want)
		}
	}
}

// TestChartIsTheBase: the pods of the chart are those of the kustomize base, but for the image and the labels. All
// manifests of the base are valid.
func TestChartIsTheBase(t *testing.T) {
	t.Parallel()
	base := map[string]any{}
	files, err := filepath.Glob(deploy + "kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) != "kustomization.yaml" {
			kind, object := decode(t, file, string(text))
			base[kind] = object
		}
	}
	chart := mustRender(t, "")
	pod := func(objects map[string]any) core.PodSpec {
		spec := objects["Deployment"].(*apps.Deployment).Spec.Template.Spec
		spec.Containers[0].Image = ""
		spec.TopologySpreadConstraints[0].LabelSelector = nil
		return spec
	}
	if got, want := pod(chart), pod(base); !reflect.DeepEqual(got, want) {
		a, _ := yaml.Marshal(got)
		b, _ := yaml.Marshal(want)
		t.Errorf("the chart has\n%s\nthe base\n%s", a, b)
	}
	rules := func(objects map[string]any) (ingress []networking.NetworkPolicyIngressRule, egress int) {
		spec := objects["NetworkPolicy"].(*networking.NetworkPolicy).Spec
		return spec.Ingress, len(spec.Egress)
	}
	in, out := rules(chart)
	wantIn, wantOut := rules(base)
	if !reflect.DeepEqual(in, wantIn) || out != wantOut {
		t.Errorf("the chart admits %v and %d rules out, the base %v and %d", in, out, wantIn, wantOut)
	}
}
