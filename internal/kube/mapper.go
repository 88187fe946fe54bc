package kube

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// NewMapper gives a RESTMapper that asks the API server for a kind when it is first
// needed, for all clients of a process.
func NewMapper(cfg *rest.Config) (meta.RESTMapper, error) {
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client that asks which kinds there are: %w", err)
	}
	m, err := apiutil.NewDynamicRESTMapper(cfg, hc)
	if err != nil {
		return nil, fmt.Errorf("finding out which kinds there are: %w", err)
	}
	return Remembering(m), nil
}

// Remembering gives a RESTMapper that keeps what m has found. Caches ask it at every
// read, and m goes through all its kinds each time. That there is no such kind is not
// kept, since it may be installed.
func Remembering(m meta.RESTMapper) meta.RESTMapper { return &remembering{RESTMapper: m} }

type remembering struct {
	meta.RESTMapper
	known sync.Map // of question: *meta.RESTMapping
}

type question struct {
	kind     schema.GroupKind
	versions string
}

// RESTMapping implements meta.RESTMapper.
func (r *remembering) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	q := question{gk, strings.Join(versions, ",")}
	if m, ok := r.known.Load(q); ok {
		if found, ok := m.(*meta.RESTMapping); ok {
			return found, nil
		}
	}
	m, err := r.RESTMapper.RESTMapping(gk, versions...)
	if err == nil {
		r.known.Store(q, m)
	}
	return m, err
}
