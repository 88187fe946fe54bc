package replace

import (
	"context"
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// A goblin edits marks, labels and replicas between any two steps of the world and any two
// effects of the operator, and takes notes and requests away: while the new disk is awaited
// and made, and from the request on.
func TestAGoblin(t *testing.T) {
	for _, c := range []struct {
		name string
		o    options
		// usual is how many seeds there are with each push, while the disk is awaited and
		// from the request on.
		usual [2]int
		// set is nil for osd.3 alone.
		set func(bs benches) goblinSet
	}{
		{name: "raw", o: two, usual: [2]int{6, 4}},
		{name: "encrypted", o: encrypted, usual: [2]int{1, 1}},
		{name: "on one disk", o: shared, usual: [2]int{1, 1}, set: onOneDisk},
		{name: "on one disk, encrypted", o: sealedShared, usual: [2]int{0, 1}, set: onOneDisk},
		{name: "on one metadata device", o: fast, usual: [2]int{1, 1}, set: onOneDevice},
		{name: "on one metadata device, encrypted", o: sealed, usual: [2]int{1, 0}, set: onOneDevice},
	} {
		one := func(bs benches) goblinSet {
			return goblinSet{note: bs.look("note", func(ctx context.Context, b *bench) error { b.note(ctx, 3); return nil }), ask: bs.replace(3),
				ready: bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), swap: bs.swap(3), done: bs.done(3)}
		}
		if c.set == nil {
			c.set = one
		}
		for seed := range kittest.Random(t, c.usual[0]) {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				t.Parallel()
				bs := benches{}
				in, out := bs.goblin(seed)
				s := c.set(bs)
				bs.play(t, c.o, bs.guard(true), s.note, s.ask, s.ready, in, s.swap, out, s.done)
			})
		}
		for seed := range kittest.Random(t, c.usual[1]) {
			t.Run(fmt.Sprintf("%s/%d from the request on", c.name, seed), func(t *testing.T) {
				t.Parallel()
				bs := benches{}
				in, out := bs.goblin(seed)
				in.Look = true
				s := c.set(bs)
				bs.play(t, c.o, bs.guard(true), s.note, in, s.ask, out, s.ready, s.swap, s.done)
			})
		}
	}
}

// goblinSet are the acts of a replacement that goblins disturb.
type goblinSet struct{ note, ask, ready, swap, done kittest.Act }

func onOneDisk(bs benches) goblinSet {
	return goblinSet{bs.noteSet(isBlock), bs.askAll(), bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isBlock), bs.allDone()}
}

func onOneDevice(bs benches) goblinSet {
	return goblinSet{bs.noteSet(isDB), bs.askMetadata(spec.MetadataConfirmation(0)), bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isDB), bs.allDone()}
}

