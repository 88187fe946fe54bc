package ceph

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// shell is a ceph tool in the toolbox that is kept and asked several times: it is Python,
// and starting it takes longer than all that it is asked.
type shell struct {
	in     io.Writer
	lines  *bufio.Scanner
	cancel context.CancelFunc
	cmd    *exec.Cmd
	errOut bytes.Buffer
}

// shell starts one. It ends with ctx, or when it is closed.
func (l *Lab) shell(ctx context.Context) (*shell, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &shell{cancel: cancel}
	s.cmd = exec.CommandContext(ctx, l.Kubectl, "-n", Namespace, "exec", "-i", "deploy/rook-ceph-tools", "--", "env", "PYTHONUNBUFFERED=1", "ceph")
	s.cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	s.cmd.Stderr = &s.errOut
	in, err := s.cmd.StdinPipe()
	if err == nil {
		s.in = in
		var out io.Reader
		if out, err = s.cmd.StdoutPipe(); err == nil {
			s.lines = bufio.NewScanner(out)
			err = s.cmd.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("starting the ceph tool: %w", err)
	}
	return s, nil
}

// close ends the tool. A nil one has ended.
func (s *shell) close() {
	if s == nil {
		return
	}
	s.cancel()
	_ = s.cmd.Wait() // it was told to end: how it says so does not matter
}

// errUnclean says that not all PGs are active and clean.
var errUnclean = errors.New("not all PGs are active and clean")

// unclean is errUnclean while not all PGs are active and clean, and any other error if
// the tool does not say.
func (s *shell) unclean() (pgs int, err error) {
	if _, err := io.WriteString(s.in, "pg stat\n"); err != nil {
		return 0, fmt.Errorf("asking the ceph tool: %w", err)
	}
	late := time.AfterFunc(askTime, s.cancel)
	defer late.Stop()
	for s.lines.Scan() {
		if pgs, states, ok := pgStat(s.lines.Text()); ok {
			if len(states) != 1 || states["active+clean"] != pgs {
				return 0, fmt.Errorf("%w: %s", errUnclean, s.lines.Text())
			}
			return pgs, nil
		}
	}
	s.close()
	return 0, fmt.Errorf("the ceph tool ended: %s", strings.TrimSpace(s.errOut.String()))
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
