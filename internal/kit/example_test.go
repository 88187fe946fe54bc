package kit_test

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
)

// quotas stands for Ceph: what the controller changes outside Kubernetes.
type quotas map[string]int

// quotaState is all that a plan needs to know.
type quotaState struct {
	Have   int
	There  bool
	InUse  bool
	Target *corev1.ConfigMap
}

// setQuota is an action: a value that a test can compare and a dry run print.
type setQuota struct {
	Name  string
	Bytes int
}

func (a setQuota) String() string {
	return fmt.Sprintf("setting the quota of %s to %d", a.Name, a.Bytes)
}

// unused is a check: a live read that must hold right before an effect.
type unused struct{ Name string }

func (c unused) String() string { return c.Name + " is not in use" }

// quotaController keeps the quota that a ConfigMap asks for. The driving object is the
// ConfigMap, so as to need no kind of its own here.
type quotaController struct {
	reader client.Reader
	quotas quotas
}

func (c *quotaController) New() *corev1.ConfigMap { return &corev1.ConfigMap{} }

// Observe makes every read. A failed one is an error, never "absent".
func (c *quotaController) Observe(ctx context.Context, obj *corev1.ConfigMap) (quotaState, error) {
	var s quotaState
	s.Have, s.There = c.quotas[obj.Name]
	target, err := kube.Lookup[corev1.ConfigMap](ctx, c.reader, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Name + "-client"})
	if err != nil {
		return s, err
	}
	s.Target = target
	return s, nil
}

// Plan is pure: from values to values.
func (c *quotaController) Plan(obj *corev1.ConfigMap, seen quotaState) kit.Plan {
	want, err := strconv.Atoi(obj.Data["bytes"])
	if err != nil {
		return kit.Plan{Err: kit.Terminal("data.bytes", "%q is not a number", obj.Data["bytes"])}
	}
	plan := kit.Plan{Apply: []kit.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name + "-client"},
		Data:       map[string]string{"quota": obj.Data["bytes"]},
	}}}
	if !seen.There || seen.Have < want {
		plan.Do = append(plan.Do, setQuota{obj.Name, want})
	} else if seen.Have > want {
		plan.Do = append(plan.Do, kit.Confirmed{Check: unused{obj.Name}, Then: setQuota{obj.Name, want}})
	}
	return plan
}

// Teardown is the plan of an object that is being deleted; when it has nothing left
// to do, the finalizer goes.
func (c *quotaController) Teardown(obj *corev1.ConfigMap, seen quotaState) kit.Plan {
	plan := kit.Plan{Delete: []kit.Object{&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name + "-client"},
	}}}
	if seen.Have > 0 {
		plan.Do = append(plan.Do, setQuota{obj.Name, 0})
	}
	return plan
}

// Do carries out the actions: one mutation each.
func (c *quotaController) Do(_ context.Context, _ *corev1.ConfigMap, action kit.Action) error {
	switch a := action.(type) {
	case setQuota:
		c.quotas[a.Name] = a.Bytes
		return nil
	}
	return fmt.Errorf("unknown action %T", action)
}

// Confirm makes the read that must hold at the moment of the effect.
func (c *quotaController) Confirm(_ context.Context, obj *corev1.ConfigMap, _ kit.Check) (*kit.Wait, error) {
	if c.quotas[obj.Name] > 1000 {
		return &kit.Wait{Reason: "QuotaInUse", Message: obj.Name + " is in use", Blocked: true}, nil
	}
	return nil, nil
}

// quotaOptions says the rest as data.
func quotaOptions() kit.Options {
	return kit.Options{
		Name:      "quota",
		Finalizer: "quota.example.castellan.io",
		Watches:   []kit.Watch{{Object: &corev1.ConfigMap{}, Map: kube.ToLabel("quota")}},
		// A ConfigMap has no status to write conditions to.
		Report: kit.Report{None: true},
	}
}

// registerQuota adds the controller to the operator.
func registerQuota(mgr ctrl.Manager, env kit.Env) error {
	return kit.Register(mgr, env, kit.Controller[*corev1.ConfigMap, quotaState](&quotaController{reader: env.Client, quotas: quotas{}}), quotaOptions())
}

// Example shows a whole controller, and what it would do and does in two passes.
func Example() {
	_ = registerQuota

	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	store, err := kittest.NewStore(scheme, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"},
		Data:       map[string]string{"bytes": "500"},
	})
	if err != nil {
		panic(err)
	}
	ctl := &quotaController{reader: store.Client(), quotas: quotas{}}
	r := kit.NewReconciler(kit.Controller[*corev1.ConfigMap, quotaState](ctl), kit.Env{Client: store.Client()}, quotaOptions())

	effects, _, err := r.Explain(context.Background(), kit.Key{Namespace: "ns", Name: "pool"})
	if err != nil {
		panic(err)
	}
	for _, e := range effects {
		fmt.Println("would be", e.What)
	}
	for range 2 {
		res, err := r.Reconcile(context.Background(), ctrl.Request{NamespacedName: kit.Key{Namespace: "ns", Name: "pool"}})
		fmt.Println("quota", ctl.quotas["pool"], "again", res.RequeueAfter > 0, err)
	}
	// Output:
	// would be adding the finalizer
	// would be applying ConfigMap ns/pool-client
	// would be setting the quota of pool to 500
	// quota 500 again true <nil>
	// quota 500 again false <nil>
}
