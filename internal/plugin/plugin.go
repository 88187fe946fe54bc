package plugin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/osd/reports"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Plugin carries out the commands.
type Plugin struct {
	// Client reads and writes without a cache.
	Client client.Client
	In     io.Reader
	Out    io.Writer
	// Interactive says that In is a person, Terminal that Out is a screen of so many
	// columns.
	Interactive, Terminal bool
	Width                 int
	// Now is the time; Every is the pause between two looks of a command that follows.
	Now   func() time.Time
	Every time.Duration
}

// Where says which CephCluster is meant.
type Where struct {
	// Namespace, and whether the user named it; else it is the one of the kubeconfig.
	Namespace string
	Explicit  bool
	// Name of the CephCluster; "" is the only one.
	Name string
}

// Cluster finds the CephCluster that is meant: the one of the namespace, or the only
// one there is.
func (p *Plugin) Cluster(ctx context.Context, w Where) (*cephv1.CephCluster, error) {
	var list cephv1.CephClusterList
	if err := p.Client.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
		return nil, explain(err, "listing CephClusters in namespace "+w.Namespace)
	}
	if len(list.Items) == 0 && !w.Explicit {
		if err := p.Client.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("there is no CephCluster in namespace %s, and others could not be looked at: name the namespace with -n: %w", w.Namespace, err)
		}
	}
	return choose(list.Items, w)
}

func choose(list []cephv1.CephCluster, w Where) (*cephv1.CephCluster, error) {
	var names []string
	var found []*cephv1.CephCluster
	for i := range list {
		names = append(names, list[i].Namespace+"/"+list[i].Name)
		if w.Name == "" || list[i].Name == w.Name {
			found = append(found, &list[i])
		}
	}
	slices.Sort(names)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(list) == 0 && w.Explicit:
		return nil, fmt.Errorf("there is no CephCluster in namespace %s", w.Namespace)
	case len(list) == 0:
		return nil, errors.New("there is no CephCluster")
	case len(found) == 0:
		return nil, fmt.Errorf("there is no CephCluster %s; there are %s", w.Name, strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there are several CephClusters: name one with -n and --ceph-cluster: %s", strings.Join(names, ", "))
}

// explain says what to do about errors that need somebody to do something.
func explain(err error, doing string) error {
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s: its kind is not installed: apply deploy/crds of Castellan: %w", doing, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: you may not; ask who administers the cluster: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// osd reads what is known of an OSD. The Deployment is nil if there is none.
func (p *Plugin) osd(ctx context.Context, namespace, cluster string, id int) (OSD, error) {
	o := OSD{ID: id}
	var c cephv1.CephCluster
	if err := p.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: cluster}, &c); err != nil {
		return o, explain(err, "reading the CephCluster "+namespace+"/"+cluster)
	}
	for i, r := range replacementsOf(&c) {
		if r.ID == id {
			o.Replacement = &replacementsOf(&c)[i]
		}
	}
	var d appsv1.Deployment
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: spec.Name(id)}, &d)
	if apierrors.IsNotFound(err) {
		return o, nil
	}
	if err != nil {
		return o, explain(err, "reading the Deployment of "+fmt.Sprintf("osd.%d", id))
	}
	o.Deployment = &d
	return o, nil
}

// absent says that there is no such OSD, and which there are.
func (p *Plugin) absent(ctx context.Context, namespace string, id int) error {
	var list appsv1.DeploymentList
	if err := p.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": spec.App}); err != nil {
		return explain(err, "listing the OSDs in namespace "+namespace)
	}
	var ids []int
	for i := range list.Items {
		if id, err := spec.IDOf(&list.Items[i]); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	known := "none"
	if len(ids) > 0 {
		known = strings.Join(strings.Fields(strings.Trim(fmt.Sprint(ids), "[]")), ", ")
	}
	return fmt.Errorf("there is no osd.%d in namespace %s (no Deployment %s); OSDs there: %s", id, namespace, spec.Name(id), known)
}

// tries bounds how often a change meets somebody else's.
const tries = 5

// Ask makes a request of an OSD, on the state that it was checked against, and tells
// what was asked for.
func (p *Plugin) Ask(ctx context.Context, w Where, id int, request func(OSD) (Request, error)) (*cephv1.CephCluster, error) {
	c, err := p.Cluster(ctx, w)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		o, err := p.osd(ctx, c.Namespace, c.Name, id)
		if err != nil {
			return nil, err
		}
		if o.Deployment == nil {
			return nil, p.absent(ctx, c.Namespace, id)
		}
		r, err := request(o)
		if err != nil {
			return nil, err
		}
		if !r.Empty() {
			err = p.patch(ctx, o.Deployment, r)
			if apierrors.IsConflict(err) && try < tries {
				continue
			}
			if err != nil {
				return nil, explain(err, fmt.Sprintf("changing the annotations of the Deployment %s", o.Deployment.Name))
			}
		}
		_, err = fmt.Fprintln(p.Out, r.Message)
		return c, err
	}
}

