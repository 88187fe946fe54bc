package replace

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

// lie is what becomes of a command to Ceph.
type lie int

const (
	// honest: it is carried out and answered.
	honest lie = iota
	// hangs: it is not carried out, and its deadline passes.
	hangs
	// lost: it is carried out, and the answer does not come.
	lost
	// again: it is refused with EAGAIN and without JSON, as by a mgr that has just begun.
	again
	// garbled: it is carried out, and the answer ends in the midst.
	garbled
	// safe and unsafe are answers of safe-to-destroy, true or not.
	safe
	unsafe
)

// String names it as in the name of a subtest.
func (l lie) String() string {
	return [...]string{"honest", "hangs", "answer lost", "EAGAIN", "garbled", "safe", "unsafe"}[l]
}

// liar is the way of the operator to Ceph, on which the bench decides what goes wrong.
type liar struct {
	*cephtest.Cluster
	b *bench
}

// Mon implements ceph.Commander.
func (l liar) Mon(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return l.send(ctx, cmd, l.Cluster.Mon)
}

// Mgr implements ceph.Commander.
func (l liar) Mgr(ctx context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return l.send(ctx, cmd, l.Cluster.Mgr)
}

func (l liar) send(ctx context.Context, cmd ceph.Command, to func(context.Context, ceph.Command) (ceph.Reply, error)) (ceph.Reply, error) {
	if l.b.lie == nil {
		return to(ctx, cmd)
	}
	late := &ceph.UnreachableError{Prefix: cmd.Prefix, Err: context.DeadlineExceeded}
	switch l.b.lie(cmd) {
	case hangs:
		return ceph.Reply{}, late
	case lost:
		_, _ = to(ctx, cmd)
		return ceph.Reply{}, late
	case again:
		return ceph.Reply{}, &ceph.Error{Prefix: cmd.Prefix, Errno: syscall.EAGAIN}
	case garbled:
		r, err := to(ctx, cmd)
		r.Out = r.Out[:len(r.Out)/2]
		return r, err
	case safe:
		return verdict(cmd, "safe_to_destroy")
	case unsafe:
		return verdict(cmd, "active")
	}
	return to(ctx, cmd)
}

// verdict is an answer of safe-to-destroy that says the same of all that are asked about.
func verdict(cmd ceph.Command, as string) (ceph.Reply, error) {
	lists := map[string]string{"safe_to_destroy": "", "active": "", "missing_stats": "", "stored_pgs": ""}
	var ids []string
	for _, id := range idsOf(cmd) {
		ids = append(ids, fmt.Sprint(id))
	}
	lists[as] = strings.Join(ids, ",")
	return ceph.Reply{Out: []byte(fmt.Sprintf(`{"safe_to_destroy":[%s],"active":[%s],"missing_stats":[%s],"stored_pgs":[%s]}`,
		lists["safe_to_destroy"], lists["active"], lists["missing_stats"], lists["stored_pgs"]))}, nil
}

// spread calls f with each remainder of step that is to be tried: every request of a run
// that has this remainder goes wrong, so that all remainders are all requests.
func spread(t *testing.T, step, usual int, f func(t *testing.T, r int)) {
	t.Helper()
	every, pick := kittest.Sample(t, max(step/usual, 1), step)
	for r := 0; r < step; r += every {
		if pick == nil || pick(r) {
			t.Run(fmt.Sprintf("%02d", r), func(t *testing.T) { t.Parallel(); f(t, r) })
		}
	}
}

// replaced gives the end of a replacement of osd.3 that goes wrong as begin says.
func (bs benches) replaced(t *testing.T, o options, begin func(b *bench)) string {
	t.Helper()
	ask := bs.replace(3)
	res, err := kittest.Play(t, bs.scenario(o, bs.act("replace", func(ctx context.Context, b *bench) error {
		begin(b)
		return ask.Do(ctx, &kittest.World{Data: b})
	}), bs.swap(3), bs.act("all goes well again", func(_ context.Context, b *bench) error {
		b.fail, b.lie = nil, nil
		return nil
	}), bs.done(3)), 0, kittest.Before)
	if err != nil {
		t.Fatal(err)
	}
	return res.Digest
}

// same compares the end of a run with that of the run in which nothing goes wrong.
func same(t *testing.T, want, got string) {
	t.Helper()
	// Disks are numbered with the pods, and there may be fewer or more of these.
	serial := regexp.MustCompile(`SERIAL\d+`)
	want, got = serial.ReplaceAllString(want, "SERIAL"), serial.ReplaceAllString(got, "SERIAL")
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("the end differs from that without errors (-without +with):\n%s", d)
	}
}

