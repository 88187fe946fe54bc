package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// errInstalled ends a manager that runs without the kinds of csi.ceph.io when they have
// been installed: a watch cannot be added to a controller that has started.
var errInstalled = errors.New("the kinds of csi.ceph.io have been installed")

// lookAgain is how often missing kinds are looked for.
const lookAgain = 15 * time.Second

// csiKinds are the kinds that the CSI controllers watch.
func csiKinds() []string {
	return []string{"Driver", "OperatorConfig", "CephConnection", "ClientProfile", "ClientProfileMapping", "ClientProfileReplication"}
}

// mapper knows which kinds are installed.
type mapper interface {
	RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error)
}

// missingKind names a kind of csi.ceph.io that is not installed, or is empty.
func missingKind(m mapper) (string, error) {
	for _, kind := range csiKinds() {
		_, err := m.RESTMapping(schema.GroupKind{Group: csiv1.SchemeGroupVersion.Group, Kind: kind}, csiv1.SchemeGroupVersion.Version)
		if meta.IsNoMatchError(err) {
			return kind, nil
		}
		if err != nil {
			return "", fmt.Errorf("looking for the kind %s: %w", kind, err)
		}
	}
	return "", nil
}

// skipCSI leaves the CSI controllers out while one of their kinds is not installed, and
// has installed called when all are. A controller that watches a kind which does not
// exist would end the whole process after two minutes.
func (c *common) skipCSI(installed func()) error {
	m := c.mgr.GetRESTMapper()
	kind, err := missingKind(m)
	if err != nil || kind == "" {
		return err
	}
	c.without = map[string]bool{groupCSI: true}
	c.mgr.GetLogger().Info("running without the CSI controllers: a kind of csi.ceph.io is not installed", "kind", kind, "hint", "apply deploy/crds")
	return c.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, lookAgain, false, func(context.Context) (bool, error) {
			kind, err := missingKind(m)
			return err == nil && kind == "", nil // an API server that is away is asked again
		})
		if err == nil {
			installed()
		}
		return nil
	}))
}