// goblin comes and goes. It works on all OSDs that were noted, and what it has taken from one
// it gives back when it comes by again, or goes.
func (bs benches) goblin(seed int) (in, out kittest.Act) {
	left, n := 25, seed
	took := map[int]map[string]string{}
	in = bs.act("a goblin", func(_ context.Context, b *bench) error {
		ids := b.set()
		b.goblin = func(ctx context.Context) {
			n = (n*1103515245 + 12345) & 0x7fffffff
			if left == 0 || n%3 != 0 {
				return
			}
			left--
			id := ids[(n/63)%len(ids)]
			if b.made(ctx, id) {
				delete(took, id) // to ask for it now is to ask for another replacement
			}
			_ = b.change(ctx, id, func(d *appsv1.Deployment) {
				if gave := giveBack(d, took[id]); gave {
					delete(took, id)
					return
				}
				took[id] = trick(d, (n/7)%9)
			})
		}
		return nil
	})
	out = bs.act("it goes", func(ctx context.Context, b *bench) error {
		b.goblin = nil
		for _, id := range b.set() {
			if b.made(ctx, id) {
				delete(took, id)
			}
			err := b.change(ctx, id, func(d *appsv1.Deployment) {
				giveBack(d, took[id])
				if d.Annotations[spec.ReplacedAnnotation] == "" && d.Annotations[spec.NoteAnnotation] == "" {
					one := int32(1)
					d.Spec.Replicas = &one // what it left behind outside of the replacement is the user's
					if !spec.Replacing(d.Annotations) {
						delete(d.Labels, "ceph.rook.io/do-not-reconcile") // and so is the last of the marks, alone
					}
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return in, out
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

// giveBack puts back what a goblin has taken and nobody has written anew, unless the
// replacement has ended.
func giveBack(d *appsv1.Deployment, took map[string]string) (gave bool) {
	for k, v := range took {
		if d.Annotations[k] == "" && d.Annotations[spec.ReplacedAnnotation] == "" {
			d.Annotations[k], gave = v, true
		}
	}
	return gave
}

// trick is one edit of a goblin. It gives what it has taken and keeps.
func trick(d *appsv1.Deployment, kind int) map[string]string {
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
	case 7:
		return take(d, spec.ReplaceAnnotation, spec.MetadataAnnotation)
	case 8:
		return take(d, spec.NoteAnnotation)
	}
	return nil
}

func take(d *appsv1.Deployment, keys ...string) map[string]string {
	took := map[string]string{}
	for _, k := range keys {
		if v := d.Annotations[k]; v != "" {
			took[k] = v
		}
	}
	maps.DeleteFunc(d.Annotations, func(k, _ string) bool { return took[k] != "" })
	return took
}

// swapAnd swaps the disk of osd.3 and does something else before anybody has seen it.
func swapAnd(bs benches, f func(ctx context.Context, b *bench) error) kittest.Act {
	swap := bs.swap(3)
	return bs.act("swap the disk of 3, and take", func(ctx context.Context, b *bench) error {
		if err := swap.Do(ctx, &kittest.World{Data: b}); err != nil {
			return err
		}
		return f(ctx, b)
	})
}

// Without its note a replacement goes on from the marks and from what else is known: one new
// disk is enough, whenever the note goes. A node is not looked at for new OSDs while it cannot
// be told which slot is free: the new disk is osd.3's.
func TestTheNoteIsTakenAway(t *testing.T) {
	takeNote := func(ctx context.Context, b *bench) error {
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
			return []kittest.Act{hold(bs, true), bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, ""), bs.act("take it", takeNote), hold(bs, false), bs.swap(3), bs.done(3)}
		},
		"while the disk is awaited": func(bs benches) []kittest.Act {
			return []kittest.Act{bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), bs.act("take it", takeNote), bs.swap(3), bs.done(3)}
		},
		"when the new disk comes": func(bs benches) []kittest.Act {
			return []kittest.Act{bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), swapAnd(bs, takeNote), bs.done(3)}
		},
		"and all marks, when the new disk comes": func(bs benches) []kittest.Act {
			took := map[string]string{}
			return []kittest.Act{bs.replace(3), bs.is(3, cephv1.OSDReplacementReadyForSwap, ""), swapAnd(bs, func(ctx context.Context, b *bench) error {
				return b.change(ctx, 3, func(d *appsv1.Deployment) {
					maps.Copy(took, take(d, spec.NoteAnnotation, spec.ReadyAnnotation, spec.InProgressAnnotation))
				})
			}), bs.act("give them back", func(ctx context.Context, b *bench) error {
				if len(took) != 3 {
					return fmt.Errorf("the marks were %v", took)
				}
				if b.made(ctx, 3) {
					return fmt.Errorf("osd.3 was made again without its marks: %s", b.phase(ctx, 3))
				}
				return b.change(ctx, 3, func(d *appsv1.Deployment) { giveBack(d, took) })
			}), bs.done(3)}
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
					} else if err := takeNote(ctx, b); err != nil {
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
			bs.play(t, small, append([]kittest.Act{bs.guard(true)}, acts(bs)...)...)
		})
	}
}
