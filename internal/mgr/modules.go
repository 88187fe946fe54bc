package mgr

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/config"
	cephmgr "github.com/castellan-storage/castellan/internal/ceph/mgr"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mgr/spec"
)

// Label says on a mgr's pod whether it is the active one.
type Label struct {
	Pod  types.NamespacedName
	Role string
}

// String implements kit.Action.
func (l Label) String() string { return "labelling pod " + l.Pod.Name + " " + l.Role }

// Module switches a mgr module on or off.
type Module struct {
	Name string
	On   bool
}

// String implements kit.Action.
func (m Module) String() string {
	if m.On {
		return "enabling mgr module " + m.Name
	}
	return "disabling mgr module " + m.Name
}

// Setting sets an option of a module, or removes it when Value is empty.
type Setting struct{ Name, Value string }

// String implements kit.Action.
func (s Setting) String() string { return "setting " + s.Name }

// reserved modules are switched by other parts of the spec, or must stay off.
var reserved = [...]string{"dashboard", "prometheus", "crash", "rook"}

// wantedModules is the state that the spec asks for, module by module. Modules
// that nobody names are left as they are.
func wantedModules(cl *cephv1.CephCluster) (want map[string]bool, problem string) {
	want = map[string]bool{
		"prometheus": spec.MetricsPort(cl.Spec.Monitoring) > 0,
		"dashboard":  cl.Spec.Dashboard.Enabled,
		"rook":       false,
	}
	for i, m := range cl.Spec.Mgr.Modules {
		for _, r := range reserved {
			if m.Name == r {
				return want, fmt.Sprintf("spec.mgr.modules[%d]: %s is not switched here; use its own part of the spec", i, m.Name)
			}
		}
		if m.Name != "" {
			want[m.Name] = m.Enabled
		}
	}
	return want, ""
}

// modules switches modules and their settings. What cannot run is a condition,
// not a wait: everything else goes on.
func modules(cl *cephv1.CephCluster, seen Seen, p *kit.Plan) {
	want, problem := wantedModules(cl)
	problems := []string{}
	if problem != "" {
		problems = append(problems, problem)
	}
	wrong := slices.DeleteFunc(settingsOf(cl), func(o Setting) bool { return value(seen.Config, o.Name) == o.Value })
	if seen.Modules.On(dashboard) && want[dashboard] && slices.ContainsFunc(wrong, func(o Setting) bool { return readAtStart(o.Name) }) {
		// It is off before anything is set: then what is set has been read by the one that
		// runs, whatever becomes of this pass. The next one switches it on again.
		p.Do = append(p.Do, Module{Name: dashboard})
	}
	for _, o := range wrong {
		p.Do = append(p.Do, o)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		on := seen.Modules.On(name)
		switch {
		case want[name] == on:
		case !want[name]:
			p.Do = append(p.Do, Module{Name: name})
		default:
			if why := cannotRun(seen.Modules, name); why != "" {
				problems = append(problems, "mgr module "+name+": "+why)
			} else if seen.Stat.Available {
				p.Do = append(p.Do, Module{Name: name, On: true})
			}
		}
	}
	if problem := serve(cl, seen, p); problem != "" {
		problems = append(problems, problem)
	}
	c := kit.Condition{Type: "MgrModules", Status: metav1.ConditionTrue, Reason: "ModulesSet", Message: "all mgr modules are as the spec says"}
	if len(problems) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "ModuleNotAvailable", strings.Join(problems, "; ")
	}
	p.Conditions = append(p.Conditions, c)
}

// cannotRun is why a module cannot be enabled. While no mgr is active nothing is
// known.
func cannotRun(m cephmgr.Modules, name string) string {
	for _, d := range m.Disabled {
		if d.Name == name {
			if d.CanRun {
				return ""
			}
			return d.Error
		}
	}
	if len(m.Disabled) == 0 {
		return ""
	}
	return "this Ceph image does not have it"
}

// settingsOf are the options that the spec implies. An empty value means that the
// option is not set.
func settingsOf(cl *cephv1.CephCluster) []Setting {
	opts := []Setting{}
	port := spec.MetricsPort(cl.Spec.Monitoring)
	if port == cephv1.DefaultMetricsPort || port == 0 {
		opts = append(opts, Setting{Name: "mgr/prometheus/server_port"})
	} else {
		opts = append(opts, Setting{Name: "mgr/prometheus/server_port", Value: strconv.Itoa(int(port))})
	}
	for _, m := range cl.Spec.Mgr.Modules {
		if m.Name == "balancer" && m.Settings.BalancerMode != "" {
			opts = append(opts, Setting{Name: "mgr/balancer/mode", Value: m.Settings.BalancerMode})
		}
	}
	opts = append(opts, dashboardSettings(cl.Spec.Dashboard)...)
	return slices.DeleteFunc(opts, func(o Setting) bool { return usersOwn(&cl.Spec, o.Name) })
}

// usersOwn reports whether the user sets an option of mgrs by name. That word counts:
// two controllers would set it in turns.
func usersOwn(spec *cephv1.ClusterSpec, option string) bool {
	names := slices.AppendSeq(slices.Collect(maps.Keys(spec.CephConfig["mgr"])), maps.Keys(spec.CephConfigFromSecret["mgr"]))
	return slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == option })
}

// value of an option of the mgr section, "" when it is not set.
func value(have []config.Option, name string) string {
	for _, o := range have {
		if o.Section == "mgr" && o.Name == name && o.Who() == "mgr" {
			return o.Value
		}
	}
	return ""
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	if l, ok := action.(Label); ok {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.Pod.Namespace, Name: l.Pod.Name}}
		patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, spec.RoleLabel, l.Role)))
		return client.IgnoreNotFound(c.Write.Patch(ctx, pod, patch, client.FieldOwner(kube.FieldOwner)))
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return err
	}
	if stored.Ceph == nil || stored.Identity.User != identity.AdminUser {
		return fmt.Errorf("%s: the cluster's mons are not known", action)
	}
	m := cephmgr.New(stored.Ceph)
	switch a := action.(type) {
	case keyring.Ensure:
		return a.Do(ctx, stored.Ceph)
	case Module:
		if a.On {
			return m.EnableModule(ctx, a.Name, false)
		}
		return m.DisableModule(ctx, a.Name)
	case Setting:
		if a.Value == "" {
			return config.New(stored.Ceph).Remove(ctx, "mgr", a.Name)
		}
		return config.New(stored.Ceph).Set(ctx, "mgr", a.Name, a.Value, false)
	case AdminUser:
		return c.setPassword(ctx, cl.Namespace, m, a)
	case Certificate:
		return m.CreateDashboardCertificate(ctx)
	}
	return fmt.Errorf("%s: no such action", action)
}
