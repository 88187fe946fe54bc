package kube

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Object is one object of a manifest.
type Object struct {
	APIVersion, Kind string
	Namespace        string // "" is default, or none
	Name             string
	YAML             []byte
}

func (o Object) String() string { return o.Kind + " " + o.Name }

// Read reads the objects of a manifest.
func Read(manifest []byte) ([]Object, error) {
	var out []Object
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifest: %w", err)
		}
		var o struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal(head(doc), &o); err != nil {
			return nil, fmt.Errorf("reading the manifest: %w", err)
		}
		if o.Kind == "" { // only comments
			continue
		}
		if o.APIVersion == "" || o.Metadata.Name == "" {
			return nil, fmt.Errorf("reading the manifest: a %s has no apiVersion or no name", o.Kind)
		}
		out = append(out, Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, YAML: doc})
	}
}

// head leaves those lines of a document that say which object it is. YAML is slow to
// read, and definitions of kinds are long.
func head(doc []byte) []byte {
	var out []byte
	wanted := false
	for line := range bytes.Lines(doc) {
		switch line[0] {
		case ' ', '\t', '-', '\n', '#': // goes on
		default:
			wanted = hasAnyPrefix(line, "apiVersion:", "kind:", "metadata:")
		}
		if wanted {
			out = append(out, line...)
		}
	}
	return out
}

func hasAnyPrefix(line []byte, prefixes ...string) bool {
	for _, p := range prefixes {
		if bytes.HasPrefix(line, []byte(p)) {
			return true
		}
	}
	return false
}

// Apply applies objects, one after another, as kubectl apply --server-side
// --force-conflicts would, and in its name: a user's kubectl has no conflicts then.
func (c *Client) Apply(ctx context.Context, objects []Object) error {
	for _, o := range objects {
		if err := c.apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// atOnce is how many objects are applied at the same time where none needs another.
const atOnce = 4

// ApplyAny applies objects that do not need one another, in any order.
func (c *Client) ApplyAny(ctx context.Context, objects []Object) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, o := range objects {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := c.apply(ctx, o); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

func (c *Client) apply(ctx context.Context, o Object) error {
	path, err := c.path(ctx, o)
	if err == nil {
		var body io.ReadCloser
		body, err = c.open(ctx, http.MethodPatch, path+"?fieldManager=kubectl&force=true",
			http.Header{"Content-Type": {"application/apply-patch+yaml"}, "Accept": {metadataOnly}}, o.YAML)
		if err == nil {
			err = body.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("applying %s: %w", o, err)
	}
	return nil
}

// path is where the API has an object.
func (c *Client) path(ctx context.Context, o Object) (string, error) {
	k, err := c.find(ctx, o.APIVersion, o.Kind)
	if err != nil {
		return "", err
	}
	parts := []string{groupPath(o.APIVersion)}
	if k.Namespaced {
		ns := o.Namespace
		if ns == "" {
			ns = "default"
		}
		parts = append(parts, "namespaces", url.PathEscape(ns))
	}
	return strings.Join(append(parts, k.Name, url.PathEscape(o.Name)), "/"), nil
}
