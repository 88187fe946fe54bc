package v1

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
)

// fuzzDecode feeds arbitrary JSON to one kind. What decodes must mean
// the same after another round of encoding, and the pure methods must not panic on
// it whatever it holds.
func fuzzDecode[T any](f *testing.F, methods func(*T), seeds ...string) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"metadata":{"name":"a","namespace":"b"},"spec":null,"status":null}`))
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var first T
		if json.Unmarshal(data, &first) != nil {
			return
		}
		methods(&first)
		once, err := json.Marshal(&first)
		if err != nil {
			// An object that came from the API server always encodes; numbers
			// and quantities that cannot be written do not come from there.
			return
		}
		var second T
		if err := json.Unmarshal(once, &second); err != nil {
			t.Fatalf("decoding our own encoding: %v\n%s", err, once)
		}
		twice, err := json.Marshal(&second)
		if err != nil {
			t.Fatalf("encoding a second time: %v\n%s", err, once)
		}
		var third T
		if err := json.Unmarshal(twice, &third); err != nil {
			t.Fatalf("decoding our second encoding: %v\n%s", err, twice)
		}
		// An empty list and none mean the same, and an object of nothing but
		// empty lists is left out, so that the bytes may still differ.
		if !equality.Semantic.DeepEqual(second, third) {
			t.Fatalf("the encoding changes the meaning:\n%s\n%s", once, twice)
		}
	})
}

func FuzzDecodeCephBlockPool(f *testing.F) {
	fuzzDecode(f, func(p *CephBlockPool) {
		_, _, _ = p.PoolName(), p.DeepCopy(), p.Spec.EffectiveFailureDomain()
	},
		`{"spec":{"name":".mgr","replicated":{"size":3},"quotas":{"maxSize":"10Gi"},"mirroring":{"enabled":true,"mode":"image","peers":{"secretNames":["a"]}}}}`,
		`{"spec":{"erasureCoded":{"dataChunks":2,"codingChunks":1,"stripeUnit":"4Ki"},"parameters":{"bulk":"true"}},"status":{"poolID":3,"conditions":[{"type":"Ready"}]}}`,
		`{"status":{"mirroringStatus":{"summary":{"states":{"replaying":2},"group_health":null}}}}`)
}

func FuzzDecodeCephBlockPoolRadosNamespace(f *testing.F) {
	fuzzDecode(f, func(n *CephBlockPoolRadosNamespace) {
		_, _, _ = n.RadosNamespace(), n.DeepCopy(), n.IsImplicit()
		if n.ClusterID() == "" {
			panic("a namespace without a cluster id")
		}
	},
		`{"spec":{"blockPoolName":"replicapool","name":"<implicit>","mirroring":{"mode":"image","remoteNamespace":"ns2"}}}`)
}

func FuzzDecodeCephFilesystem(f *testing.F) {
	fuzzDecode(f, func(fs *CephFilesystem) {
		_, _, _ = fs.MetadataPoolName(), fs.DeepCopy(), fs.Spec.MetadataServer.CacheMemoryLimit()
		if got, want := len(fs.DataPoolNames()), len(fs.Spec.DataPools); got != want {
			panic("as many names as pools are wanted")
		}
	},
		`{"spec":{"metadataPool":null,"dataPools":null,"metadataServer":{"activeCount":1}}}`,
		`{"spec":{"metadataPool":{"replicated":{"size":3}},"dataPools":[{"name":"a","replicated":{"size":3}},{"erasureCoded":{"dataChunks":2,"codingChunks":1}}],"metadataServer":{"activeCount":2,"activeStandby":true,"resources":{"limits":{"memory":"4Gi"}},"cacheMemoryLimitFactor":0.5}}}`)
}

func FuzzDecodeCephFilesystemSubVolumeGroup(f *testing.F) {
	fuzzDecode(f, func(g *CephFilesystemSubVolumeGroup) {
		_, _ = g.GroupName(), g.DeepCopy()
		if g.ClusterID() == "" {
			panic("a group without a cluster id")
		}
	},
		`{"spec":{"filesystemName":"myfs","quota":"10Gi","pinning":{"distributed":1,"random":0.01}}}`,
		`{"spec":{"filesystemName":"myfs","quota":10737418240,"pinning":{"export":-1}}}`)
}

func FuzzDecodeCephFilesystemMirror(f *testing.F) {
	fuzzDecode(f, func(m *CephFilesystemMirror) { _ = m.DeepCopy() },
		`{"spec":{"placement":null,"resources":null,"labels":{"a":"b"}}}`)
}

func FuzzDecodeCephRBDMirror(f *testing.F) {
	fuzzDecode(f, func(m *CephRBDMirror) { _ = m.DeepCopy() },
		`{"spec":{"count":1,"peers":null,"placement":{"tolerations":[{"operator":"Exists"}]}}}`)
}

func FuzzDecodeCephNFS(f *testing.F) {
	fuzzDecode(f, func(n *CephNFS) {
		_, _, _ = n.RADOSNamespace(), n.DeepCopy(), n.Spec.Server.EffectivePort()
	},
		`{"spec":{"rados":null,"server":{"active":1,"hostNetwork":null},"security":{"kerberos":{"principalName":"nfs","keytabFile":{"volumeSource":{"secret":{"secretName":"s"}}}},"sssd":{"sidecar":{"image":"i","additionalFiles":[{"subPath":"ca","volumeSource":{"configMap":{"name":"c"}}}]}}}}}`)
}

func FuzzDecodeCephNVMeOFGateway(f *testing.F) {
	fuzzDecode(f, func(g *CephNVMeOFGateway) {
		_, _, _ = g.Spec.EffectivePorts(), g.DeepCopy(), g.Spec.PortsConflict()
	},
		`{"spec":{"group":"g","instances":2,"ports":{"ioPort":4420},"nvmeofConfig":{"gateway":{"x":"y"}}}}`)
}

func FuzzDecodeCephClient(f *testing.F) {
	fuzzDecode(f, func(c *CephClient) {
		_, _, _ = c.EntityName(), c.DeepCopy(), c.SecretName()
		_ = ReservedClientName(c.ClientName())
	},
		`{"spec":{"caps":{"mon":"profile rbd"},"security":{"cephx":{"keyRotationPolicy":"KeyGeneration","keyGeneration":2,"keyType":"aes256k"}}}}`)
}
