// Package agent is the channel between the machine and a storage guest: one
// TCP connection per request, a length-framed stream in both directions, so
// that standard output, standard error and the exit code of a command arrive
// apart, standard input can be fed, files can be copied, and any number of
// requests run side by side. Server runs in the guest, Client outside.
//
// It must not know how a guest is booted, where it is reached (Client is
// given a dial function), or what is run in it; and it never interprets a
// command through a shell.
package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Port is the TCP port on which the agent listens in the guest. It is free
// for the choice; Ceph uses 3300 and 6789-7568.
const Port = 7411

// protocolVersion changes whenever an old agent could misread a new client.
const protocolVersion = 1

// maxFrame bounds one frame's payload, so that a broken peer cannot make the
// other side allocate without limit. Larger streams are cut into frames.
const maxFrame = 1 << 20

// chunk is how much of a stream goes into one frame.
const chunk = 64 << 10

// frameType says what a frame carries.
type frameType byte

const (
	frameRequest    frameType = 1 // JSON request, first frame of every connection
	frameStdin      frameType = 2 // bytes for the command's standard input, or of an uploaded file
	frameStdinClose frameType = 3 // end of that input
	frameStdout     frameType = 4 // bytes of standard output, or of a downloaded file
	frameStderr     frameType = 5 // bytes of standard error
	frameReply      frameType = 6 // JSON reply, last frame of every connection
)

// Operations of a request.
const (
	opExec        = "exec"
	opPut         = "put"
	opGet         = "get"
	opInfo        = "info"
	opDisks       = "disks"
	opCutHolders  = "cut-holders"
	opPowerOff    = "poweroff"
	tokenMismatch = "the token is wrong"
)

// request is what a client asks for. Which fields count depends on Op.
type request struct {
	Version int      `json:"version"`
	Token   string   `json:"token"`
	Op      string   `json:"op"`
	Argv    []string `json:"argv,omitempty"`
	Env     []string `json:"env,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Path    string   `json:"path,omitempty"`
	Mode    uint32   `json:"mode,omitempty"`
	Holders bool     `json:"holders,omitempty"`
}

// reply ends a connection. Error is empty when the operation was carried out;
// a command that ran and exited with a code other than 0 was carried out.
type reply struct {
	Error string          `json:"error,omitempty"`
	Exit  *Exit           `json:"exit,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Exit says how a command ended.
type Exit struct {
	// Code is the exit code; 128 plus the signal's number when a signal
	// ended the command, as shells count.
	Code int `json:"code"`
	// Signal is the name of that signal, empty otherwise.
	Signal string `json:"signal,omitempty"`
}

// framed reads and writes frames on one connection. Writes may come from
// several goroutines, reads from one.
type framed struct {
	conn net.Conn
	mu   sync.Mutex
}

// write sends one frame; p must not be larger than maxFrame.
func (f *framed) write(t frameType, p []byte) error {
	if len(p) > maxFrame {
		return fmt.Errorf("frame of %d bytes is over the limit of %d", len(p), maxFrame)
	}
	buf := make([]byte, 5+len(p))
	buf[0] = byte(t)
	binary.BigEndian.PutUint32(buf[1:5], uint32(len(p)))
	copy(buf[5:], p)
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.conn.Write(buf)
	return err
}

// writeJSON sends v as one frame.
func (f *framed) writeJSON(t frameType, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.write(t, p)
}

// read receives one frame. A connection that ends between two frames gives
// io.EOF, one that ends inside a frame io.ErrUnexpectedEOF.
func (f *framed) read() (frameType, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(f.conn, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes is over the limit of %d", n, maxFrame)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(f.conn, p); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return frameType(head[0]), p, nil
}

// streamWriter is an io.Writer that sends what is written as frames of one
// type.
type streamWriter struct {
	f *framed
	t frameType
}

func (w streamWriter) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n := min(len(p)-sent, chunk)
		if err := w.f.write(w.t, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}
