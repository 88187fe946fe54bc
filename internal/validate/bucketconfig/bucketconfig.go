// Package bucketconfig reads the additionalConfig of an ObjectBucketClaim,
// which is a map of strings: quotas, policy, lifecycle and owner of the bucket.
// A wrong value is never taken for another one: it is a problem that names its
// key. What a user may write at all, the administrator decides by a list of
// keys.
//
// It is pure, and must not know the store or the claim.
package bucketconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/castellan-storage/castellan/internal/validate"
)

// Keys of the configuration.
const (
	MaxObjects       = "maxObjects"
	MaxSize          = "maxSize"
	BucketMaxObjects = "bucketMaxObjects"
	BucketMaxSize    = "bucketMaxSize"
	BucketPolicy     = "bucketPolicy"
	BucketLifecycle  = "bucketLifecycle"
	BucketOwner      = "bucketOwner"
)

// AllowSetting is the setting of the operator that lists the allowed keys.
const AllowSetting = "ROOK_OBC_ALLOW_ADDITIONAL_CONFIG_FIELDS"

// Bounds of texts.
const (
	// maxPolicy is the largest bucket policy that S3 takes, 20 KiB.
	maxPolicy = 20 << 10
	// maxLifecycleRules is the largest number of lifecycle rules that S3 takes.
	maxLifecycleRules = 1000
	// maxOwner is a generous bound for the name of a user.
	maxOwner = 1024
)

// Config is the configuration of a bucket as values. The zero value of each
// means: not set.
type Config struct {
	// MaxObjects and MaxSize (bytes) bound everything that the user of the claim
	// owns. nil: no bound.
	MaxObjects, MaxSize *int64
	// BucketMaxObjects and BucketMaxSize (bytes) bound the bucket. nil: no bound.
	BucketMaxObjects, BucketMaxSize *int64
	// BucketPolicy is the policy of the bucket, JSON as S3 takes it.
	BucketPolicy string
	// BucketLifecycle are the lifecycle rules of the bucket, JSON as S3 takes it.
	BucketLifecycle string
	// BucketOwner is a user of the store that is to own the bucket.
	BucketOwner string
}

// Known gives all keys.
func Known() []string {
	return []string{MaxObjects, MaxSize, BucketMaxObjects, BucketMaxSize, BucketPolicy, BucketLifecycle, BucketOwner}
}

// DefaultAllowed gives the keys that users may write unless the administrator
// says otherwise: those that cannot reach another user's data.
func DefaultAllowed() []string {
	return []string{MaxObjects, MaxSize}
}

// ParseAllowed reads the value of AllowSetting: keys with commas between them.
// Empty gives the default.
func ParseAllowed(setting string) []string {
	var out []string
	for key := range strings.SplitSeq(setting, ",") {
		if key = strings.TrimSpace(key); key != "" {
			out = append(out, key)
		}
	}
	if len(out) == 0 {
		return DefaultAllowed()
	}
	return out
}

// Parse reads the configuration, and gives the problems by key in order. A key
// with a problem is left unset; an empty value counts as unset.
func Parse(config map[string]string, allowed []string) (Config, []validate.Problem) {
	var c Config
	var problems []validate.Problem
	for _, key := range validate.Keys(config) {
		value := strings.TrimSpace(config[key])
		if value == "" {
			continue
		}
		if slices.Contains(Known(), key) && !slices.Contains(allowed, key) {
			problems = append(problems, validate.Problem{Key: key, Problem: "is not allowed here",
				Hint: "remove it, or ask the administrator to add it to " + AllowSetting})
			continue
		}
		problem, hint, known := c.set(key, value)
		switch {
		case !known:
			problems = append(problems, validate.UnknownKey(key, Known()))
		case problem != "":
			problems = append(problems, validate.Problem{Key: key, Problem: problem, Hint: hint})
		}
	}
	return c, problems
}

