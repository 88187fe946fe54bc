// Package progress tells a person what a long command is doing: which step of
// how many, what it works at, for how long. On a terminal the running steps are
// redrawn in place; elsewhere each event is a line of its own, so that a log
// reads well.
//
// It must not decide anything: who builds calls it.
package progress

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// quiet is how long a step may run on a plain output without a line saying that
// it still does.
const quiet = 30 * time.Second

// redraw is how often a terminal is brought up to date.
const redraw = 250 * time.Millisecond

// Options of a Progress.
type Options struct {
	Terminal bool             // whether w understands cursor movement
	Width    func() int       // columns of the terminal; nil or a value under 20 means 80
	Now      func() time.Time // nil means time.Now
}

// Progress writes the state of a set of steps. Its methods may be called from
// several goroutines.
type Progress struct {
	mu      sync.Mutex
	w       io.Writer
	opt     Options
	total   int
	started int
	running []*Step
	drawn   int // lines on the terminal that the next redraw replaces
}

// Step is one thing that is being done.
type Step struct {
	p     *Progress
	n     int
	title string
	note  string
	begun time.Time
	told  time.Time // when a plain output last heard of the step
	ended bool
}

// New returns a Progress of total steps that writes to w.
func New(w io.Writer, total int, opt Options) *Progress {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Progress{w: w, opt: opt, total: total}
}

// Run redraws until ctx ends. Plain outputs need it too, for the lines that say
// that a long step still runs.
func (p *Progress) Run(ctx context.Context) {
	t := time.NewTicker(redraw)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			p.Tick()
		}
	}
}

// Tick brings the output up to date.
func (p *Progress) Tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opt.Terminal {
		p.draw()
		return
	}
	now := p.opt.Now()
	for _, s := range p.running {
		if now.Sub(s.told) >= quiet {
			s.told = now
			p.println(s.line(now))
		}
	}
}

// Start begins the next step.
func (p *Progress) Start(title string) *Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.opt.Now()
	p.started++
	s := &Step{p: p, n: p.started, title: title, begun: now, told: now}
	p.running = append(p.running, s)
	if p.opt.Terminal {
		p.draw()
	} else {
		p.println(fmt.Sprintf("%s %s", p.count(s.n), title))
	}
	return s
}

// Print writes a line of its own, above the running steps.
func (p *Progress) Print(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.println(line)
}

// Note says what the step works at now.
func (s *Step) Note(note string) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.note = strings.TrimSpace(note)
}

// Done ends the step; detail, when not empty, is what came of it.
func (s *Step) Done(detail string) { s.end("done", detail) }

// Failed ends the step.
func (s *Step) Failed() { s.end("FAILED", "") }

func (s *Step) end(verb, detail string) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	for i, r := range p.running {
		if r == s {
			p.running = append(p.running[:i], p.running[i+1:]...)
			break
		}
	}
	line := fmt.Sprintf("%s %s: %s in %s", p.count(s.n), s.title, verb, Elapsed(p.opt.Now().Sub(s.begun)))
	if detail != "" {
		line += ", " + detail
	}
	p.println(line)
}

func (p *Progress) count(n int) string {
	digits := len(fmt.Sprint(p.total))
	return fmt.Sprintf("[%*d/%d]", digits, n, p.total)
}

func (s *Step) line(now time.Time) string {
	l := fmt.Sprintf("%s %s  %s", s.p.count(s.n), s.title, Elapsed(now.Sub(s.begun)))
	if s.note != "" {
		l += "  " + s.note
	}
	return l
}

// println writes a lasting line. The caller holds the lock.
func (p *Progress) println(line string) {
	p.erase()
	_, _ = fmt.Fprintln(p.w, line) // nobody listening is no reason to stop
	if p.opt.Terminal {
		p.draw()
	}
}

// erase removes the redrawn lines. The caller holds the lock.
func (p *Progress) erase() {
	if p.drawn > 0 {
		_, _ = fmt.Fprintf(p.w, "\x1b[%dA\r\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// draw replaces the redrawn lines. The caller holds the lock.
func (p *Progress) draw() {
	p.erase()
	width := 80
	if p.opt.Width != nil {
		if w := p.opt.Width(); w >= 20 {
			width = w
		}
	}
	now := p.opt.Now()
	for _, s := range p.running {
		// One column is left free: a full line would wrap on some terminals and
		// the next redraw would count wrong.
		_, _ = fmt.Fprintln(p.w, clip(s.line(now), width-1))
		p.drawn++
	}
}

func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
}

// Elapsed writes a duration as a person says it: 0.4s, 12s, 3m04s, 1h02m.
func Elapsed(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// Bytes writes a size in the unit a person would choose.
func Bytes(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.0f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.0f MiB", float64(n)/unit/unit)
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/unit/unit/unit)
	}
}
