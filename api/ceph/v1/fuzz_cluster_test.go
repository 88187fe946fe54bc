package v1

import (
	"testing"
	"time"
)

func FuzzDecodeCephCluster(f *testing.F) {
	fuzzDecode(f, func(c *CephCluster) {
		_ = c.DeepCopy()
		s := &c.Spec
		_, _, _, _ = s.IsExternal(), s.IsStretchCluster(), s.ZonesRequired(), s.EffectiveOSDWait()
		_, _, _ = s.Mon.EffectiveZones(), s.Mon.EffectiveFailureDomainLabel(), s.Mon.ArbiterZone()
		_, _, _ = s.Mon.ClaimFor("a").ToPVC(), s.Mgr.EffectiveCount(), s.Mgr.IsHost(&s.Network)
		_, _, _ = s.Network.RequiresMsgr2(), s.Network.IsMultus(), s.Network.EffectiveIPFamily()
		_, _ = s.Storage.IsMigrationAllowed(), s.Storage.EffectiveStoreType()
		_, _, _ = s.Dashboard.EffectivePort(), s.LogCollector.EffectivePeriodicity(), s.DisruptionManagement.EffectiveOSDMaintenanceTimeout()
		_, _, _ = s.Monitoring.EffectivePort(), s.Monitoring.EffectiveExternalPort(), s.Monitoring.EffectiveExporterPort()
		_, _ = s.CleanupPolicy.HasDataDirCleanPolicy(), s.CleanupPolicy.SanitizeDisks.EffectiveIteration()
		_, _, _ = s.Resources.ForOSD("ssd"), s.Labels.ForDaemon(KeyMon), s.Annotations.ForDaemon(KeyMon)
		_, _ = s.Placement.ForDaemon(KeyOSD), s.PriorityClassNames.ForDaemon(KeyOSD)
		_ = s.Security.CephX.Daemon.RotationWanted(CephxStatus{})
		if s.Mon.EffectiveCount() < 1 || s.Mgr.EffectiveCount() < 1 || s.Storage.EffectiveOSDMaxUpdatesInParallel() < 1 {
			panic("a count below one")
		}
		if d := s.HealthCheck.DaemonHealth.Monitor.EffectiveInterval(time.Minute); d <= 0 {
			panic("an interval that is none")
		}
		if d, _ := s.HealthCheck.DaemonHealth.Monitor.EffectiveTimeout(time.Minute); d < 0 {
			panic("a negative timeout")
		}
		node, chosen := s.Storage.ResolveNode("a")
		if !chosen && node.Name != "" {
			panic("a node that is not chosen has a name")
		}
		for _, d := range node.Devices {
			_, _ = d.Path(), node.ConfigFor(d)
		}
	},
		`{"spec":{"cephVersion":{"image":"quay.io/ceph/ceph:v20"},"dataDirHostPath":"/var/lib/rook","mon":{"count":3,"volumeClaimTemplate":{"metadata":{"name":"a"},"spec":{}}}}}`,
		`{"spec":{"mon":{"count":5,"stretchCluster":{"failureDomainLabel":"topology.kubernetes.io/zone","zones":[{"name":"a","arbiter":true},{"name":"b"},{"name":"c"}]}}}}`,
		`{"spec":{"storage":{"useAllNodes":false,"nodes":[{"name":"a","devices":[{"name":"sdb","config":{"osdsPerDevice":"2"}}]}],"fullRatio":0.95,"config":{"storeType":"bluestore"}}}}`,
		`{"spec":{"network":{"provider":"multus","selectors":{"public":"a"},"addressRanges":{"public":["10.0.0.0/8"]},"connections":{"encryption":{"enabled":true}}},"external":null,"mgr":null}}`,
		`{"spec":{"healthCheck":{"daemonHealth":{"mon":{"interval":"45s","timeout":"0"}},"livenessProbe":{"mon":{"disabled":true},"osd":null}},"waitTimeoutForHealthyOSDInMinutes":10}}`,
		`{"spec":{"security":{"cephx":{"daemon":{"keyRotationPolicy":"KeyGeneration","keyGeneration":2},"csi":{"keyGeneration":1,"keepPriorKeyCountMax":1}}},"cephConfig":{"global":{"a":"b"}},"logCollector":{"maxLogSize":"500M"}}}`,
		`{"status":{"phase":"Ready","ceph":{"health":"HEALTH_OK","versions":{"mon":{"ceph version 20":3}}},"storage":{"replacements":[{"id":5,"phase":"ReadyForSwap","disk":{"serial":"x"}}]},"blockedBy":[{"subject":"mon-c"}]}}`,
		`{"spec":{"placement":{"all":{"tolerations":[{"key":"a"}]},"osd":{"nodeAffinity":{}}},"resources":{"osd-ssd":{"limits":{"cpu":"1"}}}}}`)
}

