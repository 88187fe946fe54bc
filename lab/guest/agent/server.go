package agent

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Host is what the server needs from the system that it runs in, apart from
// running programs and writing files.
type Host interface {
	Info() (Info, error)
	Disks(holders bool) ([]Disk, error)
	CutHolders(ctx context.Context, disk string) error
	// PowerOff does not return when it succeeds.
	PowerOff() error
}

// Server answers the requests of clients that know the token.
type Server struct {
	token string
	env   []string
	host  Host
}

// NewServer returns a server whose commands get env as their environment.
func NewServer(token string, env []string, host Host) *Server {
	return &Server{token: token, env: env, host: host}
}

// lingering is how long a command's output is still carried after it has
// ended: a daemon that it left behind may hold the pipes open for ever.
const lingering = 2 * time.Second

// requestWait bounds how long a connection may stay silent before its
// request; a port scan must not pile up goroutines.
const requestWait = 30 * time.Second

// Serve answers connections until ctx ends or the listener fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("accepting connections: %w", err)
		}
		running.Go(func() { s.ServeConn(ctx, conn) })
	}
}

// ServeConn answers the one request of conn and closes it.
func (s *Server) ServeConn(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = conn.Close() }()
	f := &framed{conn: conn}
	_ = conn.SetReadDeadline(time.Now().Add(requestWait))
	t, p, err := f.read()
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	var req request
	if t != frameRequest || json.Unmarshal(p, &req) != nil {
		_ = f.writeJSON(frameReply, reply{Error: "the first frame is not a request"})
		return
	}
	// The peer is gone if the reply cannot be written: nothing left to do.
	_ = f.writeJSON(frameReply, s.answer(ctx, cancel, f, req))
}

func (s *Server) answer(ctx context.Context, cancel context.CancelFunc, f *framed, req request) reply {
	switch {
	case subtle.ConstantTimeCompare([]byte(req.Token), []byte(s.token)) != 1:
		return reply{Error: tokenMismatch}
	case req.Version != protocolVersion:
		return reply{Error: fmt.Sprintf("the client speaks version %d of the protocol, this agent %d: "+
			"take the guest down and up again", req.Version, protocolVersion)}
	}
	input := readInput(f, cancel)
	var rep reply
	var err error
	switch req.Op {
	case opExec:
		rep.Exit, err = s.exec(ctx, f, req, input)
	case opPut:
		err = put(req.Path, fs.FileMode(req.Mode), input)
	case opGet:
		err = get(req.Path, streamWriter{f, frameStdout})
	case opInfo:
		rep.Value, err = asJSON(s.host.Info())
	case opDisks:
		rep.Value, err = asJSON(s.host.Disks(req.Holders))
	case opCutHolders:
		err = s.host.CutHolders(ctx, req.Path)
	case opPowerOff:
		// The reply has to leave before the machine does.
		_ = f.writeJSON(frameReply, reply{})
		err = s.host.PowerOff()
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	if err != nil {
		rep.Error = err.Error()
	}
	return rep
}

func asJSON[T any](v T, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// errClientGone ends an input whose client left before its end.
var errClientGone = errors.New("the client closed the connection")

// readInput gives the client's input as a reader and goes on listening after
// its end: when the client leaves, cancel is called.
func readInput(f *framed, cancel context.CancelFunc) *io.PipeReader {
	r, w := io.Pipe()
	go func() {
		defer cancel()
		for {
			t, p, err := f.read()
			switch {
			case err != nil:
				w.CloseWithError(errClientGone)
				return
			case t == frameStdin:
				// A command that ended or closed its input takes no more:
				// what still comes is dropped.
				_, _ = w.Write(p)
			case t == frameStdinClose:
				_ = w.Close()
			default:
				w.CloseWithError(fmt.Errorf("frame of unexpected type %d", t))
				return
			}
		}
	}()
	return r
}

// exec runs a command to its end, or kills it when the client has left.
func (s *Server) exec(ctx context.Context, f *framed, req request, input *io.PipeReader) (*Exit, error) {
	defer func() { _ = input.Close() }()
	if len(req.Argv) == 0 {
		return nil, errors.New("no command given")
	}
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...) // running what it is told is the agent's purpose; no shell is involved
	cmd.Env = append(append([]string{}, s.env...), req.Env...)
	cmd.Dir = req.Dir
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Stdout = streamWriter{f, frameStdout}
	cmd.Stderr = streamWriter{f, frameStderr}
	// Its own process group, so that its children are killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lingering
	// Not cmd.Stdin: Wait would wait for the client to end its input even
	// after the command has ended.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.Copy(stdin, input)
		_ = stdin.Close()
		// Keep the reader of frames going, it watches for the client.
		_, _ = io.Copy(io.Discard, input)
	}()
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return nil, err
	}
	return exitOf(cmd.ProcessState), nil
}

func exitOf(state *os.ProcessState) *Exit {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return &Exit{Code: 128 + int(ws.Signal()), Signal: unix.SignalName(ws.Signal())}
	}
	return &Exit{Code: state.ExitCode()}
}

// put writes a file by way of a temporary one beside it, so that a lost
// connection leaves the old content.
func put(path string, perm fs.FileMode, r io.Reader) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".put-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if _, err := io.Copy(tmp, r); err != nil {
		_ = tmp.Close()
		return err
	}
	if err := errors.Join(tmp.Chmod(perm), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func get(path string, w io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if st.IsDir() {
		return fmt.Errorf("%s is a directory", path)
	}
	_, err = io.Copy(w, file)
	return err
}
