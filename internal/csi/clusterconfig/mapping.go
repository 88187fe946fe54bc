package clusterconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// Mapping is one record of cluster-mapping.json: two client profiles and the
// pairs of pool ids between them. Drivers use it in both directions.
type Mapping struct {
	// ClusterIDMapping has one key. The spelling clusterIdMapping is that of
	// ceph-csi-operator; drivers read either.
	ClusterIDMapping map[string]string   `json:"clusterIdMapping"`
	RBDPoolIDMapping []map[string]string `json:"RBDPoolIDMapping,omitempty"`
}

// Contradiction is a pool that one pair of profiles maps to two pools.
type Contradiction struct {
	// Objects are the names of the ClientProfileMappings involved.
	Objects []string
	// Text says what contradicts what.
	Text string
}

// BuildMappings gives the records for all mappings of a namespace: one for each
// pair of profiles, with the pool pairs of all objects, in the order of the
// objects' names. Pairs that are given twice stand once. Pairs that contradict
// each other are all kept, since a driver tries them one after the other, and are
// reported.
func BuildMappings(objects []csiv1.ClientProfileMapping) ([]Mapping, []Contradiction) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b csiv1.ClientProfileMapping) int { return cmp.Compare(a.Name, b.Name) })
	type pair struct{ local, remote string }
	at := map[pair]int{}
	seen := map[pair]map[pair]string{} // profiles -> pool pair -> object that gave it
	records := []Mapping{}
	var bad []Contradiction
	for _, o := range objects {
		for _, m := range o.Spec.Mappings {
			profiles := pair{m.LocalClientProfile, m.RemoteClientProfile}
			i, known := at[profiles]
			if !known {
				i = len(records)
				at[profiles], seen[profiles] = i, map[pair]string{}
				records = append(records, Mapping{ClusterIDMapping: map[string]string{profiles.local: profiles.remote}})
			}
			for _, ids := range m.BlockPoolIdMapping {
				if len(ids) != 2 {
					continue // the schema refuses it
				}
				pools := pair{ids[0], ids[1]}
				if _, twice := seen[profiles][pools]; twice {
					continue
				}
				for other, object := range seen[profiles] {
					if other.local == pools.local || other.remote == pools.remote {
						bad = append(bad, contradiction(profiles.local, profiles.remote, object, o.Name,
							[2]string{other.local, other.remote}, [2]string{pools.local, pools.remote}))
					}
				}
				seen[profiles][pools] = o.Name
				records[i].RBDPoolIDMapping = append(records[i].RBDPoolIDMapping, map[string]string{pools.local: pools.remote})
			}
		}
	}
	slices.SortFunc(bad, func(a, b Contradiction) int { return cmp.Compare(a.Text, b.Text) })
	return records, bad
}

func contradiction(local, remote, object1, object2 string, one, two [2]string) Contradiction {
	objects := []string{object1, object2}
	slices.Sort(objects)
	return Contradiction{
		Objects: slices.Compact(objects),
		Text: fmt.Sprintf("between profiles '%s' and '%s' pool pair [%s, %s] contradicts [%s, %s]",
			local, remote, two[0], two[1], one[0], one[1]),
	}
}

// EncodeMappings writes cluster-mapping.json. No mapping at all is "[]".
func EncodeMappings(records []Mapping) (string, error) {
	if records == nil {
		records = []Mapping{}
	}
	raw, err := json.Marshal(records)
	if err != nil {
		return "", fmt.Errorf("encoding %s: %w", MappingKey, err)
	}
	return string(raw), nil
}

// ParseMappings reads cluster-mapping.json. Empty text is no mapping.
func ParseMappings(text string) ([]Mapping, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var records []Mapping
	if err := json.Unmarshal([]byte(text), &records); err != nil {
		return nil, fmt.Errorf("reading %s: %w: %w", MappingKey, ErrBroken, err)
	}
	return records, nil
}
