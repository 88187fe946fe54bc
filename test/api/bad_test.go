package api_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// manifest is a spec of a kind that must be refused, in a way that helps: the
// error names the field and holds these words. Or, with no words, one that
// must be accepted.
type manifest struct {
	title  string
	plural string
	spec   string
	field  string
	words  string
}

// evil is what no name that reaches Ceph may hold.
func evil() []string {
	return []string{"--yes-i-really-mean-it", "a;reboot", "a|b", "$(id)", "a`id`", "a\nb", "a\tb", "a\x07b", "a>b", "a&b", "a'b", `a"b`}
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// manifests are the stricter rules of the cluster and of the object kinds, each
// with what it must still accept.
func manifests() []manifest {
	const cluster, store, zone = "cephclusters", "cephobjectstores", "cephobjectzones"
	list := []manifest{
		// --- cluster
		{"empty cluster", cluster, `{}`, "", ""},
		{"data directory with ..", cluster, `{dataDirHostPath: /var/lib/../etc}`, "spec.dataDirHostPath", "write the path of the directory itself"},
		{"data directory ending in ..", cluster, `{dataDirHostPath: /var/lib/..}`, "spec.dataDirHostPath", "cannot hold '..'"},
		{"data directory with dots in a name", cluster, `{dataDirHostPath: /var/lib/rook..d}`, "", ""},
		{"negative wait", cluster, `{waitTimeoutForHealthyOSDInMinutes: -1}`, "spec.waitTimeoutForHealthyOSDInMinutes", "from 0"},
		{"two arbiters", cluster, `{mon: {count: 5, stretchCluster: {zones: [{name: a, arbiter: true}, {name: b, arbiter: true}, {name: c}]}}}`, "spec.mon", "exactly one arbiter"},
		{"no arbiter", cluster, `{mon: {count: 5, stretchCluster: {zones: [{name: a}, {name: b}, {name: c}]}}}`, "spec.mon", "exactly one arbiter"},
		{"two zones", cluster, `{mon: {count: 5, stretchCluster: {zones: [{name: a, arbiter: true}, {name: b}]}}}`, "spec.mon", "exactly three zones"},
		{"four mons stretched", cluster, `{mon: {count: 4, stretchCluster: {zones: [{name: a, arbiter: true}, {name: b}, {name: c}]}}}`, "spec.mon", "mon.count must be 3 or 5"},
		{"stretched", cluster, `{mon: {count: 5, stretchCluster: {zones: [{name: a, arbiter: true}, {name: b}, {name: c, arbiter: false}]}}}`, "", ""},
		{"stretched by default count", cluster, `{mon: {stretchCluster: {zones: [{name: a, arbiter: true}, {name: b}, {name: c}]}}}`, "", ""},
		{"an even number of mons is a choice", cluster, `{mon: {count: 2}}`, "", ""},
		{"full below near full", cluster, `{storage: {nearFullRatio: 0.9, fullRatio: 0.8}}`, "spec.storage", "nearFullRatio cannot be above fullRatio"},
		{"backfill above full", cluster, `{storage: {backfillFullRatio: 0.96, fullRatio: 0.95}}`, "spec.storage", "backfillFullRatio cannot be above"},
		{"near full above backfill", cluster, `{storage: {nearFullRatio: 0.92, backfillFullRatio: 0.9}}`, "spec.storage", "nearFullRatio cannot be above backfillFullRatio"},
		{"ratios in order", cluster, `{storage: {nearFullRatio: 0.85, backfillFullRatio: 0.9, fullRatio: 0.95}}`, "", ""},
		{"ratios unset", cluster, `{storage: {nearFullRatio: null, fullRatio: 0.5}}`, "", ""},
		{"flapping for ever", cluster, `{storage: {flappingRestartIntervalHours: -24}}`, "spec.storage.flappingRestartIntervalHours", "from 0 to 8760 hours"},
		{"dashboard under a bad path", cluster, `{dashboard: {urlPrefix: "/a b"}}`, "spec.dashboard.urlPrefix", "write for instance /ceph-dashboard"},
		{"dashboard under a path", cluster, `{dashboard: {urlPrefix: /ceph-dashboard}}`, "", ""},
		{"unreadable interval", cluster, `{healthCheck: {daemonHealth: {mon: {interval: often}}}}`, "spec.healthCheck.daemonHealth.mon.interval", "a number with a unit"},
		{"interval without unit", cluster, `{healthCheck: {daemonHealth: {osd: {interval: "60"}}}}`, "spec.healthCheck.daemonHealth.osd.interval", "write for instance 60s"},
		{"negative timeout", cluster, `{healthCheck: {daemonHealth: {mon: {timeout: -10m}}}}`, "spec.healthCheck.daemonHealth.mon.timeout", "write for instance 600s"},
		{"durations", cluster, `{healthCheck: {daemonHealth: {mon: {interval: 1m30s, timeout: "0"}, osd: {timeout: ""}, status: {interval: 1.5h}}}}`, "", ""},
		{"unreadable scrape interval", cluster, `{monitoring: {interval: 10 s}}`, "spec.monitoring.interval", "write for instance 10s"},
		{"exporter that never reads", cluster, `{monitoring: {exporter: {statsPeriodSeconds: 0}}}`, "spec.monitoring.exporter.statsPeriodSeconds", "from 1 to 86400"},
		{"negative priority", cluster, `{monitoring: {exporter: {perfCountersPrioLimit: -1}}}`, "spec.monitoring.exporter.perfCountersPrioLimit", "cannot be negative"},
		{"negative retention", cluster, `{crashCollector: {daysToRetain: -1}}`, "spec.crashCollector.daysToRetain", "from 0"},
		{"negative maintenance", cluster, `{disruptionManagement: {osdMaintenanceTimeout: -30}}`, "spec.disruptionManagement.osdMaintenanceTimeout", "minutes"},
		{"wipe a thousand times", cluster, `{cleanupPolicy: {sanitizeDisks: {iteration: 1000}}}`, "spec.cleanupPolicy.sanitizeDisks.iteration", "from 0 (default of 1) to 100"},
		{"a module like a flag", cluster, `{mgr: {modules: [{name: --force}]}}`, "spec.mgr.modules[0].name", "ceph mgr module ls"},
		{"a module", cluster, `{mgr: {modules: [{name: pg_autoscaler, enabled: true}, {name: ""}]}}`, "", ""},
		{"a device out of /dev", cluster, `{storage: {devices: [{name: /etc/passwd}]}}`, "spec.storage.devices[0].name", "should match"},
		{"a device with ..", cluster, `{storage: {devices: [{name: /dev/../etc/passwd}]}}`, "spec.storage.devices[0].name", "should match"},
		{"a device with .. alone", cluster, `{storage: {nodes: [{name: n, devices: [{name: "disk/../../etc"}]}]}}`, "spec.storage.nodes[0].devices[0].name", "should match"},
		{"a full path out of /dev", cluster, `{storage: {devices: [{fullpath: /tmp/disk}]}}`, "spec.storage.devices[0].fullpath", "should match"},
		{"devices of all sorts", cluster, `{storage: {devices: [{name: sdb}, {name: nvme0n1p2}, {name: /dev/sdb}, {name: ""}, {name: /dev/disk/by-id/wwn-0x5000c500.e:1=2@3+4#5}, {name: /dev/vg-1/lv..1}, {name: disk/by-id/x}, {name: '/dev/disk/by-label/my\x20disk'}, {fullpath: /dev/mapper/mpatha}, {fullpath: ""}]}}`, "", ""},
		// --- object stores
		{"empty store", store, `{}`, "", ""},
		{"both kinds of pool", store, `{dataPool: {replicated: {size: 3}, erasureCoded: {dataChunks: 2, codingChunks: 1}}}`, "spec.dataPool", "exclude each other"},
		{"both kinds, one of them nil", store, `{dataPool: {replicated: {size: 3}, erasureCoded: {dataChunks: 0, codingChunks: 0}}}`, "", ""},
		{"eleven copies", store, `{metadataPool: {replicated: {size: 11}}}`, "spec.metadataPool.replicated.size", "from 1 to 10"},
		{"one safe copy", store, `{metadataPool: {replicated: {size: 1, requireSafeReplicaSize: true}}}`, "spec.metadataPool.replicated", "write size 2 or more"},
		{"one copy", store, `{metadataPool: {replicated: {size: 1, requireSafeReplicaSize: false}}}`, "", ""},
		{"three copies by two", store, `{metadataPool: {replicated: {size: 3, replicasPerFailureDomain: 2}}}`, "spec.metadataPool.replicated", "multiple of replicasPerFailureDomain"},
		{"four copies by two", store, `{metadataPool: {replicated: {size: 4, replicasPerFailureDomain: 2}}}`, "", ""},
		{"one data chunk", store, `{dataPool: {erasureCoded: {dataChunks: 1, codingChunks: 1}}}`, "spec.dataPool.erasureCoded", "dataChunks of 2 or more"},
		{"no coding chunk", store, `{dataPool: {erasureCoded: {dataChunks: 4, codingChunks: 0}}}`, "spec.dataPool.erasureCoded", "codingChunks of 1 or more"},
		{"too many chunks", store, `{dataPool: {erasureCoded: {dataChunks: 200, codingChunks: 100}}}`, "spec.dataPool.erasureCoded", "at most 255 chunks"},
		{"half a pair of domains", store, `{dataPool: {erasureCoded: {dataChunks: 4, codingChunks: 2, crushNumFailureDomains: 3}}}`, "spec.dataPool.erasureCoded", "set both, or none"},
		{"erasure coded metadata", store, `{metadataPool: {erasureCoded: {dataChunks: 2, codingChunks: 1}}}`, "spec.metadataPool", "cannot be erasure coded"},
		{"negative quota", store, `{dataPool: {quotas: {maxObjects: -5}}}`, "spec.dataPool.quotas", "cannot be negative"},
		{"negative bytes", store, `{dataPool: {quotas: {maxBytes: -5}}}`, "spec.dataPool.quotas", "write maxSize"},
		{"mirroring without mode", store, `{dataPool: {mirroring: {enabled: true}}}`, "spec.dataPool.mirroring", "write image, pool or init-only"},
		{"unreadable check", store, `{dataPool: {statusCheck: {mirror: {interval: 1x}}}}`, "spec.dataPool.statusCheck.mirror.interval", "must be a duration"},
		{"pools twice", store, `{dataPool: {replicated: {size: 3}}, sharedPools: {dataPoolName: p}}`, "spec", "dataPool and sharedPools.dataPoolName exclude"},
		{"metadata pools twice", store, `{metadataPool: {replicated: {size: 3}}, sharedPools: {metadataPoolName: p}}`, "spec", "metadataPool and sharedPools.metadataPoolName exclude"},
		{"shared pools", store, `{sharedPools: {metadataPoolName: .rgw.root, dataPoolName: "my pool"}}`, "", ""},
		{"port out of range", store, `{gateway: {port: 70000}}`, "spec.gateway.port", "from 0 to 65535"},
		{"negative gateways", store, `{gateway: {instances: -1}}`, "spec.gateway.instances", "from 0 to 1000"},
		{"no gateway is a choice", store, `{gateway: {instances: 0, port: 80}}`, "", ""},
		{"a URL as a name", store, `{hosting: {advertiseEndpoint: {dnsName: "https://s3", port: 80, useTls: true}}}`, "spec.hosting.advertiseEndpoint.dnsName", "without scheme"},
		{"a wildcard as a name", store, `{hosting: {advertiseEndpoint: {dnsName: "*.s3", port: 80, useTls: true}}}`, "spec.hosting.advertiseEndpoint.dnsName", "wildcard"},
		{"keystone with blanks", store, `{auth: {keystone: {url: "https://a b", serviceUserSecretName: s, acceptedRoles: [r]}}}`, "spec.auth.keystone.url", "cannot hold blanks"},
		{"negative token cache", store, `{auth: {keystone: {url: "https://a", serviceUserSecretName: s, acceptedRoles: [r], tokenCacheSize: -1}}}`, "spec.auth.keystone.tokenCacheSize", "cannot be negative"},
		{"negative revocation", store, `{auth: {keystone: {url: "https://a", serviceUserSecretName: s, acceptedRoles: [r], revocationInterval: -1}}}`, "spec.auth.keystone.revocationInterval", "cannot be negative"},
		{"swift under a bad path", store, `{protocols: {swift: {urlPrefix: "a;b"}}}`, "spec.protocols.swift.urlPrefix", "write for instance swift"},
		{"swift under the root", store, `{protocols: {swift: {urlPrefix: /}}}`, "", ""},
		// --- multisite
		{"a realm from nowhere", "cephobjectrealms", `{pull: {endpoint: "http://a b"}}`, "spec.pull.endpoint", "cannot hold blanks"},
		{"a realm of ours", "cephobjectrealms", `{}`, "", ""},
		{"zone with erasure coded metadata", zone, `{zoneGroup: g, metadataPool: {erasureCoded: {dataChunks: 2, codingChunks: 1}}}`, "spec.metadataPool", "cannot be erasure coded"},
		{"a zone", zone, `{zoneGroup: zonegroup-a, dataPool: {deviceClass: "", crushRoot: default~ssd, failureDomain: zone}}`, "", ""},
		// --- users, topics
		{"a display name like a flag", "cephobjectstoreusers", `{displayName: --purge-data}`, "spec.displayName", "cannot start with '-'"},
		{"a display name on two lines", "cephobjectstoreusers", `{displayName: "a\nb"}`, "spec.displayName", "on one line"},
		{"a display name", "cephobjectstoreusers", `{store: my-store, displayName: "Zoë O'Hara (team A)"}`, "", ""},
		{"an account like a flag", "cephobjectstoreaccounts", `{store: s, name: --id}`, "spec.name", "cannot start with '-'"},
		{"a root user like a flag", "cephobjectstoreaccounts", `{store: s, rootUser: {displayName: --system}}`, "spec.rootUser.displayName", "cannot start with '-'"},
		{"an account", "cephobjectstoreaccounts", `{store: s, name: Team B}`, "", ""},
		{"no endpoint", "cephbuckettopics", `{objectStoreName: s, objectStoreNamespace: ns, endpoint: {}}`, "spec.endpoint", "exactly one of http, amqp and kafka"},
		{"two endpoints", "cephbuckettopics", `{objectStoreName: s, objectStoreNamespace: ns, endpoint: {http: {uri: "http://a"}, kafka: {uri: "kafka://a"}}}`, "spec.endpoint", "exactly one of http, amqp and kafka"},
		{"http by ftp", "cephbuckettopics", `{objectStoreName: s, objectStoreNamespace: ns, endpoint: {http: {uri: "ftp://a"}}}`, "spec.endpoint.http.uri", "http:// or https://"},
		{"amqp by http", "cephbuckettopics", `{objectStoreName: s, objectStoreNamespace: ns, endpoint: {amqp: {uri: "http://a", exchange: e}}}`, "spec.endpoint.amqp.uri", "amqp:// or amqps://"},
		{"kafka with a line break", "cephbuckettopics", `{objectStoreName: s, objectStoreNamespace: ns, endpoint: {kafka: {uri: "kafka://a\nb"}}}`, "spec.endpoint.kafka.uri", "hold no blanks"},
		{"a topic", "cephbuckettopics", `{objectStoreName: s, objectStoreNamespace: ns, endpoint: {amqp: {uri: "amqps://u:p@a:5671/v", exchange: e}}}`, "", ""},
	}
	// Every place where a name reaches Ceph, with every way to write an evil one.
	for _, n := range []struct{ plural, format, field string }{
		{cluster, `{mon: {count: 3, zones: [{name: %s}]}}`, "spec.mon.zones[0].name"},
		{cluster, `{mon: {count: 5, stretchCluster: {zones: [{name: %s, arbiter: true}, {name: b}, {name: c}]}}}`, "spec.mon.stretchCluster.zones[0].name"},
		{cluster, `{mon: {count: 5, stretchCluster: {subFailureDomain: %s, zones: [{name: a, arbiter: true}, {name: b}, {name: c}]}}}`, "spec.mon.stretchCluster.subFailureDomain"},
		{cluster, `{mgr: {modules: [{name: %s}]}}`, "spec.mgr.modules[0].name"},
		{cluster, `{storage: {devices: [{name: %s}]}}`, "spec.storage.devices[0].name"},
		{store, `{dataPool: {deviceClass: %s}}`, "spec.dataPool.deviceClass"},
		{store, `{dataPool: {crushRoot: %s}}`, "spec.dataPool.crushRoot"},
		{store, `{dataPool: {failureDomain: %s}}`, "spec.dataPool.failureDomain"},
		{store, `{dataPool: {application: %s}}`, "spec.dataPool.application"},
		{store, `{dataPool: {replicated: {size: 3, subFailureDomain: %s}}}`, "spec.dataPool.replicated.subFailureDomain"},
		{store, `{dataPool: {replicated: {size: 3, hybridStorage: {primaryDeviceClass: %s, secondaryDeviceClass: hdd}}}}`, "spec.dataPool.replicated.hybridStorage.primaryDeviceClass"},
		{store, `{dataPool: {replicated: {size: 3, hybridStorage: {primaryDeviceClass: ssd, secondaryDeviceClass: %s}}}}`, "spec.dataPool.replicated.hybridStorage.secondaryDeviceClass"},
		{store, `{zone: {name: %s}}`, "spec.zone.name"},
		{store, `{sharedPools: {dataPoolName: %s}}`, "spec.sharedPools.dataPoolName"},
		{store, `{sharedPools: {metadataPoolName: %s}}`, "spec.sharedPools.metadataPoolName"},
		{store, `{sharedPools: {poolPlacements: [{name: a, metadataPoolName: %s, dataPoolName: d}]}}`, "spec.sharedPools.poolPlacements[0].metadataPoolName"},
		{store, `{sharedPools: {poolPlacements: [{name: a, metadataPoolName: m, dataPoolName: %s}]}}`, "spec.sharedPools.poolPlacements[0].dataPoolName"},
		{store, `{sharedPools: {poolPlacements: [{name: a, metadataPoolName: m, dataPoolName: d, dataNonECPoolName: %s}]}}`, "spec.sharedPools.poolPlacements[0].dataNonECPoolName"},
		{store, `{sharedPools: {poolPlacements: [{name: a, metadataPoolName: m, dataPoolName: d, storageClasses: [{name: X, dataPoolName: %s}]}]}}`, "spec.sharedPools.poolPlacements[0].storageClasses[0].dataPoolName"},
		{"cephobjectzonegroups", `{realm: %s}`, "spec.realm"},
		{zone, `{zoneGroup: %s}`, "spec.zoneGroup"},
		{"cephobjectstoreusers", `{store: %s}`, "spec.store"},
		{"cephobjectstoreaccounts", `{store: %s}`, "spec.store"},
		{"cephbuckettopics", `{objectStoreName: %s, objectStoreNamespace: ns, endpoint: {http: {uri: "http://a"}}}`, "spec.objectStoreName"},
	} {
		words := "must be"
		if strings.Contains(n.field, "devices") {
			words = "should match" // a pattern of the schema, not a rule
		}
		for _, name := range evil() {
			list = append(list, manifest{
				title: fmt.Sprintf("%s is %q", n.field, name), plural: n.plural,
				spec: fmt.Sprintf(n.format, quote(name)), field: n.field, words: words,
			})
		}
	}
	return list
}

// verdict compares the errors of an object with what is expected, and gives
// what is wrong.
func (m manifest) verdict(errs field.ErrorList) string {
	if m.words == "" {
		if len(errs) > 0 {
			return fmt.Sprintf("a good manifest was refused: %v", errs.ToAggregate())
		}
		return ""
	}
	for _, e := range errs {
		if e.Field == m.field && strings.Contains(e.Detail, m.words) {
			return ""
		}
	}
	return fmt.Sprintf("want an error of %s with %q, got %v", m.field, m.words, errs.ToAggregate())
}

// TestManifests holds every stricter rule against what it must refuse and what
// it must not.
func TestManifests(t *testing.T) {
	crds := loadCRDs(t)
	checkers := map[string]*checker{}
	for _, m := range manifests() {
		t.Run(m.plural+"/"+m.title, func(t *testing.T) {
			if checkers[m.plural] == nil {
				checkers[m.plural] = newChecker(t, crds[m.plural])
			}
			obj := decode(t, []byte("{metadata: {name: a, namespace: default}, spec: "+m.spec+"}"))
			if wrong := m.verdict(checkers[m.plural].check(obj, nil)); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}
