package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestKeysHaveCephsForm(t *testing.T) {
	now := time.Unix(0x6b0cbc52, 0x172062f2)
	for c, want := range map[Cipher]struct {
		chars  int
		prefix string
	}{AES: {40, "AQB"}, AES256K: {60, "AgB"}} {
		k, err := NewKey(rand.Reader, c, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(k.Reveal()) != want.chars || !strings.HasPrefix(k.Reveal(), want.prefix) {
			t.Errorf("cipher %d: %d characters beginning with %.3s, want %d and %s", c, len(k.Reveal()), k.Reveal(), want.chars, want.prefix)
		}
		b, err := base64.StdEncoding.DecodeString(k.Reveal())
		if err != nil || len(b) != 12+c.size() {
			t.Errorf("cipher %d: %d bytes, %v", c, len(b), err)
		}
	}
	if _, err := NewKey(bytes.NewReader([]byte("short")), AES256K, now); err == nil {
		t.Error("a key was made of too little randomness")
	}
}

func TestNewThenParse(t *testing.T) {
	id, err := New(rand.Reader, AES256K, time.Unix(1790000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id.FSID) {
		t.Errorf("fsid %q is no version 4 uuid", id.FSID)
	}
	if id.Mon.Equal(id.Key) {
		t.Error("mon. and client.admin have one key")
	}
	back, err := Parse(id.Data())
	if err != nil || back.FSID != id.FSID || !back.Mon.Equal(id.Mon) || !back.Key.Equal(id.Key) || back.User != AdminUser {
		t.Errorf("read back %+v, %v", back, err)
	}
	if s := fmt.Sprintf("%v %+v %#v", id, id, id); strings.Contains(s, id.Key.Reveal()) || strings.Contains(s, id.Mon.Reveal()) {
		t.Error("an identity prints its keys")
	}
	for _, section := range []string{"[mon.]", "[client.admin]"} {
		if !strings.Contains(id.MonsKeyringFile(), section) {
			t.Errorf("the mons' keyring lacks %s", section)
		}
	}
}

func TestAHalfIdentityIsAnError(t *testing.T) {
	id, err := New(rand.Reader, AES256K, time.Unix(1790000000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for key := range id.Data() {
		data := id.Data()
		delete(data, key)
		if _, err := Parse(data); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v", key, err)
		}
	}
	old := map[string][]byte{"fsid": []byte("f"), "mon-secret": []byte("m"), "admin-secret": []byte("a")}
	if got, err := Parse(old); err != nil || got.User != AdminUser || got.Key.Reveal() != "a" {
		t.Errorf("legacy form: %+v, %v", got, err)
	}
}

func TestMayFoundOnlyOnCleanGround(t *testing.T) {
	if ok, why := (Traces{}).MayFound(); !ok {
		t.Error(why)
	}
	for _, tr := range []Traces{{Secret: true}, {Endpoints: true}, {Mons: []string{"Deployment rook-ceph-mon-a"}}, {Ran: "3 Deployments of OSDs"}} {
		if ok, why := tr.MayFound(); ok || why == "" {
			t.Errorf("%+v: %v %q", tr, ok, why)
		}
	}
}
