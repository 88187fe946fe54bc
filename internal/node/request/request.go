// Package request is what the operator tells castellan-node to do: plain values
// that go as JSON into the pod's environment. The operator writes them, the
// node reads them, and both use this package, so that they cannot drift.
//
// A request must never hold a secret: keys come as mounted files.
package request

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// Env is the environment variable that carries a request.
const Env = "CASTELLAN_REQUEST"

// maxPattern bounds a user's regular expression. Go's are linear in time, so
// this is about readable mistakes, not about safety.
const maxPattern = 4096

// Provision asks a node to make OSDs of the selected devices and to report all
// that it has.
type Provision struct {
	Namespace string `json:"namespace"`
	// Node is the Kubernetes node's name, ConfigMap where the report goes.
	Node      string            `json:"node"`
	ConfigMap string            `json:"configMap"`
	Labels    map[string]string `json:"labels,omitempty"`
	FSID      string            `json:"fsid"`
	MonHost   string            `json:"monHost"`
	Selection Selection         `json:"selection"`
	AllowLoop bool              `json:"allowLoop,omitempty"`
	// Reserved are device paths held for a pending replacement.
	Reserved map[string]string `json:"reserved,omitempty"`
	// Pending are OSDs of this node that wait for another disk.
	Pending []swap.Pending `json:"pending,omitempty"`
}

// Selection is choice.Selection with its patterns as text.
type Selection struct {
	UseAll     bool          `json:"useAll,omitempty"`
	Filter     string        `json:"filter,omitempty"`
	PathFilter string        `json:"pathFilter,omitempty"`
	Named      []Named       `json:"named,omitempty"`
	Config     choice.Config `json:"config,omitzero"`
}

// Named is a device that the spec names.
type Named struct {
	Ref    string        `json:"ref"`
	Config choice.Config `json:"config,omitzero"`
}

// FieldError says which field of the selection cannot be used.
type FieldError struct {
	Field string
	Err   error
}

// Error names the field.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *FieldError) Unwrap() error { return e.Err }

// Compile turns the text into a selection. The operator calls it before it
// starts a Job, so that a bad pattern is a condition and not a failed pod.
func (s Selection) Compile() (choice.Selection, error) {
	sel := choice.Selection{UseAll: s.UseAll, Config: s.Config}
	var err error
	if sel.Filter, err = pattern("deviceFilter", s.Filter); err != nil {
		return choice.Selection{}, err
	}
	if sel.PathFilter, err = pattern("devicePathFilter", s.PathFilter); err != nil {
		return choice.Selection{}, err
	}
	for _, n := range s.Named {
		sel.Named = append(sel.Named, choice.Named{Ref: n.Ref, Config: n.Config})
	}
	return sel, nil
}

func pattern(field, p string) (*regexp.Regexp, error) {
	if p == "" {
		return nil, nil
	}
	if len(p) > maxPattern {
		return nil, &FieldError{field, fmt.Errorf("the pattern has %d bytes, %d are allowed", len(p), maxPattern)}
	}
	re, err := regexp.Compile(p)
	if err != nil {
		return nil, &FieldError{field, fmt.Errorf("%q is no regular expression: %w", p, err)}
	}
	return re, nil
}

// Activate asks for one OSD's directory.
type Activate struct {
	ID      int    `json:"id"`
	UUID    string `json:"uuid"`
	FSID    string `json:"fsid"`
	MonHost string `json:"monHost,omitempty"`
	Mode    string `json:"mode"`
}

// Encode is the value of Env. The same request gives the same bytes.
func Encode(req any) (string, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return "", fmt.Errorf("encoding the node's request: %w", err)
	}
	return string(b), nil
}

// Decode reads the value of Env into req. Fields it does not know are an error:
// an old node binary must not act on half a request.
func Decode(value string, req any) error {
	if value == "" {
		return fmt.Errorf("reading the request: %s is not set", Env)
	}
	dec := json.NewDecoder(strings.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(req); err != nil {
		return fmt.Errorf("reading the request from %s: %w", Env, err)
	}
	return nil
}
