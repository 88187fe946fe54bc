package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Rendered is what Helm makes of a chart.
type Rendered struct {
	Manifest, Notes string
}

// Render renders the chart in dir without a cluster, as "helm template" does. apis are
// API versions that the cluster is to have besides Kubernetes' own.
func Render(dir, release, namespace string, values map[string]any, apis ...string) (Rendered, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return Rendered{}, err
	}
	i := action.NewInstall(&action.Configuration{})
	i.ReleaseName, i.Namespace, i.DryRun, i.ClientOnly, i.Replace = release, namespace, true, true, true
	i.KubeVersion = &chartutil.KubeVersion{Version: "v1.32.0", Major: "1", Minor: "32"}
	i.APIVersions = append(slices.Clone(chartutil.DefaultVersionSet), apis...)
	r, err := i.Run(c, values)
	if err != nil {
		return Rendered{}, err
	}
	return Rendered{Manifest: r.Manifest, Notes: r.Info.Notes}, nil
}

// Objects reads the objects of a manifest.
func Objects(manifest string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := d.Decode(u)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// Values reads values in YAML.
func Values(text string) (map[string]any, error) {
	v := map[string]any{}
	err := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096).Decode(&v)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return v, err
}
