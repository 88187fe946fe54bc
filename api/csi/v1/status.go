package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of the conditions that the kinds of this group carry.
const (
	// ConditionReady is True when what the object asks for is in effect.
	ConditionReady = "Ready"
	// ConditionProgressing is True while the operator, or Kubernetes on its
	// behalf, still works towards the state the object asks for.
	ConditionProgressing = "Progressing"
)

// CommonStatus is what every kind of this group reports in the same way.
type CommonStatus struct {
	// The generation of the spec that this status speaks of. When it is behind
	// metadata.generation, the last change has not been looked at yet.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is true of the object now. "Ready" says whether what the spec asks for
	// is in effect, and since when; "Progressing" says whether work is under way.
	// The reason is one word for programs, the message is for people and names
	// the thing that is missing.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchMergeKey=type
	// +patchStrategy=merge
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// GetConditions returns the conditions of the object.
func (s *CommonStatus) GetConditions() []metav1.Condition { return s.Conditions }

// SetConditions replaces the conditions of the object.
func (s *CommonStatus) SetConditions(c []metav1.Condition) { s.Conditions = c }

// PodCount compares the pods that should run with those that do.
type PodCount struct {
	// How many pods should run: the replicas of a Deployment, or the number of
	// nodes that a DaemonSet covers.
	Desired int32 `json:"desired"`

	// How many of them run the present specification.
	// +optional
	Updated int32 `json:"updated,omitempty"`

	// How many of them are ready to serve.
	Available int32 `json:"available"`
}

// Complete tells whether every desired pod runs the present specification and
// is available.
func (c PodCount) Complete() bool { return c.Updated >= c.Desired && c.Available >= c.Desired }

// Published says since when the drivers' configuration holds what an object asks
// for. Drivers see it when the kubelet has refreshed the mounted file, which takes
// up to about two minutes.
type Published struct {
	// When it was first seen in config.json as it is now.
	Since metav1.Time `json:"since"`

	// A digest of what stands in config.json for this object, by which a change is
	// told.
	Digest string `json:"digest"`
}
