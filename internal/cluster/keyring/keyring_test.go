package keyring

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A keyring that another operator has written holds the same key: nothing restarts.
func TestVersionGoesByTheKey(t *testing.T) {
	v := func(file string) string {
		return Version(&corev1.Secret{Data: map[string][]byte{"keyring": []byte(file)}})
	}
	ours := v("[mgr.a]\n\tkey = AQB==\n")
	if v("\n[mgr.a]\n\tkey=AQB==\n\tcaps mon = \"allow profile mgr\"\n") != ours {
		t.Error("the same key in another form counts as another")
	}
	if v("[mgr.a]\n\tkey = AQC==\n") == ours || v("[mgr.b]\n\tkey = AQB==\n") == ours {
		t.Error("another key or another entity is not seen")
	}
}
