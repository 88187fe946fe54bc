package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/castellan-storage/castellan/internal/cluster"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/config"
	"github.com/castellan-storage/castellan/internal/crushupdate"
	"github.com/castellan-storage/castellan/internal/csi"
	"github.com/castellan-storage/castellan/internal/csi/publish"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/csiusers"
	"github.com/castellan-storage/castellan/internal/disruption"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/mgr"
	"github.com/castellan-storage/castellan/internal/mon"
	"github.com/castellan-storage/castellan/internal/nodedaemon"
	"github.com/castellan-storage/castellan/internal/osd"
	"github.com/castellan-storage/castellan/internal/osd/replace"
	"github.com/castellan-storage/castellan/internal/osd/replace/overview"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/poolmapping"
	"github.com/castellan-storage/castellan/internal/replication"
	"github.com/castellan-storage/castellan/internal/replication/local"
	"github.com/castellan-storage/castellan/internal/status"
)

// common is what controllers are made of.
type common struct {
	ctx      context.Context
	mgr      ctrl.Manager
	env      kit.Env
	access   access.Reader
	operator pods.Operator
	settings *operatorSettings
	scope    scope
	// files is the drivers' configuration, made when the first controller asks.
	files *store.Store
	// without are groups whose kinds are not installed: their controllers wait until
	// they are.
	without map[string]bool
}

// entry is one line of the list of controllers.
type entry struct {
	name string
	// group is the word of --controllers that stands for this and others.
	group    string
	register func(*common) error
}

// Groups of controllers.
const (
	groupCeph = "ceph"
	groupCSI  = "csi"
)

// controllers is the list of all controllers of the operator. To add one, add a
// line.
func controllers() []entry {
	return []entry{
		{"cluster", groupCeph, func(c *common) error {
			ctl := &cluster.Controller{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get}
			return kit.Register(c.mgr, c.env, cluster.Releaser{Controller: ctl, Write: c.env.Client}, c.settled(cluster.Options()))
		}},
		{"mon", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &mon.Controller{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get}, c.settled(mon.Options()))
		}},
		{"mgr", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &mgr.Controller{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get, Write: c.env.Client}, c.settled(mgr.Options()))
		}},
		{"osd-provision", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &osd.Provisioner{Base: c.osd()}, c.settled(osd.ProvisionOptions()))
		}},
		{"osd", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &osd.Daemons{Base: c.osd()}, c.settled(osd.DaemonOptions()))
		}},
		{"osd-replace", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &replace.Controller{Reader: c.replacements(), Write: c.env.Client}, replace.Options())
		}},
		{"osd-replacements", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &overview.Controller{Reader: c.replacements()}, c.settled(overview.Options()))
		}},
		{"config", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &config.Controller{Access: c.access, Operator: c.operator, Settings: c.settings.Get}, c.settled(config.Options()))
		}},
		{"nodedaemon", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &nodedaemon.Controller{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get}, c.settled(nodedaemon.Options()))
		}},
		{"disruption", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &disruption.Controller{Cache: c.env.Client, Access: c.access}, disruption.Options())
		}},
		{"osd-settings", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &crushupdate.Controller{Cache: c.env.Client, Access: c.access, Settings: c.settings.Get}, c.settled(crushupdate.Options()))
		}},
		{"discover", groupCeph, registerDiscovery},
		{"status", groupCeph, func(c *common) error {
			return kit.Register(c.mgr, c.env, &status.Controller{Access: c.access, Settings: c.settings.Get}, c.settled(status.Options()))
		}},
		{"csi-users", groupCeph, func(c *common) error {
			ctl := &csiusers.Controller{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get}
			return kit.Register(c.mgr, c.env, ctl, c.settled(csiusers.Options(!c.without[groupCSI])))
		}},
		{"csi-pool-mapping", groupCeph, func(c *common) error {
			ctl := &poolmapping.Controller{Cache: c.env.Client, Access: c.access, Operator: c.operator, Peers: poolmapping.Dial}
			return kit.Register(c.mgr, c.env, ctl, poolmapping.Options(!c.without[groupCSI]))
		}},
		{"csi-drivers", groupCSI, func(c *common) error {
			files, err := c.csiFiles()
			if err != nil {
				return err
			}
			return csi.Register(c.mgr, c.env, files, csi.Options{
				OperatorNamespace: c.operator.Namespace, OperatorConfigName: os.Getenv("OPERATOR_CONFIG_NAME"),
				ServiceAccountPrefix: os.Getenv("CSI_SERVICE_ACCOUNT_PREFIX"), OperatorImage: c.operator.Image,
			})
		}},
		{"csi-replication", groupCSI, func(c *common) error {
			files, err := c.csiFiles()
			if err != nil {
				return err
			}
			return replication.Register(c.mgr, c.env, files, local.Lister{Access: c.access, Namespace: c.operator.Namespace})
		}},
	}
}

// settled adds the operator's settings to what leads to a pass.
func (c *common) settled(o kit.Options) kit.Options {
	o.Sources = append(slices.Clone(o.Sources), c.settings.Source(c.env.Client))
	return o
}

func (c *common) osd() osd.Base {
	return osd.Base{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get}
}

func (c *common) replacements() view.Reader {
	return view.Reader{Cache: c.env.Client, Access: c.access, Operator: c.operator, Settings: c.settings.Get}
}

// csiFiles gives the drivers' configuration, with the indexes that its users need.
func (c *common) csiFiles() (*store.Store, error) {
	if c.files != nil {
		return c.files, nil
	}
	if err := publish.AddIndexes(c.ctx, c.mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	files, err := store.New(c.mgr, c.scope.namespaces...)
	if err != nil {
		return nil, err
	}
	c.files = files
	return files, nil
}

// selectControllers gives the entries that --controllers names: "all", a group, or
// names, separated by commas.
func selectControllers(list []entry, words string) ([]entry, error) {
	known := map[string]bool{"all": true}
	for _, e := range list {
		known[e.name], known[e.group] = true, true
	}
	want := map[string]bool{}
	for _, w := range strings.Split(words, ",") {
		w = strings.TrimSpace(w)
		if w == "" {
			continue
		}
		if !known[w] {
			return nil, fmt.Errorf("--controllers: there is no %q; there are all, %s, %s and %s", w, groupCeph, groupCSI, strings.Join(names(list), ", "))
		}
		want[w] = true
	}
	var got []entry
	for _, e := range list {
		if want["all"] || want[e.group] || want[e.name] {
			got = append(got, e)
		}
	}
	if len(got) == 0 {
		return nil, fmt.Errorf("--controllers: none is selected")
	}
	return got, nil
}

func names(list []entry) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.name
	}
	return out
}
