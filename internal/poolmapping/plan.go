package poolmapping

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
)

// ProfileAnnotation on a CephBlockPool names the client profile of its peer, where the
// bootstrap token does not say it, or says another.
const ProfileAnnotation = "castellan.ceph.io/peer-client-profile"

// Peer is a cluster that pools are mirrored with, as its bootstrap token describes it.
type Peer struct {
	FSID    string
	MonHost string
	// User is a whole entity name.
	User string
	Key  ceph.Secret
	// Namespace is that of the peer's CephCluster, which is the name of its default
	// profile; empty in tokens that were not made by an operator.
	Namespace string
}

// ParseToken reads a bootstrap token: base64 of JSON. The error repeats nothing of it.
func ParseToken(token []byte) (Peer, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(token)))
	if err != nil {
		return Peer{}, errors.New("the token is not base64")
	}
	var t struct {
		FSID      string      `json:"fsid"`
		ClientID  string      `json:"client_id"`
		Key       ceph.Secret `json:"key"`
		MonHost   string      `json:"mon_host"`
		Namespace string      `json:"namespace"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return Peer{}, errors.New("the token is not JSON in base64")
	}
	if t.FSID == "" || t.ClientID == "" || t.Key.IsZero() || t.MonHost == "" {
		return Peer{}, errors.New("the token lacks one of fsid, client_id, key and mon_host")
	}
	return Peer{FSID: t.FSID, MonHost: t.MonHost, User: "client." + strings.TrimPrefix(t.ClientID, "client."), Key: t.Key, Namespace: t.Namespace}, nil
}

// Pool is a mirrored pool and what is known of it.
type Pool struct {
	Name string
	// Profile is the name of the client profile at the peer; empty if it is not known.
	Profile string
	// Local and Remote are the pool's ids; Remote is 0 if the peer has not told.
	Local, Remote int64
	// Problem is what keeps the rest from being known: a reason and a sentence.
	Reason, Problem string
}

// Input is what is known of a cluster's mirrored pools.
type Input struct {
	// Profile is the cluster's own default profile.
	Profile string
	// Namespace is where mappings and replications are.
	Namespace string
	Owner     *metav1.OwnerReference
	Pools     []Pool
	// Mapping and Replication are ours, if they exist.
	Mapping     *csiv1.ClientProfileMapping
	Replication *csiv1.ClientProfileReplication
	// Others are ClientProfileReplications of the profile that are not ours.
	Others []string
}

// Output is what is wanted. A nil object is left as it is.
type Output struct {
	Mapping     *csiv1.ClientProfileMapping
	Replication *csiv1.ClientProfileReplication
	// Remove says that our replication is to go.
	Remove bool
	// Reason and Problem say what is not as the user wants it; empty if all is.
	Reason, Problem string
}

// Name is the name of both objects of a cluster.
func Name(profile string) string { return profile + "-mirrored-pools" }

// Decide gives the wanted objects.
//
// Pairs of pool ids are added to the mapping and never taken away: volumes whose handle
// holds a former id need them for as long as they exist, above all when the peer is
// gone. The replication is about failovers to come, so it follows what is.
func Decide(in Input) Output {
	out := Output{Mapping: mapping(in)}
	var problems []string
	for _, p := range in.Pools {
		if p.Problem != "" {
			if out.Reason == "" {
				out.Reason = p.Reason
			}
			problems = append(problems, "pool "+p.Name+": "+p.Problem)
		}
	}
	var why string
	out.Replication, out.Remove, why = replication(in)
	if why != "" {
		if out.Reason == "" {
			out.Reason = ReasonReplication
		}
		problems = append(problems, why)
	}
	out.Problem = strings.Join(problems, "; ")
	return out
}

// mapping is the present mapping with what is new, or nil if there is nothing to say.
func mapping(in Input) *csiv1.ClientProfileMapping {
	var list []csiv1.MappingsSpec
	if in.Mapping != nil {
		list = in.Mapping.DeepCopy().Spec.Mappings
	}
	for _, p := range in.Pools {
		if p.Profile == "" || p.Local == 0 || p.Remote == 0 || p.Profile == in.Profile && p.Local == p.Remote {
			continue
		}
		pair := csiv1.BlockPoolIDPair{strconv.FormatInt(p.Local, 10), strconv.FormatInt(p.Remote, 10)}
		i := slices.IndexFunc(list, func(m csiv1.MappingsSpec) bool {
			return m.LocalClientProfile == in.Profile && m.RemoteClientProfile == p.Profile
		})
		if i < 0 {
			list = append(list, csiv1.MappingsSpec{LocalClientProfile: in.Profile, RemoteClientProfile: p.Profile})
			i = len(list) - 1
		}
		if !slices.ContainsFunc(list[i].BlockPoolIdMapping, func(have csiv1.BlockPoolIDPair) bool { return slices.Equal(have, pair) }) {
			list[i].BlockPoolIdMapping = append(list[i].BlockPoolIdMapping, pair)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &csiv1.ClientProfileMapping{
		TypeMeta:   metav1.TypeMeta{APIVersion: csiv1.SchemeGroupVersion.String(), Kind: "ClientProfileMapping"},
		ObjectMeta: in.meta(), Spec: csiv1.ClientProfileMappingSpec{Mappings: list},
	}
}

func (in Input) meta() metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: Name(in.Profile), Namespace: in.Namespace}
	if in.Owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*in.Owner}
	}
	return m
}

// replication is the destination of the profile. One of the user's goes before ours. A
// pool of which the peer says nothing keeps the id that is known.
func replication(in Input) (want *csiv1.ClientProfileReplication, remove bool, why string) {
	remote, pools := "", []csiv1.PoolMappingSpec{}
	for _, p := range in.Pools {
		if p.Profile == "" {
			continue
		}
		if remote != "" && remote != p.Profile {
			return nil, false, fmt.Sprintf("pools are mirrored to profiles %s and %s, and a profile has one destination: write a ClientProfileReplication for the one that counts", remote, p.Profile)
		}
		remote = p.Profile
		id := known(in.Replication, p)
		if id == "" {
			continue
		}
		pools = append(pools, csiv1.PoolMappingSpec{Name: p.Name, RemoteID: id})
	}
	switch {
	case len(in.Others) > 0:
		return nil, in.Replication != nil, ""
	case remote == "":
		// Nothing is mirrored any more, unless it only cannot be told.
		told := !slices.ContainsFunc(in.Pools, func(p Pool) bool { return p.Problem != "" })
		return nil, told && in.Replication != nil, ""
	case len(pools) == 0:
		return nil, false, ""
	}
	slices.SortFunc(pools, func(a, b csiv1.PoolMappingSpec) int { return strings.Compare(a.Name, b.Name) })
	return &csiv1.ClientProfileReplication{
		TypeMeta:   metav1.TypeMeta{APIVersion: csiv1.SchemeGroupVersion.String(), Kind: "ClientProfileReplication"},
		ObjectMeta: in.meta(),
		Spec:       csiv1.ClientProfileReplicationSpec{LocalClientProfile: in.Profile, RemoteClientProfile: remote, RBD: &csiv1.RBDReplicationSpec{PoolMapping: pools}},
	}, false, ""
}

// known is the id of a pool at the peer, as it says or as it once said.
func known(r *csiv1.ClientProfileReplication, p Pool) string {
	if p.Remote != 0 {
		return strconv.FormatInt(p.Remote, 10)
	}
	if r == nil || r.Spec.RBD == nil || r.Spec.RemoteClientProfile != p.Profile {
		return ""
	}
	for _, m := range r.Spec.RBD.PoolMapping {
		if m.Name == p.Name {
			return m.RemoteID
		}
	}
	return ""
}
