package destinationserver_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-addons/spec/lib/go/replication"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/csi/destination"
	"github.com/castellan-storage/castellan/internal/csi/destinationserver"
	"github.com/castellan-storage/castellan/internal/csi/handle"
)

// site is a cluster with volumes of a driver in it.
type site struct {
	t testing.TB
	*cephtest.Cluster
	dialed []string
	pools  map[string]int
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, Cluster: cephtest.Healthy(t, 3, 1), pools: map[string]int{}}
	for _, p := range []string{"rbd", "other"} {
		if _, err := s.Mon(t.Context(), ceph.Cmd("osd pool create", "pool", p, "pool_type", "replicated")); err != nil {
			t.Fatal(err)
		}
		s.pools[p] = s.PoolID(p)
	}
	return s
}

func (s *site) dial(profile string, monitors []string, user string, key ceph.Secret) destinationserver.Cluster {
	s.dialed = append(s.dialed, profile+" "+strings.Join(monitors, ",")+" "+user+" "+key.Reveal())
	return s.Cluster
}

func (s *site) omap(pool, namespace, name string, kv map[string]string) {
	s.t.Helper()
	raw := map[string][]byte{}
	for k, v := range kv {
		raw[k] = []byte(v)
	}
	if err := s.SetOmap(context.Background(), ceph.Object{Pool: pool, Namespace: namespace, Name: name}, raw); err != nil {
		s.t.Fatal(err)
	}
}

// volume makes an image with an entry in the journal, and gives the image's id.
func (s *site) volume(pool, namespace, prefix, uuid string, mirrored bool) string {
	s.t.Helper()
	id := s.PutImage(cephtest.Image{Pool: pool, Namespace: namespace, Name: prefix + uuid, Mirrored: mirrored})
	s.omap(pool, namespace, "csi.volume."+uuid, map[string]string{"csi.imagename": prefix + uuid, "csi.imageid": id, "csi.volname": "pvc-" + uuid})
	return id
}

func id(n string) string { return strings.Replace(u, "b0285c97", n, 1) }

