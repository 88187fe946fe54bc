package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CephBucketTopic is a place to which an object store sends notifications
// about changes in buckets: an HTTP server, or a topic of AMQP or Kafka.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cephbt
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.objectStoreName`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CephBucketTopic struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Spec is the wanted topic.
	Spec BucketTopicSpec `json:"spec"`
	// Status is what was last seen of the topic.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	Status *BucketTopicStatus `json:"status,omitempty"`
}

// CephBucketTopicList is a list of CephBucketTopic.
//
// +kubebuilder:object:root=true
type CephBucketTopicList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []CephBucketTopic `json:"items"`
}

// BucketTopicSpec is the wanted state of a topic.
type BucketTopicSpec struct {
	// ObjectStoreName is the CephObjectStore that sends.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_.][A-Za-z0-9_.-]*$')",message="objectStoreName must be letters, digits, '_', '.' and '-', not starting with '-': write the name of a CephObjectStore"
	ObjectStoreName string `json:"objectStoreName"`
	// ObjectStoreNamespace is the namespace of the store.
	//
	// +kubebuilder:validation:MinLength=1
	ObjectStoreNamespace string `json:"objectStoreNamespace"`
	// OpaqueData is sent along with each notification, as it is.
	OpaqueData string `json:"opaqueData,omitempty"`
	// Persistent keeps notifications in a queue until they are delivered, and
	// answers clients without waiting for it. Default: off, the client waits
	// for the delivery.
	Persistent bool `json:"persistent,omitempty"`
	// Endpoint is where notifications go: one of http, amqp and kafka.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.http) ? 1 : 0) + (has(self.amqp) ? 1 : 0) + (has(self.kafka) ? 1 : 0) == 1",message="endpoint needs exactly one of http, amqp and kafka: write one and remove the others"
	Endpoint TopicEndpointSpec `json:"endpoint"`
}

// TopicEndpointSpec is where notifications go.
type TopicEndpointSpec struct {
	// HTTP sends to a web server.
	HTTP *HTTPEndpointSpec `json:"http,omitempty"`
	// AMQP sends to a broker such as RabbitMQ.
	AMQP *AMQPEndpointSpec `json:"amqp,omitempty"`
	// Kafka sends to Kafka.
	Kafka *KafkaEndpointSpec `json:"kafka,omitempty"`
}

// HTTPEndpointSpec is a web server.
type HTTPEndpointSpec struct {
	// URI is the address to POST to.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^[:cntrl:][:space:]]+$')",message="http.uri must start with http:// or https:// and hold no blanks; write for instance https://hooks.example.net/bucket"
	URI string `json:"uri"`
	// DisableVerifySSL does not check the server's certificate. Default: off.
	DisableVerifySSL bool `json:"disableVerifySSL,omitempty"`
	// SendCloudEvents sends in the form of CloudEvents. Default: off.
	SendCloudEvents bool `json:"sendCloudEvents,omitempty"`
}

// AMQPEndpointSpec is an AMQP broker.
type AMQPEndpointSpec struct {
	// URI is the address of the broker.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^amqps?://[^[:cntrl:][:space:]]+$')",message="amqp.uri must start with amqp:// or amqps:// and hold no blanks; write for instance amqps://broker.example.net:5671/vhost"
	URI string `json:"uri"`
	// Exchange is the exchange of the broker, of type topic.
	//
	// +kubebuilder:validation:MinLength=1
	Exchange string `json:"exchange"`
	// DisableVerifySSL does not check the broker's certificate. Default: off.
	DisableVerifySSL bool `json:"disableVerifySSL,omitempty"`
	// AckLevel is when a notification counts as delivered: none (at once),
	// broker (when the broker has it) or routable (when it is in a queue).
	// Deprecated spelling: routeable.
	//
	// +kubebuilder:validation:Enum=none;broker;routable;routeable
	// +kubebuilder:default=broker
	AckLevel string `json:"ackLevel,omitempty"`
}

// KafkaEndpointSpec is a Kafka cluster.
type KafkaEndpointSpec struct {
	// URI is the address of a Kafka broker. User and password can be in it, but
	// belong into the Secrets below.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self.matches('^kafka://[^[:cntrl:][:space:]]+$')",message="kafka.uri must start with kafka:// and hold no blanks; write for instance kafka://broker.example.net:9092"
	URI string `json:"uri"`
	// UseSSL encrypts the connection. Default: off.
	UseSSL bool `json:"useSSL,omitempty"`
	// DisableVerifySSL does not check the broker's certificate. Default: off.
	DisableVerifySSL bool `json:"disableVerifySSL,omitempty"`
	// AckLevel is when a notification counts as delivered: none (at once) or
	// broker (when the broker has it).
	//
	// +kubebuilder:validation:Enum=none;broker
	// +kubebuilder:default=broker
	AckLevel string `json:"ackLevel,omitempty"`
	// Mechanism of the login.
	//
	// +kubebuilder:validation:Enum=PLAIN;SCRAM-SHA-512;SCRAM-SHA-256;GSSAPI;OAUTHBEARER
	// +kubebuilder:default=PLAIN
	Mechanism string `json:"mechanism,omitempty"`
	// UserSecretRef is where the user name is, in a Secret of this namespace.
	UserSecretRef *corev1.SecretKeySelector `json:"userSecretRef,omitempty"`
	// PasswordSecretRef is where the password is, in a Secret of this namespace.
	PasswordSecretRef *corev1.SecretKeySelector `json:"passwordSecretRef,omitempty"`
}

// BucketTopicStatus is what was last seen of a topic.
type BucketTopicStatus struct {
	// Phase is the state in one word.
	Phase ConditionType `json:"phase,omitempty"`
	// ARN is the name by which the store knows the topic.
	//
	// +nullable
	ARN *string `json:"ARN,omitempty"`
	// ObservedGeneration is the metadata.generation of the last spec that was
	// brought about completely.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Secrets are the Secrets that the spec names, as they were when the topic
	// was last made.
	Secrets []SecretReference `json:"secrets,omitempty"`
	// Conditions say more about the phase.
	Conditions []Condition `json:"conditions,omitempty"`
}

// GetConditions gives the conditions of the status.
func (t *CephBucketTopic) GetConditions() []Condition {
	if t.Status == nil {
		return nil
	}
	return t.Status.Conditions
}

func init() {
	SchemeBuilder.Register(&CephBucketTopic{}, &CephBucketTopicList{})
}
