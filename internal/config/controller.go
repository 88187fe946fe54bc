package config

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephconfig "github.com/castellan-storage/castellan/internal/ceph/config"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	cephstatus "github.com/castellan-storage/castellan/internal/ceph/status"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/release"
	"github.com/castellan-storage/castellan/internal/settings"
)

// RecordSecret remembers which options were set.
const RecordSecret = "rook-ceph-config-record"

// Controller keeps Ceph's settings.
type Controller struct {
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Options of the controller for kit.Register.
func Options() kit.Options {
	return kit.Options{Name: "config", Report: kit.SubjectReport("Config"), When: access.When(), Owns: []kit.Object{&corev1.Secret{}}, OwnsNamed: access.Named(RecordSecret)}
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Cluster podspec.Cluster
	Ready   bool
	Silence string
	Want    map[Option]Value
	// Problems are settings whose value cannot be found.
	Problems []string
	Have     []cephconfig.Option
	Record   Record
	Map      cephosd.Map
	// HasMap says that the OSD map has been read.
	HasMap bool
	// Founding is known when the OSD map is.
	Founding Founding
	// Mutes are the muted health codes, if the spec has anything to say of them.
	Mutes []cephstatus.Mute
	// Release is what all running OSDs are at least, "" when that is not known or no
	// change of the requirement is due.
	Release string
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	seen := Seen{Cluster: pods.Cluster(cl, c.Operator, set, stored.Identity.FSID, "")}
	secrets, problems, err := c.secrets(ctx, cl)
	if err != nil {
		return Seen{}, err
	}
	nodes, more, err := c.overrides(ctx, cl)
	if err != nil {
		return Seen{}, err
	}
	seen.Want, seen.Problems = merge(wanted(&cl.Spec, secrets), nodes), append(problems, more...)
	var record corev1.Secret
	if _, err := kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: RecordSecret}, &record); err != nil {
		return Seen{}, fmt.Errorf("reading the record of Ceph settings: %w", err)
	}
	if seen.Record, err = ParseRecord(record.Data["record"]); err != nil {
		return Seen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if seen.Have, err = cephconfig.Recent(ctx, ceph.Recently(stored.Ceph)); err != nil {
		seen.Silence = err.Error()
		return seen, nil
	}
	if seen.Mutes, err = muted(ctx, cl, stored.Ceph); err != nil {
		return Seen{}, err
	}
	seen.Ready = true
	return seen, c.osds(ctx, cl, stored.Ceph, &seen)
}

// secrets finds the values of cephConfigFromSecret. One that is missing is a
// problem with a name; a failed read is an error.
func (c *Controller) secrets(ctx context.Context, cl *cephv1.CephCluster) (map[Option]Value, []string, error) {
	out := map[Option]Value{}
	var problems []string
	for who, m := range cl.Spec.CephConfigFromSecret {
		for k, sel := range m {
			field := fmt.Sprintf("spec.cephConfigFromSecret[%s][%s]", who, k)
			var s corev1.Secret
			found, err := kube.Get(ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: sel.Name}, &s)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", field, err)
			}
			v, ok := s.Data[sel.Key]
			switch {
			case !found:
				problems = append(problems, fmt.Sprintf("%s: Secret %s does not exist", field, sel.Name))
			case !ok:
				problems = append(problems, fmt.Sprintf("%s: Secret %s has no key %s", field, sel.Name, sel.Key))
			default:
				out[Option{who, name(k)}] = Value{Text: ceph.NewSecret(string(v)), FromSecret: true, From: field}
			}
		}
	}
	slices.Sort(problems)
	return out, problems, nil
}

// overrides reads the settings of single nodes. Users make these ConfigMaps, so they
// carry no label of the operator and are read live.
func (c *Controller) overrides(ctx context.Context, cl *cephv1.CephCluster) (map[Option]Value, []string, error) {
	list, err := kube.List(ctx, c.Access.Live, &corev1.ConfigMapList{}, client.InNamespace(cl.Namespace), client.HasLabels{NodeLabel})
	if err != nil {
		return nil, nil, fmt.Errorf("looking for settings of nodes: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil, nil
	}
	common, err := kube.Lookup[corev1.ConfigMap](ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: podspec.ConfigOverride})
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration override: %w", err)
	}
	all := Override{Name: podspec.ConfigOverride}
	if common != nil {
		all.Conf = common.Data["config"]
	}
	var nodes []Override
	for _, cm := range list.Items {
		nodes = append(nodes, Override{Name: cm.Name, Conf: cm.Data["config"]})
	}
	opts, problems := nodeSettings(nodes, all)
	return opts, problems, nil
}