// Each request to the API server fails once, in every way: the end is the same, and D1 to
// D6 hold on the way.
func TestErrorsOfTheAPIServer(t *testing.T) {
	bs := benches{}
	want := bs.replaced(t, small, func(*bench) {})
	for name, fault := range map[string]func(kind string) error{
		"conflict": func(kind string) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: kind}, "x", fmt.Errorf("later"))
		},
		"timeout": func(kind string) error { return apierrors.NewTimeoutError("the request timed out", 1) },
		"500":     func(string) error { return apierrors.NewInternalError(fmt.Errorf("etcd")) },
		"forbidden": func(kind string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "x", fmt.Errorf("no"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			const step = 41
			spread(t, step, 1, func(t *testing.T, r int) {
				n, failed := 0, 0
				same(t, want, bs.replaced(t, small, func(b *bench) {
					b.fail = func(_, kind string, _ types.NamespacedName) error {
						if n++; n%step != r || n > 4000 {
							return nil
						}
						failed++
						return fault(kind)
					}
				}))
				if failed == 0 {
					t.Error("no request failed")
				}
				t.Logf("FAULTS %s: %d of %d requests", t.Name(), failed, n)
			})
		})
	}
}

// Each command to Ceph goes wrong once, in every way.
func TestErrorsOfCeph(t *testing.T) {
	bs := benches{}
	for name, o := range map[string]options{"raw": small, "encrypted": encrypted} {
		t.Run(name, func(t *testing.T) {
			want := bs.replaced(t, o, func(*bench) {})
			for _, l := range []lie{hangs, lost, again, garbled} {
				t.Run(l.String(), func(t *testing.T) {
					const step = 23
					spread(t, step, 1, func(t *testing.T, r int) {
						n, wrong := 0, 0
						same(t, want, bs.replaced(t, o, func(b *bench) {
							b.lie = func(ceph.Command) lie {
								if n++; n%step != r || n > 2000 {
									return honest
								}
								wrong++
								return l
							}
						}))
						if wrong == 0 {
							t.Error("no command went wrong")
						}
						t.Logf("FAULTS %s: %d of %d commands", t.Name(), wrong, n)
					})
				})
			}
		})
	}
}

// What safe-to-destroy says is wrong once, at each time that it is asked: true while no
// data can move, so that nothing may be destroyed.
func TestSafeNowAndNotSafeNext(t *testing.T) {
	bs := benches{}
	for _, c := range []struct {
		name string
		lie  func(nth int) lie
	}{
		{"the first", func(n int) lie { return map[bool]lie{true: safe}[n == 1] }},
		{"the second", func(n int) lie { return map[bool]lie{true: safe}[n == 2] }},
		{"the fifth", func(n int) lie { return map[bool]lie{true: safe}[n == 5] }},
		{"every second", func(n int) lie { return map[bool]lie{true: safe}[n%2 == 0] }},
		{"every third", func(n int) lie { return map[bool]lie{true: safe}[n%3 == 0] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, lies := 0, 0
			bs.play(t, two, bs.act("hold the recovery", func(ctx context.Context, b *bench) error {
				b.lie = func(cmd ceph.Command) lie {
					if cmd.Prefix != "osd safe-to-destroy" {
						return honest
					}
					n++
					l := c.lie(n)
					if l == honest || lies == 40 { // what Ceph says is shown: without an end the status would never rest
						return honest
					}
					lies++
					return l
				}
				return cephosd.New(b.ceph).SetFlag(ctx, "norecover")
			}), bs.replace(3), bs.is(3, cephv1.OSDReplacementDraining, ""), bs.act("still there", func(ctx context.Context, b *bench) error {
				m, err := cephosd.New(b.ceph).Dump(ctx)
				if err != nil {
					return err
				}
				if o, _ := m.Find(3); o.UUID != b.uuid[3] || o.Destroyed() {
					return fmt.Errorf("osd.3 is destroyed: %+v", o)
				}
				b.lie = nil
				return cephosd.New(b.ceph).UnsetFlag(ctx, "norecover")
			}), bs.swap(3), bs.done(3))
			if lies == 0 {
				t.Error("nobody lied")
			}
		})
	}
}

// And it is denied, now and then, though it is true: that costs time and nothing else.
func TestNotSafeNowAndThen(t *testing.T) {
	bs := benches{}
	want := bs.replaced(t, small, func(*bench) {})
	for _, every := range []int{2, 3} {
		n, lies := 0, 0
		same(t, want, bs.replaced(t, small, func(b *bench) {
			b.lie = func(cmd ceph.Command) lie {
				if cmd.Prefix != "osd safe-to-destroy" {
					return honest
				}
				if n++; n%every != 0 {
					return honest
				}
				lies++
				return unsafe
			}
		}))
		if lies == 0 {
			t.Error("nobody lied")
		}
	}
}
