package ceph

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// shell is a ceph tool in the toolbox that is kept and asked several times: it is Python,
// and starting it takes longer than all that it is asked.
type shell struct {
	in     io.WriteCloser
	lines  *bufio.Scanner
	cancel context.CancelFunc
	ended  chan struct{}
	errOut bytes.Buffer // what it has said last, once it has ended
}

// start starts a tool. It ends with ctx, or when it is closed.
func (l *Lab) start(ctx context.Context) *shell {
	ctx, cancel := context.WithCancel(ctx)
	in, toTool := io.Pipe()
	fromTool, out := io.Pipe()
	s := &shell{in: toTool, lines: bufio.NewScanner(fromTool), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		err := l.Exec(ctx, in, out, &s.errOut, "env", "PYTHONUNBUFFERED=1", "ceph")
		if err == nil {
			err = io.EOF
		}
		_, _ = out.CloseWithError(err), in.CloseWithError(err)
	}()
	return s
}

// close ends the tool. A nil one has ended.
func (s *shell) close() {
	if s == nil {
		return
	}
	s.cancel()
	_ = s.in.Close()
	<-s.ended
}

// errUnclean says that not all PGs are active and clean.
var errUnclean = errors.New("not all PGs are active and clean")

// say gives the tool lines to carry out.
func (s *shell) say(lines ...string) error {
	if _, err := io.WriteString(s.in, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("asking the ceph tool: %w", err)
	}
	return nil
}

// unclean is errUnclean while not all PGs are active and clean, and any other error if
// the tool does not say.
func (s *shell) unclean() (pgs int, err error) {
	late := time.AfterFunc(askTime, s.cancel)
	defer late.Stop()
	if err := s.say("pg stat"); err != nil {
		return 0, err
	}
	for s.lines.Scan() {
		if pgs, states, ok := pgStat(s.lines.Text()); ok {
			if len(states) != 1 || states["active+clean"] != pgs {
				return 0, fmt.Errorf("%w: %s", errUnclean, s.lines.Text())
			}
			return pgs, nil
		}
	}
	return 0, s.why()
}

// why says with what the tool has ended.
func (s *shell) why() error {
	s.close()
	err := s.lines.Err()
	if err == nil {
		err = io.EOF
	}
	return fmt.Errorf("the ceph tool ended: %w: %s", err, strings.TrimSpace(s.errOut.String()))
}

// kept gives the tool that is kept, starting it if none is.
func (l *Lab) kept(ctx context.Context) *shell {
	if l.tool == nil {
		l.tool = l.start(ctx)
	}
	return l.tool
}

// drop ends the tool that is kept.
func (l *Lab) drop() {
	l.tool.close()
	l.tool = nil
}

// unclean asks the tool that is kept whether all PGs are active and clean: errUnclean
// while they are not, another error if it does not say.
func (l *Lab) unclean(ctx context.Context) (pgs int, err error) {
	if pgs, err = l.kept(ctx).unclean(); err != nil && !errors.Is(err, errUnclean) {
		l.drop()
	}
	return pgs, err
}

// tell has the tool that is kept carry commands out, one after another, and returns when
// they are.
func (l *Lab) tell(ctx context.Context, commands ...string) error {
	if err := l.kept(ctx).say(commands...); err != nil {
		l.drop()
		return err
	}
	// It does one after another: with this answer the others are done.
	if _, err := l.unclean(ctx); err != nil && !errors.Is(err, errUnclean) {
		return err
	}
	return nil
}

// last is what the tool that is kept prints for commands. The tool is dropped then: that
// it ends by itself would take seconds.
func (l *Lab) last(ctx context.Context, commands ...string) (string, error) {
	s := l.kept(ctx)
	defer l.drop()
	late := time.AfterFunc(askTime, s.cancel)
	defer late.Stop()
	// With the answer to this one, those of the others are there.
	if err := s.say(append(commands, "pg stat")...); err != nil {
		return "", err
	}
	var out strings.Builder
	for s.lines.Scan() {
		if _, _, ok := pgStat(s.lines.Text()); ok {
			return out.String(), nil
		}
		_, _ = fmt.Fprintln(&out, s.lines.Text())
	}
	return "", s.why()
}

// statLine is the answer of `pg stat`: "9 pgs: 1 peering, 8 active+clean; 577 KiB data".
var statLine = regexp.MustCompile(`(\d+) pgs: ([^;]*);`)

// pgStat reads a line of the tool, if it is that answer: how many PGs there are, and how
// many in each state.
func pgStat(line string) (pgs int, states map[string]int, ok bool) {
	m := statLine.FindStringSubmatch(line)
	if m == nil {
		return 0, nil, false
	}
	pgs, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, nil, false
	}
	states = map[string]int{}
	for part := range strings.SplitSeq(m[2], ",") {
		count, state, _ := strings.Cut(strings.TrimSpace(part), " ")
		if n, err := strconv.Atoi(count); err == nil {
			states[state] = n
		}
	}
	return pgs, states, true
}
