package handle_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/csi/handle"
)

const uuid = "b0285c97-a0ce-11eb-8c66-0242ac110002"

func TestParse(t *testing.T) {
	fsid := "42ceda1d-b18d-4d63-95ad-708fc0c61744"
	for _, tt := range []struct {
		name, in string
		want     handle.Handle
		err      error
	}{
		{name: "plain", in: "0001-000f-primary-cluster-0000000000000001-" + uuid,
			want: handle.Handle{Version: 1, ClusterID: "primary-cluster", Pool: 1, UUID: uuid}},
		{name: "rook", in: "0001-0009-rook-ceph-000000000000000a-" + uuid,
			want: handle.Handle{Version: 1, ClusterID: "rook-ceph", Pool: 10, UUID: uuid}},
		{name: "fsid", in: "0001-0024-" + fsid + "-0000000000000006-" + uuid,
			want: handle.Handle{Version: 1, ClusterID: fsid, Pool: 6, UUID: uuid}},
		{name: "upper case digits", in: "0001-000F-primary-cluster-000000000000000A-" + uuid,
			want: handle.Handle{Version: 1, ClusterID: "primary-cluster", Pool: 10, UUID: uuid}},
		{name: "other version", in: "ffff-0001-a-0000000000000001-" + uuid,
			want: handle.Handle{Version: 0xffff, ClusterID: "a", Pool: 1, UUID: uuid}},
		{name: "empty cluster id", in: "0001-0000--0000000000000001-" + uuid,
			want: handle.Handle{Version: 1, Pool: 1, UUID: uuid}},
		{name: "negative pool", in: "0001-0001-a-ffffffffffffffff-" + uuid,
			want: handle.Handle{Version: 1, ClusterID: "a", Pool: -1, UUID: uuid}},
		{name: "other separators", in: "0001_0001_a_0000000000000001_" + uuid,
			want: handle.Handle{Version: 1, ClusterID: "a", Pool: 1, UUID: uuid}},
		{name: "longer than can be written", in: "0001-0041-" + strings.Repeat("c", 65) + "-0000000000000001-" + uuid,
			want: handle.Handle{Version: 1, ClusterID: strings.Repeat("c", 65), Pool: 1, UUID: uuid}},
		{name: "length one too big", in: "0001-0010-primary-cluster-0000000000000001-" + uuid, err: handle.ErrHex},
		{name: "length one too small", in: "0001-000e-primary-cluster-0000000000000001-" + uuid, err: handle.ErrHex},
		{name: "length far too big", in: "0001-ffff-primary-cluster-0000000000000001-" + uuid, err: handle.ErrSize},
		{name: "short uuid", in: "0001-000f-primary-cluster-0000000000000001-vol-abc123", err: handle.ErrTooShort},
		{name: "pool not hexadecimal", in: "0001-000f-primary-cluster-000000000000000g-" + uuid, err: handle.ErrHex},
		{name: "version not hexadecimal", in: "v001-000f-primary-cluster-0000000000000001-" + uuid, err: handle.ErrHex},
		{name: "length not hexadecimal", in: "0001-00zz-primary-cluster-0000000000000001-" + uuid, err: handle.ErrHex},
		{name: "one byte more", in: "0001-000f-primary-cluster-0000000000000001-" + uuid + "x", err: handle.ErrSize},
		{name: "static volume", in: "my-static-volume", err: handle.ErrTooShort},
		{name: "empty", in: "", err: handle.ErrTooShort},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := handle.Parse(tt.in)
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("handle (-want +got):\n%s", d)
			}
		})
	}
}

func TestCompose(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   handle.Handle
		want string
		err  error
	}{
		{name: "plain", in: handle.Handle{Version: 1, ClusterID: "secondary-cluster", Pool: 4096, UUID: uuid},
			want: "0001-0011-secondary-cluster-0000000000001000-" + uuid},
		{name: "longest", in: handle.Handle{Version: 1, ClusterID: strings.Repeat("c", 64), Pool: 1, UUID: uuid},
			want: "0001-0040-" + strings.Repeat("c", 64) + "-0000000000000001-" + uuid},
		{name: "too long", in: handle.Handle{Version: 1, ClusterID: strings.Repeat("c", 65), Pool: 1, UUID: uuid}, err: handle.ErrTooLong},
		{name: "negative pool", in: handle.Handle{Version: 1, ClusterID: "a", Pool: -1, UUID: uuid},
			want: "0001-0001-a-ffffffffffffffff-" + uuid},
		{name: "short uuid", in: handle.Handle{Version: 1, ClusterID: "a", Pool: 1, UUID: "abc"}, err: handle.ErrUUID},
		{name: "long uuid", in: handle.Handle{Version: 1, ClusterID: "a", Pool: 1, UUID: uuid + "0"}, err: handle.ErrUUID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.in.Compose()
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(got) > handle.MaxLen {
				t.Errorf("%d bytes", len(got))
			}
		})
	}
}

// FuzzParse: no input panics, and what can be read and written again means the
// same.
func FuzzParse(f *testing.F) {
	f.Add("0001-000f-primary-cluster-0000000000000001-" + uuid)
	f.Add("0001-0010-primary-cluster-0000000000000001-" + uuid)
	f.Add("0001-ffff-primary-cluster-0000000000000001-" + uuid)
	f.Add("ffff-0000--ffffffffffffffff-" + uuid)
	f.Add("")
	f.Fuzz(func(t *testing.T, in string) {
		h, err := handle.Parse(in)
		if err != nil {
			return
		}
		if len(in) != handle.FixedLen+len(h.ClusterID) {
			t.Fatalf("read %+v from %d bytes", h, len(in))
		}
		out, err := h.Compose()
		if err != nil {
			if len(h.ClusterID) <= handle.MaxClusterID {
				t.Fatalf("writing %+v: %v", h, err)
			}
			return
		}
		again, err := handle.Parse(out)
		if err != nil {
			t.Fatalf("reading %q again: %v", out, err)
		}
		if d := cmp.Diff(h, again); d != "" {
			t.Errorf("changed on the way (-first +second):\n%s", d)
		}
	})
}
