package confirm

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// The pods of an OSD are those with its id, whatever label somebody has given its
// Deployment between the plan and the step.
func TestPodsAreThoseOfTheOSDAndNotOfALabel(t *testing.T) {
	for name, label := range map[string]string{"its own": "0", "another's": "9", "none": ""} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: spec.Name(0), Labels: map[string]string{"app": spec.App}}}
			if label != "" {
				d.Labels[spec.IDLabel] = label
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rook-ceph-osd-0-x", Labels: map[string]string{spec.IDLabel: "0"}}}
			scheme := runtime.NewScheme()
			if err := clientgoscheme.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			store, err := kittest.NewStore(scheme, d, pod)
			if err != nil {
				t.Fatal(err)
			}
			c := Checker{Access: access.Reader{Live: store.Client()}}
			w, err := c.noPods(t.Context(), Still{For: plan.Show, ID: 0, Namespace: "ns", Name: d.Name}, d)
			if err != nil || w == nil || !strings.Contains(w.Message, pod.Name) {
				t.Errorf("%+v, %v", w, err)
			}
		})
	}
}
