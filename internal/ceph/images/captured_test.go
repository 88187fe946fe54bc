package images_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/images"
)

// What rbd of Ceph 20.2.4 has written for three images, two of them mirrored by
// snapshots and in a group, as rados listomapvals shows it.
func TestCaptured(t *testing.T) {
	c, ctx := cluster(t), t.Context()
	const uuid = "-a0ce-11eb-8c66-0242ac110002"
	for object, kv := range map[string]map[string]string{
		"rbd_mirroring": {
			"global_236e2e80-49bb-4a5c-933b-854334296f3f": "0c000000313062343965633262313261",
			"image_10b49ec2b12a":                          "02012a0000002400000032333665326538302d343962622d346135632d393333622d3835343333343239366633660101",
			"image_10c3876a1b10":                          "02012a0000002400000064646436613261642d663333632d343732332d386133652d6332356563626161343232340101",
			"mirror_mode":                                 "01000000",
			"mirror_uuid":                                 hex.EncodeToString([]byte("9507abb8-e9e3-4f43-a5be-572a58cb0c19")),
		},
		"rbd_directory": {
			"id_10b49ec2b12a":              "2c0000006373692d766f6c2d31313131313131312d613063652d313165622d386336362d303234326163313130303032",
			"id_10c3876a1b10":              "2c0000006373692d766f6c2d32323232323232322d613063652d313165622d386336362d303234326163313130303032",
			"id_10da2a573f7a":              "2c0000006373692d766f6c2d33333333333333332d613063652d313165622d386336362d303234326163313130303032",
			"name_csi-vol-11111111" + uuid: "0c000000313062343965633262313261",
		},
		"rbd_group_directory": {
			"id_10ffdfccaf1d":                    "320000006373692d766f6c2d67726f75702d39393939393939392d613063652d313165622d386336362d303234326163313130303032",
			"name_csi-vol-group-99999999" + uuid: "0c000000313066666466636361663164",
		},
		"rbd_group_header.10ffdfccaf1d": {"image_0000000000000003_10b49ec2b12a": "00", "image_0000000000000003_10c3876a1b10": "00"},
	} {
		raw := map[string][]byte{}
		for key, text := range kv {
			b, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			raw[key] = b
		}
		if err := c.SetOmap(ctx, ceph.Object{Pool: "rbd", Name: object}, raw); err != nil {
			t.Fatal(err)
		}
	}
	id, err := hex.DecodeString(strings.ReplaceAll("0c 00 00 00 31 30 62 34 39 65 63 32 62 31 32 61", " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteObject(ctx, ceph.Object{Pool: "rbd", Name: "rbd_id.csi-vol-11111111" + uuid}, id); err != nil {
		t.Fatal(err)
	}
	r, at := images.New(c), images.Place{Pool: "rbd"}
	if got, err := r.ID(ctx, at, "csi-vol-11111111"+uuid); err != nil || got != "10b49ec2b12a" {
		t.Errorf("ID = %q, %v", got, err)
	}
	state, err := r.Mirrored(ctx, at)
	if d := cmp.Diff(map[string]bool{"10b49ec2b12a": true, "10c3876a1b10": true}, state); d != "" || err != nil {
		t.Errorf("Mirrored: %v\n%s", err, d)
	}
	names, err := r.Names(ctx, at)
	if d := cmp.Diff(map[string]string{"10b49ec2b12a": "csi-vol-11111111" + uuid, "10c3876a1b10": "csi-vol-22222222" + uuid, "10da2a573f7a": "csi-vol-33333333" + uuid}, names); d != "" || err != nil {
		t.Errorf("Names: %v\n%s", err, d)
	}
	groups, err := r.Groups(ctx, at)
	if d := cmp.Diff(map[string]string{"10ffdfccaf1d": "csi-vol-group-99999999" + uuid}, groups); d != "" || err != nil {
		t.Errorf("Groups: %v\n%s", err, d)
	}
	members, err := r.Members(ctx, at, "10ffdfccaf1d")
	if d := cmp.Diff([]images.Member{{Pool: 3, ID: "10b49ec2b12a"}, {Pool: 3, ID: "10c3876a1b10"}}, members); d != "" || err != nil {
		t.Errorf("Members: %v\n%s", err, d)
	}
}
