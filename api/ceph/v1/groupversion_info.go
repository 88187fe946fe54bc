package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// GroupName is the API group of every kind in this package.
	GroupName = "ceph.rook.io"
	// Version is the only version of the group.
	Version = "v1"
)

// SchemeGroupVersion is the group and version under which the kinds register.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

// SchemeBuilder collects the kinds: each kind's file registers its object and
// its list once, while the program starts. Nothing adds to it afterwards.
var SchemeBuilder = &Builder{}

// Builder gathers the Go types of a group and adds them to a scheme.
//
// +kubebuilder:object:generate=false
type Builder struct {
	objects []runtime.Object
}

// Register notes down objects for AddToScheme.
func (b *Builder) Register(objects ...runtime.Object) {
	b.objects = append(b.objects, objects...)
}

// AddToScheme adds every registered kind, and the options types of the API
// machinery, to the scheme.
func (b *Builder) AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion, b.objects...)
	metav1.AddToGroupVersion(s, SchemeGroupVersion)
	return nil
}

// AddToScheme adds the kinds of ceph.rook.io/v1 to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	return SchemeBuilder.AddToScheme(s)
}

// Resource gives the group-qualified name of a resource, for use in errors of
// the API machinery.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}
