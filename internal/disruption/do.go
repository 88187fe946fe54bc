package disruption

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/disruption/plan"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/naming"
)

// NoOut sets or clears the flag noout of a CRUSH bucket.
type NoOut struct {
	Bucket string
	On     bool
}

// String implements kit.Action.
func (n NoOut) String() string {
	if n.On {
		return "setting noout of " + n.Bucket
	}
	return "clearing noout of " + n.Bucket
}

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.External.Enable || cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() || !pods.Founded(cl) {
		return kit.Plan{}
	}
	if _, err := regexp.Compile(pattern(cl)); err != nil {
		return kit.Plan{Err: kit.Terminal("spec.disruptionManagement.pgHealthyRegex", "%w", err)}
	}
	if !cl.Spec.DisruptionManagement.ManagePodBudgets {
		return off(cl, seen)
	}
	if len(seen.State.OSDs) == 0 {
		return kit.Plan{}
	}
	d := plan.Decide(seen.State)
	p := kit.Plan{}
	note(cl, seen, d, &p)
	budgets(cl, seen, d, &p)
	if d.Set != "" {
		p.Do = append(p.Do, NoOut{Bucket: d.Set, On: true})
	}
	if d.Clear != "" {
		p.Do = append(p.Do, NoOut{Bucket: d.Clear})
	}
	if d.Began != "" {
		p.Events = append(p.Events, kit.Event{Reason: "DrainBegan", Message: "OSDs of " + d.Began + " are being evicted; those of others stay until it is back and all data is whole"})
	}
	if d.Ended != "" {
		p.Events = append(p.Events, kit.Event{Reason: "DrainEnded", Message: "the drain of " + d.Ended + " is over"})
	}
	wait(seen, d, &p)
	return p
}

// wait says what is waited for, and when to look again at what no watch tells.
func wait(seen Seen, d plan.Decision, p *kit.Plan) {
	switch down := slices.ContainsFunc(seen.State.OSDs, func(o plan.OSD) bool { return o.Down }); {
	case d.Drain.Domain != "":
		p.Wait = &kit.Wait{
			Reason: "Draining", Object: d.Drain.Domain, For: 15 * time.Second,
			Message: fmt.Sprintf("%s is being drained since %s; OSDs elsewhere may not be evicted: %s", d.Drain.Domain, d.Drain.Since.UTC().Format(time.RFC3339), d.Why),
		}
		if seen.Silence != "" {
			p.Wait.Message += " (" + seen.Silence + ")"
		}
	case down:
		p.Next = 30 * time.Second
	}
}

// off takes back all that was made, and the flag if it is ours.
func off(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	p := kit.Plan{}
	for _, name := range seen.Budgets {
		p.Delete = append(p.Delete, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cl.Namespace}})
	}
	drain := seen.State.Drain
	switch {
	case drain.NoOut && !seen.State.Answered:
		p.Wait = &kit.Wait{Reason: "MonsNotReady", Message: "the flag noout of " + drain.Domain + " is to be cleared: " + seen.Silence, For: 15 * time.Second}
	case drain.NoOut && seen.State.NoOut[drain.Domain]:
		p.Do = append(p.Do, NoOut{Bucket: drain.Domain})
	case seen.Noted:
		p.Delete = append(p.Delete, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: StateMap, Namespace: cl.Namespace}})
	}
	return p
}

// note keeps what the next pass has to know.
func note(cl *cephv1.CephCluster, seen Seen, d plan.Decision, p *kit.Plan) {
	data := map[string]string{keyDomain: "", keySince: "", keyNoOut: ""}
	if d.Drain.Domain != "" {
		data[keyDomain], data[keySince], data[keyNoOut] = d.Drain.Domain, d.Drain.Since.UTC().Format(time.RFC3339), strconv.FormatBool(d.Drain.NoOut)
	} else if !seen.Noted {
		return // nothing has ever been drained
	}
	p.Apply = append(p.Apply, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: StateMap, Namespace: cl.Namespace, OwnerReferences: []metav1.OwnerReference{pods.Owner(cl)}},
		Data:       data,
	})
}

// budgets applies the wanted ones before others are deleted, so that no OSD is without
// one in between. A pod with two cannot be evicted at all, which is safe.
func budgets(cl *cephv1.CephCluster, seen Seen, d plan.Decision, p *kit.Plan) {
	want := map[string]bool{}
	add := func(name string, max int, ids []int) {
		want[name] = true
		sel := &metav1.LabelSelector{MatchLabels: map[string]string{"app": App, "rook_cluster": cl.Namespace}}
		if ids != nil {
			values := make([]string, len(ids))
			for i, id := range ids {
				values[i] = strconv.Itoa(id)
			}
			sel.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: idLabel, Operator: metav1.LabelSelectorOpIn, Values: values}}
		}
		p.Apply = append(p.Apply, &policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: cl.Namespace, Labels: map[string]string{"app": App, "rook_cluster": cl.Namespace}, OwnerReferences: []metav1.OwnerReference{pods.Owner(cl)},
			},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: ptr.To(intstr.FromInt(max)), Selector: sel,
				// A pod that does not run serves no data; its node may go.
				UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
			},
		})
	}
	if d.MaxUnavailable > 0 {
		add(App, d.MaxUnavailable, nil)
	}
	for _, domain := range d.Domains() {
		add(Name(seen.Type, domain), 0, d.Blocked[domain])
	}
	for _, name := range seen.Budgets {
		if !want[name] {
			p.Delete = append(p.Delete, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cl.Namespace}})
		}
	}
}

// Name of the budget that protects a domain. CRUSH allows characters that an object's
// name does not.
func Name(kind, domain string) string {
	name := strings.ToLower(strings.ReplaceAll(domain, "_", "-"))
	if name != domain {
		name += "-" + naming.Hash(domain)[:6]
	}
	return naming.Fit(App+"-"+kind+"-%s", name, 253)
}

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	n, ok := action.(NoOut)
	if !ok {
		return fmt.Errorf("%s: no such action", action)
	}
	commander, err := c.Access.Ceph(ctx, cl.Namespace, action.String())
	if err != nil {
		return err
	}
	if n.On {
		return cephosd.New(commander).SetGroup(ctx, "noout", n.Bucket)
	}
	return cephosd.New(commander).UnsetGroup(ctx, "noout", n.Bucket)
}

// Teardown implements kit.Controller: budgets and note go with the CephCluster.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }
