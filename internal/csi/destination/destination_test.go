package destination_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/csi/destination"
)

const (
	u  = "b0285c97-a0ce-11eb-8c66-0242ac110002"
	g  = "c1396da8-b1df-22fc-9d77-1353bd221113"
	c1 = `[{"clusterID":"primary-cluster","monitors":["m"],"replicationDestination":{"remoteClusterID":"secondary-cluster","rbd":{"remotePoolMapping":{"rbd":{"poolID":"5"},"replicapool":{"poolID":"6"}}}}}]`

	primary   = "0001-000f-primary-cluster-0000000000000001-" + u
	secondary = "0001-0011-secondary-cluster-0000000000000005-" + u
)

// cluster gives a config.json with one record and the pool "rbd" mapped to an id.
func cluster(id, remote, poolID string) string {
	return `[{"clusterID":"` + id + `","replicationDestination":{"remoteClusterID":"` + remote + `","rbd":{"remotePoolMapping":{"rbd":{"poolID":"` + poolID + `"}}}}}]`
}

// pools answers for Ceph: the names of the pools by profile and id. A pool that
// is not listed does not exist.
type pools map[string]map[int64]string

// translate does what a driver does with a request: read the handle, try each
// place, translate; a profile without a destination keeps its handle.
func translate(config, mappings, id string, known pools) (string, error) {
	cfg, s, err := find(config, mappings, id, known)
	if err != nil {
		return "", err
	}
	to, err := cfg.Volume(s)
	if errors.Is(err, destination.ErrNotReplicated) {
		return id, nil
	}
	return to, err
}

func find(config, mappings, id string, known pools) (destination.Config, destination.Source, error) {
	cfg, err := destination.Parse(config, mappings)
	if err != nil {
		return cfg, destination.Source{}, err
	}
	h, err := destination.Read(id)
	if err != nil {
		return cfg, destination.Source{}, err
	}
	places, err := cfg.Places(h)
	if err != nil {
		return cfg, destination.Source{}, err
	}
	for _, p := range places {
		if name, ok := known[p.Profile][p.Pool]; ok {
			return cfg, destination.Source{ID: id, Handle: h, Place: p, PoolName: name}, nil
		}
	}
	return cfg, destination.Source{}, destination.ErrNotFound
}