func (c *Config) set(key, value string) (problem, hint string, known bool) {
	const number = "write a whole number, for instance 1000"
	const size = "write a quantity, for instance 10Gi"
	switch key {
	case MaxObjects:
		c.MaxObjects, problem = quantity(value)
		return problem, number, true
	case MaxSize:
		c.MaxSize, problem = quantity(value)
		return problem, size, true
	case BucketMaxObjects:
		c.BucketMaxObjects, problem = quantity(value)
		return problem, number, true
	case BucketMaxSize:
		c.BucketMaxSize, problem = quantity(value)
		return problem, size, true
	case BucketPolicy:
		c.BucketPolicy, problem = policy(value)
		return problem, "write a bucket policy of S3 as JSON, with a Statement that has Effect, Action and Resource", true
	case BucketLifecycle:
		c.BucketLifecycle, problem = lifecycle(value)
		return problem, "write a lifecycle configuration of S3 as JSON, with Rules that each have a Status", true
	case BucketOwner:
		c.BucketOwner, problem = owner(value)
		return problem, "write the name of a user of the store, as CephObjectStoreUser has it", true
	}
	return "", "", false
}

// quantity reads a number with or without a unit.
func quantity(value string) (*int64, string) {
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return nil, fmt.Sprintf("%q is not a number", value)
	}
	n, ok := q.AsInt64()
	switch {
	case !ok:
		return nil, fmt.Sprintf("%q is not a whole number, or too large", value)
	case n < 0:
		return nil, fmt.Sprintf("%q is negative", value)
	}
	return &n, ""
}

// policy reads a bucket policy: it must have statements, and each of them an
// effect. The store reads the rest.
func policy(value string) (string, string) {
	if len(value) > maxPolicy {
		return "", fmt.Sprintf("it has %d bytes, more than the %d that S3 takes", len(value), maxPolicy)
	}
	var p struct{ Statement json.RawMessage }
	if problem := object(value, &p); problem != "" {
		return "", problem
	}
	statements, problem := list(p.Statement, "Statement")
	if problem != "" {
		return "", problem
	}
	for i, raw := range statements {
		var s struct{ Effect string }
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Sprintf("Statement %d is no object", i+1)
		}
		if s.Effect != "Allow" && s.Effect != "Deny" {
			return "", fmt.Sprintf("Statement %d has the Effect %q, which is neither Allow nor Deny", i+1, s.Effect)
		}
	}
	return value, ""
}

// lifecycle reads a lifecycle configuration: it must have rules, and each of
// them a status. The store reads the rest.
func lifecycle(value string) (string, string) {
	var l struct{ Rules json.RawMessage }
	if problem := object(value, &l); problem != "" {
		return "", problem
	}
	rules, problem := list(l.Rules, "Rules")
	if problem != "" {
		return "", problem
	}
	if len(rules) > maxLifecycleRules {
		return "", fmt.Sprintf("it has %d rules, more than the %d that S3 takes", len(rules), maxLifecycleRules)
	}
	for i, raw := range rules {
		var r struct{ Status string }
		if err := json.Unmarshal(raw, &r); err != nil {
			return "", fmt.Sprintf("rule %d is no object", i+1)
		}
		if r.Status != "Enabled" && r.Status != "Disabled" {
			return "", fmt.Sprintf("rule %d has the Status %q, which is neither Enabled nor Disabled", i+1, r.Status)
		}
	}
	return value, ""
}

// object decodes one JSON object.
func object(value string, into any) string {
	decoder := json.NewDecoder(strings.NewReader(value))
	if err := decoder.Decode(into); err != nil {
		return fmt.Sprintf("it is no JSON object: %v", err)
	}
	if decoder.More() {
		return "there is something after the JSON object"
	}
	return ""
}

// list gives the items of a JSON list; S3 takes one item for a list of one.
func list(raw json.RawMessage, name string) ([]json.RawMessage, string) {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")) {
		return nil, "it has no " + name
	}
	if trimmed[0] != '[' {
		return []json.RawMessage{trimmed}, ""
	}
	var items []json.RawMessage
	if err := json.Unmarshal(trimmed, &items); err != nil {
		return nil, fmt.Sprintf("%s is no list: %v", name, err)
	}
	if len(items) == 0 {
		return nil, name + " is empty"
	}
	return items, ""
}

// owner reads the name of a user: any text on one line that is no flag.
func owner(value string) (string, string) {
	switch {
	case strings.HasPrefix(value, "-"):
		return "", fmt.Sprintf("%q starts with '-'", value)
	case len(value) > maxOwner:
		return "", fmt.Sprintf("it has %d bytes, more than %d", len(value), maxOwner)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", "it holds a control character or a line break"
	}
	return value, ""
}
