package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/api/objectbucket/v1alpha1"
)

// FuzzDecode decodes arbitrary JSON into both kinds: it must not panic, and what
// was decoded must survive encoding and decoding unchanged.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"spec":{"additionalConfig":{"maxObjects":"1000"},"storageClassName":"s"},"status":{"phase":"Bound"}}`))
	f.Add([]byte(`{"spec":{"additionalConfig":null,"authentication":{"accessKeys":{}},"endpoint":null,"claimRef":null}}`))
	f.Add([]byte(`{"spec":{"authentication":[]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		roundTrip[v1alpha1.ObjectBucket](t, raw)
		roundTrip[v1alpha1.ObjectBucketClaim](t, raw)
	})
}

func roundTrip[T any](t *testing.T, raw []byte) {
	t.Helper()
	var first, second T
	if json.Unmarshal(raw, &first) != nil {
		return
	}
	encoded, err := json.Marshal(first)
	if err != nil {
		t.Fatalf("encoding what was decoded: %v", err)
	}
	if err := json.Unmarshal(encoded, &second); err != nil {
		t.Fatalf("decoding what was encoded: %v", err)
	}
	again, err := json.Marshal(second)
	if err != nil {
		t.Fatalf("encoding again: %v", err)
	}
	if d := cmp.Diff(string(encoded), string(again)); d != "" {
		t.Errorf("%T changes on the way (-first +second):\n%s", first, d)
	}
}

// TestAuthenticationKeepsNothing holds what the type promises: no key travels in
// an ObjectBucket.
func TestAuthenticationKeepsNothing(t *testing.T) {
	var ob v1alpha1.ObjectBucket
	if err := json.Unmarshal([]byte(`{"spec":{"authentication":{"accessKeys":{"secretAccessKey":"hidden"}}}}`), &ob); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(ob)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"metadata":{},"spec":{},"status":{}}`; string(raw) != want {
		t.Errorf("got %s, want %s", raw, want)
	}
	if err := json.Unmarshal([]byte(`{"spec":{"authentication":["x"]}}`), &ob); err == nil {
		t.Error("a list was accepted where an object belongs")
	}
}
