package replace

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// A goblin edits marks, labels and replicas between any two steps of the world: while the
// new disk is awaited and made, and from the request on.
func TestAGoblin(t *testing.T) {
	for seed := range 12 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bs := benches{}
			in, out := bs.goblin(seed)
			bs.play(t, two, bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), in, bs.swap(3), out, bs.done(3))
		})
	}
	for seed := range 6 {
		t.Run(fmt.Sprintf("%d from the request on", seed), func(t *testing.T) {
			t.Parallel()
			bs := benches{}
			in, out := bs.goblin(seed)
			in.Look = true
			bs.play(t, two, in, bs.replace(3), out, bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.swap(3), bs.done(3))
		})
	}
}

// goblin comes and goes.
func (bs benches) goblin(seed int) (in, out kittest.Act) {
	left, n := 25, seed
	in = bs.act("a goblin", func(_ context.Context, b *bench) error {
		b.goblin = func(ctx context.Context) {
			n = (n*1103515245 + 12345) & 0x7fffffff
			if left == 0 || n%3 != 0 {
				return
			}
			left--
			_ = b.change(ctx, 3, func(d *appsv1.Deployment) { mischief(d, (n/7)%7) })
		}
		return nil
	})
	out = bs.act("it goes", func(ctx context.Context, b *bench) error {
		b.goblin = nil
		return b.change(ctx, 3, func(d *appsv1.Deployment) {
			if d.Annotations[spec.ReplacedAnnotation] == "" && d.Annotations[spec.NoteAnnotation] == "" {
				one := int32(1)
				d.Spec.Replicas = &one // what it left behind outside of the replacement is the user's
			}
		})
	})
	return in, out
}

// mischief is one edit of a goblin.
func mischief(d *appsv1.Deployment, kind int) {
	switch kind {
	case 0:
		delete(d.Labels, "ceph.rook.io/do-not-reconcile")
	case 1:
		delete(d.Annotations, spec.InProgressAnnotation)
	case 2:
		delete(d.Annotations, spec.ReadyAnnotation)
	case 3:
		one := int32(1)
		d.Spec.Replicas = &one
	case 4:
		zero := int32(0)
		d.Spec.Replicas = &zero
	case 5:
		if _, ok := d.Annotations[spec.InProgressAnnotation]; ok {
			d.Annotations[spec.ReadyAnnotation] = "true"
		}
	case 6:
		d.Annotations["example.com/mine"] = "kept"
	}
}

// made says that the new OSD is there.
func (b *bench) made(ctx context.Context, id int) bool {
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	o, exists := m.Find(id)
	return exists && !o.Destroyed() && o.UUID != b.uuid[id]
}

// Without its note a replacement goes on from the marks and from what else is known: one new
// disk is enough, whenever the note goes.
func TestTheNoteIsTakenAway(t *testing.T) {
	take := func(ctx context.Context, b *bench) error {
		return b.change(ctx, 3, func(d *appsv1.Deployment) { delete(d.Annotations, spec.NoteAnnotation) })
	}
	hold := func(bs benches, on bool) kittest.Act {
		return bs.act(fmt.Sprintf("no recovery: %v", on), func(ctx context.Context, b *bench) error {
			if on {
				return cephosd.New(b.ceph).SetFlag(ctx, "norecover")
			}
			return cephosd.New(b.ceph).UnsetFlag(ctx, "norecover")
		})
	}
	for name, acts := range map[string]func(bs benches) []kittest.Act{
		"while it drains": func(bs benches) []kittest.Act {
			return []kittest.Act{hold(bs, true), bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, ""), bs.act("take it", take), hold(bs, false), bs.swap(3), bs.done(3)}
		},
		"while the disk is awaited": func(bs benches) []kittest.Act {
			return []kittest.Act{bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.act("take it", take), bs.swap(3), bs.done(3)}
		},
		"when the new disk is made": func(bs benches) []kittest.Act {
			return []kittest.Act{bs.replace(3), bs.look("take it then", func(_ context.Context, b *bench) error {
				b.goblin = func(ctx context.Context) {
					if !b.made(ctx, 3) {
						return
					}
					var d appsv1.Deployment
					if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(3)}, &d); err != nil || d.Annotations[spec.NoteAnnotation] == "" {
						b.say("the note was not there to be taken: %v, %v", d.Annotations, err)
					} else if err := take(ctx, b); err != nil {
						b.say("taking the note: %v", err)
					}
					b.goblin = nil
				}
				return nil
			}), bs.swap(3), bs.look("it was taken", func(_ context.Context, b *bench) error {
				if b.goblin != nil {
					return fmt.Errorf("the new disk was never seen")
				}
				return nil
			}), bs.done(3)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bs := benches{}
			bs.play(t, small, acts(bs)...)
		})
	}
}
