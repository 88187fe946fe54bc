package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionType names one aspect of an object's state. The same words are the
// values of status.phase.
type ConditionType string

// Condition types and phases that users, scripts and dashboards of Rook look
// for. Kinds may report further condition types of their own.
const (
	// ConditionConnecting means that an external cluster is being reached.
	ConditionConnecting ConditionType = "Connecting"
	// ConditionConnected means that an external cluster was reached and is being followed.
	ConditionConnected ConditionType = "Connected"
	// ConditionProgressing means that the object is being brought to its spec.
	ConditionProgressing ConditionType = "Progressing"
	// ConditionReady means that the object matches its spec and can be used.
	ConditionReady ConditionType = "Ready"
	// ConditionFailure means that the last pass ended in an error; the message names it.
	ConditionFailure ConditionType = "Failure"
	// ConditionDeleting means that the object was deleted and is being torn down. This
	// phase is never left.
	ConditionDeleting ConditionType = "Deleting"
	// ConditionDeletionIsBlocked means that the teardown waits for other objects; the
	// message names each of them.
	ConditionDeletionIsBlocked ConditionType = "DeletionIsBlocked"
	// ConditionPoolDeletionIsBlocked means that a pool still holds RBD images, images in
	// the trash count too.
	ConditionPoolDeletionIsBlocked ConditionType = "PoolDeletionIsBlocked"
	// ConditionRadosNamespaceDeletionIsBlocked means that a RADOS namespace still holds
	// RBD images.
	ConditionRadosNamespaceDeletionIsBlocked ConditionType = "RadosNamespaceDeletionIsBlocked"
)

// ConditionReason is a CamelCase word for programs, saying why a condition has
// its status.
type ConditionReason string

// Reasons known to users of Rook.
const (
	// ClusterCreatedReason means that the cluster is up.
	ClusterCreatedReason ConditionReason = "ClusterCreated"
	// ClusterConnectedReason means that the external cluster is reachable.
	ClusterConnectedReason ConditionReason = "ClusterConnected"
	// ClusterProgressingReason means that a part of the cluster is being changed.
	ClusterProgressingReason ConditionReason = "ClusterProgressing"
	// ClusterDeletingReason means that the cluster is being torn down.
	ClusterDeletingReason ConditionReason = "ClusterDeleting"
	// ClusterConnectingReason means that the external cluster was not reached yet.
	ClusterConnectingReason ConditionReason = "ClusterConnecting"
	// ReconcileSucceeded means that the pass ended with nothing left to do.
	ReconcileSucceeded ConditionReason = "ReconcileSucceeded"
	// ReconcileFailed means that the pass ended in an error.
	ReconcileFailed ConditionReason = "ReconcileFailed"
	// ReconcileStarted means that a new spec was seen and work on it began.
	ReconcileStarted ConditionReason = "ReconcileStarted"
	// ReconcileRequeuing means that the pass waits for something and will look again.
	ReconcileRequeuing ConditionReason = "ReconcileRequeuing"
	// DeletingReason means that the object is being torn down.
	DeletingReason ConditionReason = "Deleting"
	// ObjectHasDependentsReason means that other objects need this one.
	ObjectHasDependentsReason ConditionReason = "ObjectHasDependents"
	// ObjectHasNoDependentsReason means that nothing needs this object any more.
	ObjectHasNoDependentsReason ConditionReason = "ObjectHasNoDependents"
	// PoolNotEmptyReason means that the pool holds images.
	PoolNotEmptyReason ConditionReason = "PoolNotEmpty"
	// PoolEmptyReason means that the pool holds no image.
	PoolEmptyReason ConditionReason = "PoolEmpty"
	// RadosNamespaceNotEmptyReason means that the RADOS namespace holds images.
	RadosNamespaceNotEmptyReason ConditionReason = "RadosNamespaceNotEmpty"
	// RadosNamespaceEmptyReason means that the RADOS namespace holds no image.
	RadosNamespaceEmptyReason ConditionReason = "RadosNamespaceEmpty"
)

// Condition is one observed aspect of an object.
type Condition struct {
	// Type is the aspect, for instance Ready. There is one condition per type.
	Type ConditionType `json:"type,omitempty"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status,omitempty"`
	// Reason is one CamelCase word for programs and dashboards.
	Reason ConditionReason `json:"reason,omitempty"`
	// Message is a sentence for a person: what was found, and what to do about it.
	Message string `json:"message,omitempty"`
	// LastHeartbeatTime is when the condition was last written, even if its
	// status stayed the same.
	LastHeartbeatTime metav1.Time `json:"lastHeartbeatTime,omitempty"`
	// LastTransitionTime is when the status last changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// ObservedGeneration is the metadata.generation of the spec that the
	// condition speaks about. A condition with a lower number than the object
	// tells about an older spec.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// FindCondition returns the condition of the given type, or nil.
func FindCondition(conditions []Condition, t ConditionType) *Condition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}

// IsConditionTrue reports whether the condition is present and True.
func IsConditionTrue(conditions []Condition, t ConditionType) bool {
	c := FindCondition(conditions, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// SetCondition puts a condition into the list, replacing the one of the same
// type. LastTransitionTime is kept when the status did not change. When
// nothing but the heartbeat would change, the list stays as it is, so that a
// steady object is not written. It reports whether the list changed.
func SetCondition(conditions *[]Condition, c Condition) bool {
	old := FindCondition(*conditions, c.Type)
	if old == nil {
		*conditions = append(*conditions, c)
		return true
	}
	if old.Status == c.Status {
		if old.Reason == c.Reason && old.Message == c.Message && old.ObservedGeneration == c.ObservedGeneration {
			return false
		}
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
	return true
}

// Status is the status of kinds that report nothing but their own progress.
type Status struct {
	// Phase is the state in one word: Progressing, Ready, Failure, Deleting, ...
	Phase ConditionType `json:"phase,omitempty"`
	// ObservedGeneration is the metadata.generation of the last spec that was
	// brought about completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions say more about the phase.
	Conditions []Condition `json:"conditions,omitempty"`
}
