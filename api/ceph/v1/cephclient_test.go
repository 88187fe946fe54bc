package v1

import "testing"

func TestClientNames(t *testing.T) {
	for _, tc := range []struct {
		title                 string
		in                    CephClient
		name, entity, secrets string
	}{
		{
			title: "all of the object's name",
			in:    CephClient{ObjectMeta: named("rook-ceph", "glance")},
			name:  "glance", entity: "client.glance", secrets: "rook-ceph-client-glance",
		},
		{
			title: "a user's name that no object can have",
			in:    CephClient{ObjectMeta: named("rook-ceph", "glance"), Spec: ClientSpec{Name: "Glance_images"}},
			name:  "Glance_images", entity: "client.Glance_images", secrets: "rook-ceph-client-glance",
		},
		{
			title: "a Secret of the user's choice",
			in:    CephClient{ObjectMeta: named("rook-ceph", "glance"), Spec: ClientSpec{SecretName: "images-key"}},
			name:  "glance", entity: "client.glance", secrets: "images-key",
		},
	} {
		t.Run(tc.title, func(t *testing.T) {
			if got := tc.in.ClientName(); got != tc.name {
				t.Errorf("ClientName = %q, want %q", got, tc.name)
			}
			if got := tc.in.EntityName(); got != tc.entity {
				t.Errorf("EntityName = %q, want %q", got, tc.entity)
			}
			if got := tc.in.SecretName(); got != tc.secrets {
				t.Errorf("SecretName = %q, want %q", got, tc.secrets)
			}
		})
	}
}

func TestReservedClientName(t *testing.T) {
	for name, want := range map[string]bool{
		"admin":                true,
		"admin-rotator":        true,
		"operator":             true,
		"crash":                true,
		"ceph-exporter":        true,
		"fs-mirror":            true,
		"rbd-mirror":           true,
		"rbd-mirror.a":         true,
		"rbd-mirror-peer":      true,
		"rgw.my.store.a":       true,
		"nfs-ganesha.my-nfs.a": true,
		"nvmeof.gw.a":          true,
		"bootstrap-osd":        true,
		"osd-lockbox.1-2-3":    true,

		"":                    false,
		"glance":              false,
		"administrator":       false,
		"my-admin":            false,
		"rgw":                 false,
		"rgwuser":             false,
		"crasher":             false,
		"csi-rbd-provisioner": false, // see csi.skipUserCreation
		"osd-lockbox":         false,
	} {
		if got := ReservedClientName(name); got != want {
			t.Errorf("ReservedClientName(%q) = %v, want %v", name, got, want)
		}
	}
}
