package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// decode reads YAML as the API server does: whole numbers are int64, and a key
// that is there twice is an error.
func decode(t testing.TB, doc []byte) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		t.Fatalf("converting %s: %v", doc, err)
	}
	var obj map[string]any
	if err := utiljson.Unmarshal(asJSON, &obj); err != nil {
		t.Fatalf("decoding %s: %v", doc, err)
	}
	return obj
}

// example is one document of a file in deploy/examples.
type example struct {
	file string
	raw  []byte
	obj  *unstructured.Unstructured
}

// examples reads every document of every file, in the order of the files.
func examples(t testing.TB) []example {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(exampleDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples found (%v)", err)
	}
	var out []example
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
		for {
			doc, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			obj := decode(t, doc)
			if len(obj) == 0 {
				continue // comments only
			}
			out = append(out, example{file: filepath.Base(file), raw: doc, obj: &unstructured.Unstructured{Object: obj}})
		}
	}
	return out
}