// TestWorkedExamples are the documented examples of the translation, by number.
func TestWorkedExamples(t *testing.T) {
	local := pools{"primary-cluster": {1: "rbd", 2: "replicapool", 3: "other", 10: "rbd"}}
	mapping := `[{"clusterIdMapping":{"cluster-a":"cluster-d"},"RBDPoolIDMapping":[{"1":"3"}]}]`
	stale := "0001-0009-cluster-a-0000000000000001-" + u
	atD := pools{"cluster-d": {3: "rbd"}}
	for _, tt := range []struct {
		name, in, config, mappings string
		pools                      pools
		want                       string
		err                        error
		text                       string
	}{
		{name: "01 mapped pool", in: primary, config: c1, want: secondary},
		{name: "02 pool that is not mapped keeps its id", in: "0001-000f-primary-cluster-0000000000000003-" + u, config: c1,
			want: "0001-0011-secondary-cluster-0000000000000003-" + u},
		{name: "03 no destination", in: primary, config: `[{"clusterID":"primary-cluster"}]`, want: primary},
		{name: "04 destination without pools", in: primary, config: `[{"clusterID":"primary-cluster","replicationDestination":{"remoteClusterID":"secondary-cluster"}}]`,
			want: "0001-0011-secondary-cluster-0000000000000001-" + u},
		{name: "05 empty remote", in: primary, config: cluster("primary-cluster", "", "5"), err: destination.ErrConfig, text: "remoteClusterID is empty"},
		{name: "06a pool id five", in: primary, config: cluster("primary-cluster", "s", "five"), err: destination.ErrConfig, text: "invalid syntax"},
		{name: "06b pool id empty", in: primary, config: cluster("primary-cluster", "s", ""), err: destination.ErrConfig, text: "invalid syntax"},
		{name: "06c pool id with a space", in: primary, config: cluster("primary-cluster", "s", " 5"), err: destination.ErrConfig, text: "invalid syntax"},
		{name: "06d pool id in hexadecimal", in: primary, config: cluster("primary-cluster", "s", "0x10"), err: destination.ErrConfig, text: "invalid syntax"},
		{name: "07 pool id out of range", in: primary, config: cluster("primary-cluster", "s", "9223372036854775808"), err: destination.ErrConfig, text: "value out of range"},
		{name: "08a decimal in, hexadecimal out", in: primary, config: cluster("primary-cluster", "secondary-cluster", "10"),
			want: "0001-0011-secondary-cluster-000000000000000a-" + u},
		{name: "08b decimal in, hexadecimal out", in: primary, config: cluster("primary-cluster", "secondary-cluster", "4096"),
			want: "0001-0011-secondary-cluster-0000000000001000-" + u},
		{name: "09a leading zeros", in: primary, config: cluster("primary-cluster", "secondary-cluster", "0005"), want: secondary},
		{name: "09b plus sign", in: primary, config: cluster("primary-cluster", "secondary-cluster", "+5"), want: secondary},
		{name: "10 negative pool id", in: primary, config: cluster("primary-cluster", "secondary-cluster", "-1"),
			want: "0001-0011-secondary-cluster-ffffffffffffffff-" + u},
		{name: "11 to itself", in: "0001-0011-openshift-storage-0000000000000003-" + u,
			config: `[{"clusterID":"openshift-storage","replicationDestination":{"remoteClusterID":"openshift-storage","rbd":{"remotePoolMapping":{"p":{"poolID":"2"}}}}}]`,
			pools:  pools{"openshift-storage": {3: "p"}}, want: "0001-0011-openshift-storage-0000000000000002-" + u},
		{name: "12 fsids as names", in: "0001-0024-42ceda1d-b18d-4d63-95ad-708fc0c61744-0000000000000006-" + u,
			config: `[{"clusterID":"42ceda1d-b18d-4d63-95ad-708fc0c61744","replicationDestination":{"remoteClusterID":"447af91f-794b-400d-a972-b6c5275c3113","rbd":{"remotePoolMapping":{"pool-2":{"poolID":"5"}}}}}]`,
			pools:  pools{"42ceda1d-b18d-4d63-95ad-708fc0c61744": {6: "pool-2"}},
			want:   "0001-0024-447af91f-794b-400d-a972-b6c5275c3113-0000000000000005-" + u},
		{name: "13 length one too big", in: "0001-0010-primary-cluster-0000000000000001-" + u, config: c1, err: destination.ErrHandle, text: "'-'"},
		{name: "14 short uuid", in: "0001-000f-primary-cluster-0000000000000001-vol-abc123", config: c1, err: destination.ErrHandle},
		{name: "15 not hexadecimal", in: "0001-000f-primary-cluster-000000000000000g-" + u, config: c1, err: destination.ErrHandle, text: "'g'"},
		{name: "16 one byte more", in: primary + "x", config: c1, err: destination.ErrHandle},
		{name: "17 static volume", in: "my-static-volume", config: c1, err: destination.ErrHandle},
		{name: "18 upper case", in: "0001-000F-primary-cluster-000000000000000A-" + u, config: c1, want: secondary},
		{name: "19 other version", in: "ffff-000f-primary-cluster-0000000000000001-" + u, config: c1, want: "ffff-0011-secondary-cluster-0000000000000005-" + u},
		{name: "20 remote too long", in: primary, config: cluster("primary-cluster", strings.Repeat("s", 66), "5"), err: destination.ErrHandle, text: "longer"},
		{name: "21 stale cluster id, found by the mapping", in: stale, config: cluster("cluster-d", "cluster-b", "5"), mappings: mapping, pools: atD,
			want: "0001-0009-cluster-b-0000000000000005-" + u},
		{name: "22 mapping without a pool pair", in: stale, config: cluster("cluster-d", "cluster-b", "5"), mappings: `[{"clusterIdMapping":{"cluster-a":"cluster-d"}}]`, pools: atD,
			err: destination.ErrNotFound},
		{name: "23 mapped, and no destination there", in: stale, config: `[{"clusterID":"cluster-d"}]`, mappings: mapping, pools: atD, want: stale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.pools == nil {
				tt.pools = local
			}
			got, err := translate(tt.config, tt.mappings, tt.in, tt.pools)
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if tt.text != "" && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q does not say %q", err, tt.text)
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}

	group := "0001-000f-primary-cluster-0000000000000001-" + g
	member := func(t *testing.T, id string) destination.Source {
		t.Helper()
		_, s, err := find(c1, "", id, local)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	other := "0001-000f-primary-cluster-0000000000000003-" + u
	t.Run("24 group", func(t *testing.T) {
		cfg, s, err := find(c1, "", group, local)
		if err != nil {
			t.Fatal(err)
		}
		id, ids, err := cfg.Group(s, []destination.Source{member(t, primary), member(t, other)})
		if err != nil {
			t.Fatal(err)
		}
		if want := "0001-0011-secondary-cluster-0000000000000005-" + g; id != want {
			t.Errorf("group: got %q, want %q", id, want)
		}
		want := map[string]string{primary: secondary, other: "0001-0011-secondary-cluster-0000000000000003-" + u}
		if d := cmp.Diff(want, ids); d != "" {
			t.Errorf("members (-want +got):\n%s", d)
		}
	})
	t.Run("25 group with a member that cannot be resolved", func(t *testing.T) {
		cfg, s, err := find(c1, "", group, local)
		if err != nil {
			t.Fatal(err)
		}
		lost := member(t, other)
		lost.Place.Profile = "unknown"
		id, ids, err := cfg.Group(s, []destination.Source{member(t, primary), lost})
		if !errors.Is(err, destination.ErrNotFound) || id != "" || ids != nil {
			t.Errorf("got %q %v %v, want only an error", id, ids, err)
		}
	})
}

// TestPlaces: a handle is tried as it is, then along every mapping, both ways.
func TestPlaces(t *testing.T) {
	cfg, err := destination.Parse(`[{"clusterID":"a"},{"clusterID":"b"}]`,
		`[{"clusterIdMapping":{"a":"b"},"RBDPoolIDMapping":[{"1":"2"},{"3":"1"},{"1":"4"},{"1":"x"}]},{"clusterIdMapping":{"b":"a"},"RBDPoolIDMapping":[{"1":"1"}]},{"clusterIdMapping":{"a":"gone"},"RBDPoolIDMapping":[{"1":"9"}]}]`)
	if err != nil {
		t.Fatal(err)
	}
	h, err := destination.Read("0001-0001-a-0000000000000001-" + u)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Places(h)
	if err != nil {
		t.Fatal(err)
	}
	want := []destination.Place{{Profile: "a", Pool: 1}, {Profile: "b", Pool: 2, Mapped: true}, {Profile: "b", Pool: 3, Mapped: true},
		{Profile: "b", Pool: 4, Mapped: true}, {Profile: "b", Pool: 1, Mapped: true}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("places (-want +got):\n%s", d)
	}
}
