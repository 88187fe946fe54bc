package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/destination"
	"github.com/castellan-storage/castellan/internal/csi/destinationserver"
)

// Destination shows where a replicated volume is found in the other cluster, and why.
// given are names of pools as PROFILE:ID=NAME; those of the CephBlockPools of a
// profile's CephCluster are known without.
func (p *Plugin) Destination(ctx context.Context, w Where, handle string, given []string) error {
	h, err := destination.Read(handle)
	if err != nil {
		return fmt.Errorf("%w; a handle stands in spec.csi.volumeHandle of a PersistentVolume", err)
	}
	told, err := destinationserver.ParsePools(given)
	if err != nil {
		return err
	}
	cm, err := p.files(ctx, w, h.ClusterID)
	if err != nil {
		return err
	}
	cfg, err := destination.Parse(cm.Data[clusterconfig.ConfigKey], cm.Data[clusterconfig.MappingKey])
	if err != nil {
		return fmt.Errorf("reading the ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	pools := pools{told: told, plugin: p}
	text, err := destinationserver.Explain(ctx, cfg, handle, pools, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Out, "config    %s/%s\n%s", cm.Namespace, cm.Name, text)
	return err
}

// files finds the drivers' configuration: that of the namespace, or the only one, or the
// only one that knows the profile.
func (p *Plugin) files(ctx context.Context, w Where, profile string) (*corev1.ConfigMap, error) {
	var list corev1.ConfigMapList
	named := client.MatchingFields{"metadata.name": clusterconfig.ConfigMapName}
	if err := p.Client.List(ctx, &list, client.InNamespace(w.Namespace), named); err != nil {
		return nil, explain(err, "reading the drivers' configuration in namespace "+w.Namespace)
	}
	if len(list.Items) == 0 && !w.Explicit {
		if err := p.Client.List(ctx, &list, named); err != nil {
			return nil, fmt.Errorf("there is no ConfigMap %s in namespace %s, and others could not be looked at: name the drivers' namespace with -n: %w", clusterconfig.ConfigMapName, w.Namespace, err)
		}
	}
	if len(list.Items) == 1 {
		return &list.Items[0], nil
	}
	var names []string
	var found []*corev1.ConfigMap
	for i := range list.Items {
		cm := &list.Items[i]
		names = append(names, cm.Namespace)
		for _, text := range []string{cm.Data[clusterconfig.ConfigKey], cm.Data[clusterconfig.MappingKey]} {
			if strings.Contains(text, `"`+profile+`"`) && !slices.Contains(found, cm) {
				found = append(found, cm)
			}
		}
	}
	slices.Sort(names)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return nil, fmt.Errorf("there is no ConfigMap %s: no CSI driver is installed, or you are looking at another cluster", clusterconfig.ConfigMapName)
	}
	return nil, fmt.Errorf("drivers have configurations in several namespaces: name one with -n: %s", strings.Join(names, ", "))
}

// pools knows the names that the user has told, and those of CephBlockPools. A pool that
// neither knows may exist all the same.
type pools struct {
	told   destinationserver.GivenPools
	plugin *Plugin
}

// PoolName implements destinationserver.Pools.
func (p pools) PoolName(ctx context.Context, profile string, pool int64) (string, error) {
	if name, ok := p.told[profile][pool]; ok {
		return name, nil
	}
	// The default profile of a CephCluster has the name of its namespace.
	var list cephv1.CephBlockPoolList
	if err := p.plugin.Client.List(ctx, &list, client.InNamespace(profile)); err != nil && !meta.IsNoMatchError(err) {
		return "", explain(err, "listing CephBlockPools in namespace "+profile)
	}
	for i := range list.Items {
		if bp := &list.Items[i]; pool != 0 && int64(bp.Status.PoolID) == pool {
			if bp.Spec.Name != "" {
				return bp.Spec.Name, nil
			}
			return bp.Name, nil
		}
	}
	return destinationserver.NoPools{}.PoolName(ctx, profile, pool)
}
