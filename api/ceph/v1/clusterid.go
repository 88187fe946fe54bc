package v1

import (
	"crypto/sha256"
	"encoding/hex"
)

// clusterIDHash is the first 16 bytes, in hex, of the SHA-256 of s. CSI
// cluster IDs are at most 36 characters long, and names joined are longer.
func clusterIDHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
