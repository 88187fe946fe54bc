package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// clock is a time that a test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) forward(d time.Duration) { c.t = c.t.Add(d) }
func newClock() *clock                   { return &clock{t: time.Unix(1000, 0)} }
func options(c *clock, tty bool) Options { return Options{Terminal: tty, Now: c.now} }
func lines(b *bytes.Buffer) []string {
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	c := newClock()
	p := New(&out, 12, options(c, false))
	a := p.Start("runc")
	c.forward(5 * time.Second)
	p.Tick() // too early for a line
	b := p.Start("Kubernetes")
	b.Note("package 7: k8s.io/api")
	c.forward(26 * time.Second)
	p.Tick() // runc has been quiet for 31 s
	p.Print("note")
	a.Done("11 MiB")
	c.forward(4 * time.Second)
	p.Tick() // Kubernetes for 30 s
	b.Failed()
	b.Done("twice") // only the first end counts
	want := []string{
		"[ 1/12] runc",
		"[ 2/12] Kubernetes",
		"[ 1/12] runc  31s",
		"note",
		"[ 1/12] runc: done in 31s, 11 MiB",
		"[ 2/12] Kubernetes  30s  package 7: k8s.io/api",
		"[ 2/12] Kubernetes: FAILED in 30s",
	}
	if diff := cmp.Diff(want, lines(&out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a plain output holds escape sequences")
	}
}

// screen applies what was written to a terminal and returns what it shows.
func screen(s string) []string {
	rows := []string{""}
	row := 0
	for len(s) > 0 {
		switch {
		case strings.HasPrefix(s, "\x1b["):
			i := strings.IndexAny(s, "AJ")
			if s[i] == 'J' {
				rows = append(rows[:row:row], "")
			} else {
				n := 0
				for _, d := range s[2:i] {
					n = n*10 + int(d-'0')
				}
				row -= n
			}
			s = s[i+1:]
		case s[0] == '\n':
			row++
			if row == len(rows) {
				rows = append(rows, "")
			}
			s = s[1:]
		case s[0] == '\r':
			s = s[1:]
		default:
			i := strings.IndexAny(s, "\x1b\n\r")
			if i < 0 {
				i = len(s)
			}
			rows[row] += s[:i]
			s = s[i:]
		}
	}
	return rows[:len(rows)-1]
}

func TestTerminalRedrawsInPlace(t *testing.T) {
	var out bytes.Buffer
	c := newClock()
	o := options(c, true)
	o.Width = func() int { return 30 }
	p := New(&out, 3, o)
	a := p.Start("one")
	b := p.Start("two")
	b.Note("something far too long for thirty columns")
	c.forward(2 * time.Second)
	p.Tick()
	p.Tick()
	want := []string{"[1/3] one  2.0s", "[2/3] two  2.0s  something f…"}
	want[1] = string([]rune(want[1])[:29])
	got := screen(out.String())
	if len(got) != 2 || got[0] != want[0] || len([]rune(got[1])) != 29 || !strings.HasSuffix(got[1], "…") {
		t.Errorf("the screen shows %q", got)
	}
	p.Print("hello")
	a.Done("")
	b.Note("")
	p.Tick()
	want = []string{"hello", "[1/3] one: done in 2.0s", "[2/3] two  2.0s"}
	if diff := cmp.Diff(want, screen(out.String())); diff != "" {
		t.Errorf("screen (-want +got):\n%s", diff)
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 1500 * time.Millisecond: "1.5s", 12 * time.Second: "12s",
		184 * time.Second: "3m04s", 62 * time.Minute: "1h02m",
	} {
		if got := Elapsed(d); got != want {
			t.Errorf("Elapsed(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 2048: "2 KiB", 160 << 20: "160 MiB", 3 << 29: "1.5 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %s, want %s", n, got, want)
		}
	}
}
