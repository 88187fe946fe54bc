//go:build cgo

package conn

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"

	"github.com/ceph/go-ceph/rados"

	"github.com/castellan-storage/castellan/internal/ceph"
)

type radosHandle struct{ c *rados.Conn }

func dialRados(cfg Config, unbounded bool) (handle, error) {
	c, err := rados.NewConnWithClusterAndUser("ceph", cfg.User)
	if err != nil {
		return nil, fmt.Errorf("making a librados handle for %s: %w", cfg.User, err)
	}
	connect, op := cfg.connectTimeout(), cfg.OpTimeout
	if op <= 0 {
		op = DefaultOpTimeout
	}
	if unbounded {
		op = 0
	}
	seconds := func(d float64) string { return strconv.Itoa(int(math.Ceil(d))) }
	opts := [][2]string{
		{"mon_host", cfg.MonHost},
		{"client_mount_timeout", seconds(connect.Seconds())},
		{"rados_mon_op_timeout", seconds(op.Seconds())},
		{"rados_osd_op_timeout", seconds(op.Seconds())},
		// Nothing of this process' surroundings counts.
		{"keyring", "/dev/null"},
		{"admin_socket", ""},
		{"log_file", ""},
		{"log_to_file", "false"},
		{"log_to_stderr", "false"},
		{"err_to_stderr", "false"},
		// Mons that do not answer are tried anew after this time in seconds, not after
		// longer and longer ones: a connection made while mons start is there when they are.
		{"mon_client_hunt_interval", "0.5"},
		{"mon_client_hunt_interval_backoff", "1"},
		// One command at a time over one connection needs no crowd of threads.
		{"ms_async_op_threads", "1"},
	}
	for k, v := range cfg.Options {
		opts = append(opts, [2]string{k, v})
	}
	for _, o := range opts {
		if err := c.SetConfigOption(o[0], o[1]); err != nil {
			return nil, fmt.Errorf("setting option %s: %w", o[0], err)
		}
	}
	if err := c.SetConfigOption("key", cfg.Key.Reveal()); err != nil {
		return nil, fmt.Errorf("setting the key of %s: %w", cfg.User, err)
	}
	// A handle that does not connect is freed by go-ceph's finalizer.
	if err := c.Connect(); err != nil {
		return nil, fmt.Errorf("connecting to %s as %s: %w", cfg.MonHost, cfg.User, err)
	}
	return radosHandle{c}, nil
}

func (h radosHandle) fsid() (string, error) { return h.c.GetFSID() }

func (h radosHandle) close() { h.c.Shutdown() }

func (h radosHandle) command(to ceph.Target, wire, in []byte) ([]byte, string, syscall.Errno, error) {
	var (
		out    []byte
		status string
		err    error
	)
	kind, id, _ := strings.Cut(string(to), ".")
	switch {
	case to == ceph.ToMon:
		out, status, err = h.c.MonCommandWithInputBuffer(wire, in)
	case to == ceph.ToMgr:
		out, status, err = h.c.MgrCommandWithInputBuffer([][]byte{wire}, in)
	case kind == "mon":
		out, status, err = h.c.MonCommandTargetWithInputBuffer(id, [][]byte{wire}, in)
	case kind == "osd":
		n, perr := strconv.Atoi(id)
		if perr != nil {
			return nil, "", 0, fmt.Errorf("%q is no OSD", to)
		}
		out, status, err = h.c.OsdCommandWithInputBuffer(n, [][]byte{wire}, in)
	default:
		return nil, "", 0, fmt.Errorf("librados cannot address %q", to)
	}
	errno, err := errnoOf(err)
	return out, status, errno, err
}

// errnoOf takes the errno out of a go-ceph error, which carries it negative.
func errnoOf(err error) (syscall.Errno, error) {
	if err == nil {
		return 0, nil
	}
	var code interface{ ErrorCode() int }
	if errors.As(err, &code) && code.ErrorCode() != 0 {
		n := code.ErrorCode()
		return syscall.Errno(max(n, -n)), nil
	}
	return 0, err
}

func (h radosHandle) object(op objectOp) (objectReply, error) {
	io, err := h.c.OpenIOContext(op.at.Pool)
	if err != nil {
		errno, err := errnoOf(err)
		return objectReply{errno: errno}, err
	}
	defer io.Destroy()
	io.SetNamespace(op.at.Namespace)
	var r objectReply
	switch op.kind {
	case objRead:
		var st rados.ObjectStat
		if st, err = io.Stat(op.at.Name); err != nil {
			break
		}
		if st.Size > uint64(max(op.max, 0)) {
			return objectReply{errno: syscall.EFBIG}, nil
		}
		if st.Size == 0 {
			r.data = []byte{}
			break
		}
		buf := make([]byte, st.Size)
		var n int
		n, err = io.Read(op.at.Name, buf, 0)
		r.data = buf[:max(n, 0)]
	case objWrite:
		err = io.WriteFull(op.at.Name, op.data)
	case objRemove:
		err = io.Delete(op.at.Name)
	case objOmap:
		const atOnce = 512
		r.kv, err = io.GetAllOmapValues(op.at.Name, "", "", atOnce)
	case objSetOmap:
		err = io.SetOmap(op.at.Name, op.kv)
	}
	if err != nil {
		errno, err := errnoOf(err)
		return objectReply{errno: errno}, err
	}
	return r, nil
}
