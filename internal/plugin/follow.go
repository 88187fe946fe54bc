package plugin

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// silence is how long the operator may take to notice a request before the user is
// told that it may not run.
const silence = 15 * time.Second

// Verdict is what one look at a replacement says.
type Verdict struct {
	// Phase that the replacement was seen in last; "" before the first.
	Phase cephv1.OSDReplacementPhase
	// Line tells a person where it is; it changes with time. Key is the same as long as
	// nothing has happened.
	Line, Key string
	// Done says that there is nothing to follow any more; Err that it is not what was
	// asked for.
	Done bool
	Err  error
}

// Judge says where a replacement is. last is the phase seen before, begun is when the
// user began to look.
func Judge(o OSD, last cephv1.OSDReplacementPhase, begun, now time.Time) Verdict {
	name := fmt.Sprintf("osd.%d", o.ID)
	switch {
	case o.phase() == cephv1.OSDReplacementRefused:
		return Verdict{Phase: o.phase(), Done: true, Err: fmt.Errorf("%s: the request does not hold: %s; take it back with kubectl castellan osd replace cancel %d", name, o.Replacement.WaitingFor, o.ID)}
	case o.Replacement != nil:
		return judged(o.phase(), Line(*o.Replacement, now), strings.Join([]string{string(o.phase()), o.Replacement.Progress, o.Replacement.WaitingFor}, "|"))
	case o.Deployment == nil && last == cephv1.OSDReplacementAbandoning:
		return Verdict{Phase: last, Done: true, Line: name + ": its slot is given up"}
	case o.Deployment == nil && last == "":
		return Verdict{Done: true, Err: fmt.Errorf("%s: it has no Deployment", name)}
	case o.Deployment == nil:
		return judged(last, name+"  its Deployment is being made anew", "anew")
	case o.requested() || spec.Replacing(o.Deployment.Annotations):
		line := name + "  waiting for the operator"
		if waited := now.Sub(begun); waited > silence && last == "" {
			line += fmt.Sprintf(" for %s; does it run? kubectl -n %s get pods -l app=rook-ceph-operator", duration.HumanDuration(waited.Round(time.Second)), o.Deployment.Namespace)
		}
		return judged(last, line, "operator")
	case o.marked(spec.ReplacedAnnotation) || last != "" && o.Deployment.Status.AvailableReplicas == 0:
		return judged(last, name+"  starting", "starting")
	}
	return ended(name, last)
}

func judged(phase cephv1.OSDReplacementPhase, line, key string) Verdict {
	return Verdict{Phase: phase, Line: line, Key: key}
}

// ended says how a replacement ended, of which nothing is left to see.
func ended(name string, last cephv1.OSDReplacementPhase) Verdict {
	v := Verdict{Phase: last, Done: true}
	switch last {
	case cephv1.OSDReplacementReadyForSwap, cephv1.OSDReplacementProvisioning:
		v.Line = name + ": replaced, and running on its new disk"
	case cephv1.OSDReplacementCancelling:
		v.Line = name + ": cancelled, and running as before"
	case "":
		v.Line = name + ": it is not being replaced"
	default:
		v.Line = name + ": the request was taken back"
	}
	return v
}

// Line is one replacement on one line.
func Line(r cephv1.OSDReplacement, now time.Time) string {
	parts := []string{fmt.Sprintf("osd.%d", r.ID), string(r.Phase)}
	if r.Progress != "" {
		parts = append(parts, r.Progress)
	}
	if !r.Since.IsZero() {
		parts = append(parts, "for "+duration.HumanDuration(now.Sub(r.Since.Time)))
	}
	if r.WaitingFor != "" {
		parts = append(parts, r.WaitingFor)
	}
	return strings.Join(parts, "  ")
}

// screen writes lines: on a terminal each takes the place of the last one, elsewhere
// only what is new is written.
type screen struct {
	out      io.Writer
	terminal bool
	width    int
	key      string
	open     bool
}

// show writes where things are.
func (s *screen) show(v Verdict) error {
	if !s.terminal {
		if v.Key == s.key {
			return nil
		}
		s.key = v.Key
		_, err := fmt.Fprintln(s.out, v.Line)
		return err
	}
	text := v.Line
	if r := []rune(text); s.width > 1 && len(r) >= s.width {
		text = string(r[:s.width-2]) + "…"
	}
	s.open = true
	_, err := fmt.Fprint(s.out, "\r\x1b[K"+text)
	return err
}

// end writes the last line.
func (s *screen) end(line string) error {
	if s.open {
		if _, err := fmt.Fprint(s.out, "\r\x1b[K"); err != nil {
			return err
		}
		s.open = false
	}
	if line == "" {
		return nil
	}
	_, err := fmt.Fprintln(s.out, line)
	return err
}