// patch changes annotations, unless the Deployment is another by now.
func (p *Plugin) patch(ctx context.Context, d *appsv1.Deployment, r Request) error {
	changed := d.DeepCopy()
	r.apply(&changed.ObjectMeta)
	return p.Client.Patch(ctx, changed, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{}))
}

// Confirm has the user type a word, unless it was given.
func (p *Plugin) Confirm(what, word, given string) error {
	if given == word {
		return nil
	}
	if given != "" {
		return fmt.Errorf("--confirm %s is not the confirmation: it has to be %s", given, word)
	}
	if !p.Interactive {
		return fmt.Errorf("%s: confirm it with --confirm %s", what, word)
	}
	if _, err := fmt.Fprintf(p.Out, "%s\nType %s to confirm: ", what, word); err != nil {
		return err
	}
	text, err := bufio.NewReader(p.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the confirmation: %w", err)
	}
	if strings.TrimSpace(text) != word {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}

// Follow shows where a replacement is until it ends.
func (p *Plugin) Follow(ctx context.Context, c *cephv1.CephCluster, id int) error {
	s := &screen{out: p.Out, terminal: p.Terminal, width: p.Width}
	begun := p.Now()
	var last cephv1.OSDReplacementPhase
	tick := time.NewTicker(cmp.Or(p.Every, time.Second))
	defer tick.Stop()
	for {
		o, err := p.osd(ctx, c.Namespace, c.Name, id)
		if err != nil && ctx.Err() == nil {
			// The API server may be away for a while; what was asked for goes on.
			err = s.show(Verdict{Line: fmt.Sprintf("osd.%d  not seen now: %v", id, err), Key: "unseen"})
		} else if err == nil {
			v := Judge(o, last, begun, p.Now())
			last = v.Phase
			if v.Done {
				return errors.Join(s.end(v.Line), v.Err)
			}
			err = s.show(v)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			if err := s.end(""); err != nil {
				return err
			}
			_, err := fmt.Fprintf(p.Out, "not followed any more; it goes on: kubectl castellan -n %s osd replace status\n", c.Namespace)
			return err
		case <-tick.C:
		}
	}
}

// Replacements shows all replacements of a cluster: as a table, or as JSON, which is the
// list as it stands in the status of the CephCluster, [] for none.
func (p *Plugin) Replacements(ctx context.Context, w Where, format string) error {
	if format != "" && format != "json" {
		return fmt.Errorf("-o %s: there is only json, and without -o a table", format)
	}
	c, err := p.Cluster(ctx, w)
	if err != nil {
		return err
	}
	list := replacementsOf(c)
	if format == "json" {
		enc := json.NewEncoder(p.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(append([]cephv1.OSDReplacement{}, list...))
	}
	if len(list) == 0 {
		_, err := fmt.Fprintf(p.Out, "no OSD of %s/%s is being replaced\n", c.Namespace, c.Name)
		return err
	}
	return RenderReplacements(p.Out, list, p.Now(), "")
}

// Status shows a cluster, what it waits for, and why disks are not used.
func (p *Plugin) Status(ctx context.Context, w Where) error {
	c, err := p.Cluster(ctx, w)
	if err != nil {
		return err
	}
	v := View{Cluster: c}
	maps, err := reports.StatusMaps(ctx, p.Client, c.Namespace)
	if err != nil {
		v.Problems = append(v.Problems, err.Error())
	}
	for _, cm := range maps {
		devices, err := reports.Devices(cm)
		if err != nil {
			v.Problems = append(v.Problems, err.Error())
			continue
		}
		v.Nodes = append(v.Nodes, NodeDevices{Node: nodeOf(cm.Name, cm.Labels["node"], cm.Data["status"]), Devices: devices})
	}
	slices.SortFunc(v.Nodes, func(a, b NodeDevices) int { return cmp.Compare(a.Node, b.Node) })
	var drivers csiv1.DriverList
	switch err := p.Client.List(ctx, &drivers, client.InNamespace(c.Namespace)); {
	case meta.IsNoMatchError(err): // without CSI
	case err != nil:
		v.Problems = append(v.Problems, "listing CSI drivers: "+err.Error())
	}
	v.Drivers = drivers.Items
	return RenderStatus(p.Out, v, p.Now())
}

// nodeOf is the node of a report: its status names it in full, where there is an OSD;
// a label may be too short for a node's name.
func nodeOf(name, label, status string) string {
	var s struct {
		OSDs []struct {
			Node string `json:"nodeName"`
		} `json:"osds"`
	}
	if json.Unmarshal([]byte(status), &s) == nil && len(s.OSDs) > 0 && s.OSDs[0].Node != "" {
		return s.OSDs[0].Node
	}
	return cmp.Or(label, strings.TrimSuffix(strings.TrimPrefix(name, "rook-ceph-osd-"), "-status"))
}
