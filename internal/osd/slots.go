package osd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/kit/naming"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/osd/pending"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// doubt is after what time a Job that has prepared a disk, and is still there, has
// not led to an OSD: then the node is looked at again.
const doubt = 15 * time.Second

// slotReasons are reasons to look at a node again while a slot of it waits for a
// disk: a watch has seen a change, or an attempt has ended. Each is remembered by a
// label on the report that came of it, so that it counts once.
type slotReasons struct {
	Slots, After, Attempt string
}

// String is the reason as part of a request's hash.
func (r slotReasons) String() string { return "/" + r.After + "/" + r.Attempt }

// label notes on the report what it answers.
func (r slotReasons) label(req request.Provision) {
	for k, v := range map[string]string{pending.SlotsLabel: r.Slots, pending.AfterLabel: r.After, pending.RetryLabel: r.Attempt} {
		if v != "" && len(req.Pending) > 0 {
			req.Labels[k] = v
		}
	}
}

// slots reads which OSDs wait for a disk, and why their nodes should be looked at.
func (c *Provisioner) slots(ctx context.Context, cl *cephv1.CephCluster, seen *ProvisionSeen) error {
	deps, err := kube.List(ctx, c.Cache, &appsv1.DeploymentList{}, client.InNamespace(cl.Namespace), client.MatchingLabels{"app": spec.App})
	if err != nil {
		return fmt.Errorf("listing the OSDs' Deployments: %w", err)
	}
	seen.Slots = pending.Of(deps.Items)
	seen.Asks, seen.Making = map[string]slotReasons{}, map[string]bool{}
	jobs, err := kube.List(ctx, c.Cache, &batchv1.JobList{}, client.InNamespace(cl.Namespace))
	if err != nil {
		return fmt.Errorf("listing the Jobs of replacements: %w", err)
	}
	watches, attempts := map[string]string{}, map[string][]string{}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		host := j.Spec.Template.Spec.NodeSelector[corev1.LabelHostname]
		switch at := endTime(j); {
		case j.Labels["app"] == spec.WatchApp && !at.IsZero():
			watches[j.Name] = string(j.UID)
		case j.Labels["app"] != spec.MakeApp:
		case at.IsZero():
			seen.Making[host] = true
		case j.Status.Succeeded == 0 || seen.Now.Sub(at) > doubt:
			attempts[host] = append(attempts[host], string(j.UID))
		}
	}
	for _, n := range seen.Resolved.Nodes {
		rep := seen.Reports[n.Name]
		r := slotReasons{Slots: pending.Hash(seen.Slots[n.Name]), After: rep.Labels[pending.AfterLabel], Attempt: rep.Labels[pending.RetryLabel]}
		if uid := watches[spec.WatchName(n.Name)]; uid != "" {
			r.After = uid
		}
		if a := attempts[n.Host]; len(a) > 0 {
			slices.Sort(a)
			r.Attempt = naming.Hash(strings.Join(a, " "))
		}
		seen.Asks[n.Name] = r
	}
	return nil
}
