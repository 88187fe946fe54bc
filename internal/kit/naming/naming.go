// Package naming holds what objects, labels and owner references are called when a
// name does not fit. It is pure and imports no client, so builders of specs use it
// as well as controllers. It must not know any particular name.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxLabel is the longest label value, and the longest name that is usable as one
// (RFC 1123 label).
const MaxLabel = validation.LabelValueMaxLength

// Hash gives the first 16 bytes of the SHA-256 of s in hex: 32 characters that are
// valid in a name. Users of Rook have objects and volume handles named by it.
func Hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Fit formats name into format ("rook-ceph-osd-prepare-%s"). If the result is longer
// than max, the hash of name takes its place. It is stable: the same name always
// gives the same result.
func Fit(format, name string, max int) string {
	if s := fmt.Sprintf(format, name); len(s) <= max {
		return s
	}
	return fmt.Sprintf(format, Hash(name))
}

// LabelValue makes s fit for a label value: characters that are not allowed become
// '-', and what is too long is cut and given a hash. What fits is not changed.
// Different inputs may only give the same value if they differ in forbidden
// characters alone.
func LabelValue(s string) string {
	if len(validation.IsValidLabelValue(s)) == 0 {
		return s
	}
	out := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, s)
	if len(out) > MaxLabel {
		sum := Hash(s)[:8]
		out = strings.TrimRight(out[:MaxLabel-1-len(sum)], "-_.") + "-" + sum
	}
	return strings.Trim(out, "-_.")
}

// Owner gives an owner reference to obj that makes it the controller and blocks
// its foreground deletion, as Rook's objects have it. obj must have been read from
// the API server (it needs its UID).
func Owner(obj metav1.Object, gvk schema.GroupVersionKind) metav1.OwnerReference {
	return *metav1.NewControllerRef(obj, gvk)
}

// CoOwner gives an owner reference to obj that only makes the garbage collector
// delete the object when its last owner has gone.
func CoOwner(obj metav1.Object, gvk schema.GroupVersionKind) metav1.OwnerReference {
	ref := *metav1.NewControllerRef(obj, gvk)
	ref.Controller, ref.BlockOwnerDeletion = nil, nil
	return ref
}