// osds reads the map for ratios and release. The versions are asked for only when
// the accepted version's release is not the required one yet.
func (c *Controller) osds(ctx context.Context, cl *cephv1.CephCluster, commander ceph.Commander, seen *Seen) error {
	var err error
	if seen.Map, err = cephosd.New(commander).Dump(ctx); err != nil {
		return fmt.Errorf("reading the OSD map: %w", err)
	}
	seen.HasMap = true
	seen.Founding = Founding{Age: kit.Now(ctx).Sub(cl.CreationTimestamp.Time), Pools: len(seen.Map.Pools)}
	if seen.Founding.underway(seen.Record) && seen.Founding.Pools > 0 {
		now, err := cephstatus.New(commander).Status(ctx)
		if err != nil {
			return fmt.Errorf("asking whether the cluster's first PGs are clean: %w", err)
		}
		seen.Founding.AllClean = now.PGMap.NumPGs > 0 && now.PGMap.AllClean()
	}
	if cl.Status.CephVersion == nil || len(seen.Map.OSDs) == 0 {
		return nil
	}
	accepted, err := release.ParseLabel(cl.Status.CephVersion.Version)
	if err != nil || accepted.Codename() == seen.Map.RequireOSDRelease {
		return nil
	}
	r, err := commander.Mon(ctx, ceph.Cmd("versions"))
	if err != nil {
		return fmt.Errorf("asking for the versions of the daemons: %w", err)
	}
	running, err := release.ParseRunning(r.Out)
	if err != nil {
		return fmt.Errorf("reading the versions of the daemons: %w", err)
	}
	// Only when every OSD of the map runs: one that is down may be older, and could
	// not come back.
	up := 0
	for _, o := range seen.Map.OSDs {
		if bool(o.Up) {
			up++
		}
	}
	if up == len(seen.Map.OSDs) && running.Count(release.OSD) == up {
		seen.Release = running.RequireOSDRelease()
	}
	return nil
}

// RequireRelease makes Ceph refuse OSDs older than a release.
type RequireRelease struct{ Name string }

// String implements kit.Action.
func (r RequireRelease) String() string { return "requiring OSDs of release " + r.Name }

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	if !pods.Founded(cl) {
		return kit.Plan{Wait: pods.NotFounded()}
	}
	if !seen.Ready {
		return kit.Plan{Wait: &kit.Wait{Reason: "MonsNotReady", Message: "settings wait for the mons: " + seen.Silence, For: time.Second}}
	}
	p := kit.Plan{Next: time.Minute}
	want, record := seen.Founding.add(seen.Want, seen.Have, seen.Record)
	change := Compare(want, seen.Have, record)
	if seen.Founding.underway(change.Record) {
		p.Next = foundingAgain
	}
	if !maps.Equal(change.Record, seen.Record) {
		p.Apply = append(p.Apply, keyring.Opaque(seen.Cluster, RecordSecret, map[string][]byte{"record": change.Record.Bytes()}))
	}
	if seen.HasMap {
		for _, r := range ratios(cl.Spec.Storage, seen.Map.FullRatio, seen.Map.BackfillfullRatio, seen.Map.NearfullRatio) {
			p.Do = append(p.Do, r)
		}
	}
	if seen.Release != "" && seen.Release != seen.Map.RequireOSDRelease {
		p.Do = append(p.Do, RequireRelease{Name: seen.Release})
	}
	p.Do = append(p.Do, mutes(cl.Spec.HealthCheck.MuteHealthWarning, seen.Mutes)...)
	// Last, since Ceph may refuse one of them.
	if len(change.Set)+len(change.Remove) > 0 {
		p.Do = append(p.Do, Settle{Set: change.Set, Remove: change.Remove})
	}
	if len(seen.Problems) > 0 {
		// Secrets and ConfigMaps of users are not watched: they are looked at again.
		p.Wait = &kit.Wait{Reason: "InvalidCephConfig", Message: strings.Join(seen.Problems, "; "), Blocked: true, For: 30 * time.Second}
	}
	return p
}

// Settle sets and removes options. One that Ceph refuses keeps none of the others.
type Settle struct {
	Set    []Set
	Remove []Remove
}

// String implements kit.Action.
func (s Settle) String() string {
	var parts []string
	for _, x := range s.Set {
		parts = append(parts, x.String())
	}
	for _, x := range s.Remove {
		parts = append(parts, x.String())
	}
	return strings.Join(parts, ", ")
}

// Kind is the metric label.
func (Settle) Kind() string { return "config" }

// Do sends the commands, each an effect of its own.
func (s Settle) Do(ctx context.Context, conf cephconfig.Client) error {
	var refused []string
	for _, x := range s.Set {
		err := kit.Step(ctx, "config", x.String(), func(ctx context.Context) error { return x.Do(ctx, conf) })
		if isRefusal(err) {
			refused = append(refused, x.refusal(err))
		} else if err != nil {
			return err
		}
	}
	for _, x := range s.Remove {
		if err := kit.Step(ctx, "config", x.String(), func(ctx context.Context) error { return conf.Remove(ctx, x.Option.Who, x.Option.Name) }); err != nil {
			return err
		}
	}
	if len(refused) > 0 {
		return kit.Waiting(kit.Wait{Reason: "CephRefusesSetting", Message: strings.Join(refused, "; "), Blocked: true, For: time.Minute})
	}
	return nil
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	commander, err := c.Access.Ceph(ctx, cl.Namespace, action.String())
	if err != nil {
		return err
	}
	conf, osds := cephconfig.New(commander), cephosd.New(commander)
	switch a := action.(type) {
	case Settle:
		return a.Do(ctx, conf)
	case Ratio:
		switch a.Name {
		case "full":
			return osds.SetFullRatio(ctx, a.Value)
		case "backfillfull":
			return osds.SetBackfillfullRatio(ctx, a.Value)
		default:
			return osds.SetNearfullRatio(ctx, a.Value)
		}
	case Mute:
		return a.Do(ctx, cephstatus.New(commander))
	case RequireRelease:
		return osds.RequireRelease(ctx, a.Name)
	}
	return fmt.Errorf("%s: no such action", action)
}

// Teardown implements kit.Controller: the settings go with the Ceph cluster.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }
