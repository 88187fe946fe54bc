// Package replay is a Commander that answers with recorded replies of a real
// Ceph from files, for tests of decoders. It knows no state; that is cephtest's.
package replay

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/castellan-storage/castellan/internal/ceph"
)

// Commander answers each prefix with a file's content, an error, or both.
type Commander struct {
	t testing.TB
	// Files are the replies by prefix.
	Files map[string]string
	// Errors are what is returned next to the reply, by prefix.
	Errors map[string]error

	mu   sync.Mutex
	sent []string
}

// New makes a Commander. A prefix without a file and without an error fails the
// test.
func New(t testing.TB, files map[string]string) *Commander {
	return &Commander{t: t, Files: files, Errors: map[string]error{}}
}

// Sent lists what was sent: the target and the JSON, without input.
func (c *Commander) Sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

func (c *Commander) do(to ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
	wire, err := cmd.Wire()
	if err != nil {
		return ceph.Reply{}, err
	}
	c.mu.Lock()
	c.sent = append(c.sent, string(to)+" "+string(wire))
	c.mu.Unlock()
	var r ceph.Reply
	file, ok := c.Files[cmd.Prefix]
	if ok {
		r.Out, err = os.ReadFile(file) //nolint:gosec // the test names the file
		if err != nil {
			c.t.Fatal(err)
		}
	}
	if err := c.Errors[cmd.Prefix]; err != nil || ok {
		return r, err
	}
	c.t.Fatalf("replay: no reply for %s to %s", cmd, to)
	return ceph.Reply{}, nil
}

// Mon answers from the files.
func (c *Commander) Mon(_ context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.do(ceph.ToMon, cmd)
}

// Mgr answers from the files.
func (c *Commander) Mgr(_ context.Context, cmd ceph.Command) (ceph.Reply, error) {
	return c.do(ceph.ToMgr, cmd)
}

// Tell answers from the files.
func (c *Commander) Tell(_ context.Context, daemon string, cmd ceph.Command) (ceph.Reply, error) {
	return c.do(ceph.Target(daemon), cmd)
}
