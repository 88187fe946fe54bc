package ceph

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is what a Secret looks like wherever it is printed.
const Redacted = "REDACTED"

// Secret is a cephx key, password or passphrase. Printing it in any way, also
// inside another value, gives Redacted; only Reveal gives the content. It can
// be decoded from JSON but encodes as Redacted. The zero value is empty.
//
// The content sits in a closure because fmt does not call the methods of
// unexported fields, and cmp follows pointers: whatever looks inside sees the
// address of a function. It also makes == a compile error: use Equal.
type Secret struct{ content func() string }

// NewSecret wraps s.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{content: func() string { return s }}
}

// Reveal gives the content, for the wire, a Kubernetes Secret or a keyring
// file, and for nothing else.
func (s Secret) Reveal() string {
	if s.content == nil {
		return ""
	}
	return s.content()
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.content == nil }

// Equal compares contents in constant time.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// String is Redacted, or empty for an empty secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return Redacted
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Format writes String whatever the verb and flags are.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalLog is String, for logr.
func (s Secret) MarshalLog() any { return s.String() }

// MarshalJSON is String in quotes.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON takes the content from a JSON string. The error does not repeat
// what was given.
func (s *Secret) UnmarshalJSON(b []byte) error {
	var v string
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("a secret must be a JSON string")
	}
	*s = NewSecret(v)
	return nil
}