func (s *site) handle(profile, pool, uuid string) string {
	s.t.Helper()
	text, err := handle.Handle{Version: 1, ClusterID: profile, Pool: int64(s.pools[pool]), UUID: uuid}.Compose()
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func keyDir(t *testing.T, user, key string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range map[string]string{"userID": user, "userKey": key} {
		if err := os.WriteFile(filepath.Join(d, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

const cephConfig = `[{"clusterID":"east","monitors":["10.0.0.1:3300","10.0.0.2:3300"],"replicationDestination":{"remoteClusterID":"west","rbd":{"remotePoolMapping":{"rbd":{"poolID":"77"}}}}},` +
	`{"clusterID":"tenant","monitors":["10.0.0.1:3300"],"rbd":{"radosNamespace":"tenant"},"replicationDestination":{"remoteClusterID":"west-tenant"}},` +
	`{"clusterID":"far","monitors":["10.9.0.1:3300"],"replicationDestination":{"remoteClusterID":"farther"}}]`

// The pool's name, the image, whether it is mirrored, and the members of a group come
// from Ceph, by the user whose Secret is mounted.
func TestAskCeph(t *testing.T) {
	s := newSite(t)
	a := s.volume("rbd", "", "csi-vol-", id("aaaaaaaa"), true)
	b := s.volume("other", "", "my-prefix-", id("bbbbbbbb"), true)
	plainImage := s.volume("rbd", "", "csi-vol-", id("cccccccc"), false)
	s.volume("rbd", "tenant", "csi-vol-", id("dddddddd"), true)
	s.omap("rbd", "", "csi.volume."+id("eeeeeeee"), map[string]string{"csi.volname": "reserved"})
	s.omap("rbd", "", "csi.volume."+id("ffffffff"), map[string]string{"csi.imagename": "csi-vol-" + id("ffffffff")}) // the image is gone
	hand := s.PutImage(cephtest.Image{Pool: "rbd", Name: "by-hand", Mirrored: true})
	stale := strings.Replace(s.handle("east", "rbd", id("aaaaaaaa")), "0004-east", "0004-gone", 1)
	s.PutGroup("rbd", "", "csi-vol-group-"+id("11111111"), map[int][]string{s.pools["rbd"]: {a}, s.pools["other"]: {b}})
	s.omap("rbd", "", "csi.volume.group."+id("11111111"), map[string]string{"csi.groupname": "csi-vol-group-" + id("11111111"), "csi.volname": "g", stale: ""})
	s.PutGroup("rbd", "", "half", map[int][]string{s.pools["rbd"]: {a, plainImage}})
	s.omap("rbd", "", "csi.volume.group."+id("22222222"), map[string]string{"csi.groupname": "half"})
	s.PutGroup("rbd", "", "foreign", map[int][]string{s.pools["rbd"]: {a, hand}})
	s.omap("rbd", "", "csi.volume.group."+id("33333333"), map[string]string{"csi.groupname": "foreign"})
	s.PutGroup("rbd", "", "empty", nil)
	s.omap("rbd", "", "csi.volume.group."+id("44444444"), map[string]string{"csi.groupname": "empty"})
	s.omap("rbd", "", "csi.volume.group."+id("55555555"), map[string]string{"csi.groupname": "never made"})

	keys := destinationserver.Credentials{"east": keyDir(t, "csi-rbd-provisioner", "secret-of-east"), "tenant": keyDir(t, "client.tenant", "secret-of-tenant")}
	server := &destinationserver.Server{
		Dir: dir(t, cephConfig, `[{"clusterIdMapping":{"gone":"east"},"RBDPoolIDMapping":[{"`+strconv.Itoa(s.pools["rbd"])+`":"`+strconv.Itoa(s.pools["rbd"])+`"}]}]`),
		Ceph: func(cfg destination.Config) (destinationserver.Pools, destinationserver.Volumes) {
			q := destinationserver.Ask(cfg, keys, s.dial)
			return q, q
		},
	}
	to := func(profile string, pool int64, uuid string) string {
		text, err := handle.Handle{Version: 1, ClusterID: profile, Pool: pool, UUID: uuid}.Compose()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	other := int64(s.pools["other"])
	for _, tt := range []struct {
		name   string
		source *replication.ReplicationSource
		want   string
		ids    map[string]string
		code   codes.Code
		text   string
	}{
		{name: "mapped pool", source: volumeSource(s.handle("east", "rbd", id("aaaaaaaa"))), want: to("west", 77, id("aaaaaaaa"))},
		{name: "another pool, a prefix of its own", source: volumeSource(s.handle("east", "other", id("bbbbbbbb"))), want: to("west", other, id("bbbbbbbb"))},
		{name: "a stale handle", source: volumeSource(stale), want: to("west", 77, id("aaaaaaaa"))},
		{name: "a RADOS namespace", source: volumeSource(s.handle("tenant", "rbd", id("dddddddd"))), want: to("west-tenant", int64(s.pools["rbd"]), id("dddddddd"))},
		{name: "in another RADOS namespace", source: volumeSource(s.handle("tenant", "rbd", id("aaaaaaaa"))), code: codes.NotFound},
		{name: "not mirrored", source: volumeSource(s.handle("east", "rbd", id("cccccccc"))), code: codes.FailedPrecondition, text: "not mirrored"},
		{name: "reserved only", source: volumeSource(s.handle("east", "rbd", id("eeeeeeee"))), code: codes.NotFound},
		{name: "image gone", source: volumeSource(s.handle("east", "rbd", id("ffffffff"))), code: codes.NotFound},
		{name: "no such pool", source: volumeSource(to("east", 4711, id("aaaaaaaa"))), code: codes.NotFound},
		{name: "no credentials, and the file proves it", source: volumeSource(to("far", 3, id("aaaaaaaa"))), want: to("farther", 3, id("aaaaaaaa"))},
		{name: "group", source: groupSource(s.handle("east", "rbd", id("11111111"))), want: to("west", 77, id("11111111")), ids: map[string]string{
			stale: to("west", 77, id("aaaaaaaa")), // as the driver wrote it down
			s.handle("east", "other", id("bbbbbbbb")): to("west", other, id("bbbbbbbb")),
		}},
		{name: "group with a member that is not mirrored", source: groupSource(s.handle("east", "rbd", id("22222222"))), code: codes.FailedPrecondition, text: "not mirrored"},
		{name: "group with an image of somebody else", source: groupSource(s.handle("east", "rbd", id("33333333"))), code: codes.NotFound, text: "no volume of a driver"},
		{name: "group without members", source: groupSource(s.handle("east", "rbd", id("44444444"))), want: to("west", 77, id("44444444"))},
		{name: "group that was never made", source: groupSource(s.handle("east", "rbd", id("55555555"))), code: codes.NotFound},
		{name: "no group", source: groupSource(s.handle("east", "rbd", id("aaaaaaaa"))), code: codes.NotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, err := server.GetReplicationDestinationInfo(t.Context(), &replication.GetReplicationDestinationInfoRequest{ReplicationSource: tt.source})
			if status.Code(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %s ...%s...", err, tt.code, tt.text)
			}
			d := res.GetReplicationDestination()
			if got := d.GetVolume().GetVolumeId() + d.GetVolumegroup().GetVolumeGroupId(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if diff := cmp.Diff(tt.ids, d.GetVolumegroup().GetVolumeIds()); diff != "" && len(tt.ids)+len(d.GetVolumegroup().GetVolumeIds()) > 0 {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
	if n := s.Counters().Mutations; n == 0 {
		t.Error("the counters do not count")
	}
	want := "east 10.0.0.1:3300,10.0.0.2:3300 client.csi-rbd-provisioner secret-of-east"
	if s.dialed[0] != want {
		t.Errorf("dialed %q, want %q", s.dialed[0], want)
	}

	// Nothing is written, and what has no answer is asked again later.
	s.Reset()
	ask := func() error {
		_, err := server.GetReplicationDestinationInfo(t.Context(), &replication.GetReplicationDestinationInfoRequest{ReplicationSource: volumeSource(s.handle("east", "rbd", id("aaaaaaaa")))})
		return err
	}
	if err := ask(); err != nil || s.Counters().Mutations != 0 {
		t.Errorf("%v, %d mutations", err, s.Counters().Mutations)
	}
	for _, m := range []string{"a", "b", "c"} {
		s.StopMon(m)
	}
	if err := ask(); status.Code(err) != codes.Unavailable {
		t.Errorf("without an answer of Ceph: %v, want Unavailable", err)
	}
	// A key that cannot be read is no access; it is not in the error.
	keys["east"] = t.TempDir()
	if err := ask(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no access to Ceph") {
		t.Errorf("without the files: %v", err)
	}
}

func TestParseCredentials(t *testing.T) {
	got, err := destinationserver.ParseCredentials([]string{"/all", "east=/east"})
	if d := cmp.Diff(destinationserver.Credentials{"": "/all", "east": "/east"}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	for _, bad := range [][]string{{""}, {"=x"}, {"a="}, {"/a", "/b"}, {"a=/a", "a=/b"}} {
		if _, err := destinationserver.ParseCredentials(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// The explanation says what Ceph says.
func TestExplainWithCeph(t *testing.T) {
	s := newSite(t)
	a := s.volume("rbd", "", "csi-vol-", id("aaaaaaaa"), true)
	s.volume("rbd", "", "csi-vol-", id("cccccccc"), false)
	s.PutGroup("rbd", "", "g", map[int][]string{s.pools["rbd"]: {a}})
	s.omap("rbd", "", "csi.volume.group."+id("11111111"), map[string]string{"csi.groupname": "g"})
	d, keys := dir(t, cephConfig, ""), keyDir(t, "csi-rbd-provisioner", "k")
	for handle, want := range map[string][]string{
		s.handle("east", "rbd", id("aaaaaaaa")): {`is "rbd"`, "volume    exists in pool rbd, and is mirrored", `pool "rbd" is mapped to remote pool id 77`},
		s.handle("east", "rbd", id("cccccccc")): {"not mirrored", "mapped to remote pool id 77"},
		s.handle("east", "rbd", id("99999999")): {"not found"},
		s.handle("east", "rbd", id("11111111")): {"group     exists in pool rbd, with 1 members", "member    " + s.handle("east", "rbd", id("aaaaaaaa"))},
	} {
		var out strings.Builder
		cmd := destinationserver.ExplainCommand(s.dial)
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--config-dir", d, "--ceph-credentials", keys, handle})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", handle, w, out.String())
			}
		}
	}
}