func FuzzDecodeCephObjectStore(f *testing.F) {
	fuzzDecode(f, func(s *CephObjectStore) {
		_ = s.DeepCopy()
		_, _, _ = s.Spec.IsMultisite(), s.Spec.IsExternal(), s.ServiceDomainName()
		_, _, _ = s.Spec.Gateway.EffectiveInstances(), s.Spec.Gateway.EffectivePort(), s.Spec.Gateway.HasTLS()
		_, _ = s.Spec.Gateway.IsHost(&NetworkSpec{}), s.Spec.Gateway.IsDashboardEnabled()
		_, _ = s.Spec.Protocols.IsS3Enabled(), s.GetConditions()
		if p, ok := s.Spec.SharedPools.DefaultPlacement(); !ok && p.Name != "" {
			panic("a placement that is none has a name")
		}
		for _, e := range s.Spec.Gateway.ExternalRgwEndpoints {
			_ = e.Host()
		}
		for _, m := range s.Spec.Gateway.AdditionalVolumeMounts {
			if m.VolumeSource != nil {
				_, _ = m.VolumeSource.ToVolumeSource(), m.VolumeSource.IsEmpty()
			}
		}
	},
		`{"spec":{"metadataPool":{"replicated":{"size":3}},"dataPool":{"erasureCoded":{"dataChunks":4,"codingChunks":2}},"gateway":{"port":80,"instances":2,"resources":null}}}`,
		`{"spec":{"sharedPools":{"poolPlacements":[{"name":"default","metadataPoolName":"m","dataPoolName":"d","storageClasses":[{"name":"X","dataPoolName":"x"}]}]},"hosting":{"advertiseEndpoint":{"dnsName":"a","port":443,"useTls":true}}}}`,
		`{"spec":{"gateway":{"externalRgwEndpoints":[{"ip":"192.0.2.1"}],"additionalVolumeMounts":[{"subPath":"a","volumeSource":{"secret":{"secretName":"b"}}}],"service":{"annotations":{"a":"b"}}},"zone":{"name":"z"}}}`,
		`{"spec":{"auth":{"keystone":{"url":"https://k","acceptedRoles":["a"],"serviceUserSecretName":"s"}},"protocols":{"enableAPIs":["s3"],"s3":{"enabled":false},"swift":{"urlPrefix":"/"}},"security":{"kms":{"connectionDetails":{"KMS_PROVIDER":"vault"}},"sslOptions":{"tlsv1_2":true}}}}`,
		`{"status":{"phase":"Ready","endpoints":{"insecure":["http://a"]},"info":{"endpoint":"http://a"},"cephx":{"daemon":{"keyGeneration":1}},"replicas":2}}`)
}

func FuzzDecodeCephObjectRealm(f *testing.F) {
	fuzzDecode(f, func(r *CephObjectRealm) {
		_, _, _, _ = r.DeepCopy(), r.Spec.IsPullRealm(), r.KeysSecretName(), r.GetConditions()
	}, `{"spec":{"pull":{"endpoint":"https://a"},"defaultRealm":true},"status":{"phase":"Ready"}}`)
}

func FuzzDecodeCephObjectZoneGroup(f *testing.F) {
	fuzzDecode(f, func(g *CephObjectZoneGroup) {
		_, _ = g.DeepCopy(), g.GetConditions()
	}, `{"spec":{"realm":"a"}}`)
}

func FuzzDecodeCephObjectZone(f *testing.F) {
	fuzzDecode(f, func(z *CephObjectZone) {
		_, _, _ = z.DeepCopy(), z.Spec.PoolsPreserved(), z.GetConditions()
	}, `{"spec":{"zoneGroup":"a","metadataPool":{"replicated":{"size":3}},"customEndpoints":["https://a"],"preservePoolsOnDelete":false}}`)
}

func FuzzDecodeCephObjectStoreUser(f *testing.F) {
	fuzzDecode(f, func(u *CephObjectStoreUser) {
		_, _, _, _, _ = u.DeepCopy(), u.StoreNamespace(), u.EffectiveDisplayName(), u.SecretName(), u.GetConditions()
	}, `{"spec":{"store":"a","quotas":{"maxBuckets":1,"maxSize":"10G","maxObjects":-1},"capabilities":{"amz-cache":"*"},"opMask":["read"],"keys":[{"accessKeyRef":{"name":"a","key":"b"}}],"accountRef":{"name":"a"}},"status":{"keys":[{"name":"a","uid":"b"}]}}`)
}

func FuzzDecodeCephObjectStoreAccount(f *testing.F) {
	fuzzDecode(f, func(a *CephObjectStoreAccount) {
		_, _, _, _, _ = a.DeepCopy(), a.EffectiveName(), a.RootUserWanted(), a.RootUserSecretName(), a.GetConditions()
	}, `{"spec":{"store":"a","accountID":"RGW12345678901234567","rootUser":{"skipCreate":true}},"status":{"rootAccountSecretName":"a"}}`)
}

func FuzzDecodeCephBucketTopic(f *testing.F) {
	fuzzDecode(f, func(b *CephBucketTopic) {
		_, _ = b.DeepCopy(), b.GetConditions()
	}, `{"spec":{"objectStoreName":"a","objectStoreNamespace":"b","endpoint":{"kafka":{"uri":"kafka://a","userSecretRef":{"name":"a","key":"b"}}}},"status":{"ARN":"arn","secrets":[{"name":"a"}]}}`)
}

func FuzzDecodeCephBucketNotification(f *testing.F) {
	fuzzDecode(f, func(b *CephBucketNotification) {
		_, _ = b.DeepCopy(), b.GetConditions()
	}, `{"spec":{"topic":"a","events":["s3:ObjectCreated:*"],"filter":{"keyFilters":[{"name":"prefix","value":"a"}]}}}`)
}

func FuzzDecodeCephCOSIDriver(f *testing.F) {
	fuzzDecode(f, func(d *CephCOSIDriver) {
		_, _ = d.DeepCopy(), d.Spec.EffectiveDeploymentStrategy()
	}, `{"spec":{"deploymentStrategy":"Never","placement":{"tolerations":[{}]}}}`)
}
