package control

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// serve runs a handler where a supervisor would listen.
func serve(t *testing.T, h http.Handler) *Client {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", Socket(dir))
	if err != nil {
		t.Skipf("no socket here: %v", err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return NewClient(dir)
}

func TestCalls(t *testing.T) {
	var got []string
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+string(b))
		if strings.Contains(r.URL.Path, "node9") {
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(Failure{Error: "no node node9"})
			return
		}
		_, _ = io.WriteString(w, `{"slot":2,"serial":"CLX"}`)
	}))
	ctx := t.Context()
	d, err := c.SwapDisk(ctx, "node1", "loop3", Swap{OtherSlot: true})
	if err != nil || d.Serial != "CLX" || d.Slot != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := c.Node(ctx, "node1", Stop); err != nil {
		t.Error(err)
	}
	if _, err := c.PullDisk(ctx, "node9", "1"); err == nil || err.Error() != "no node node9" {
		t.Errorf("error %v", err)
	}
	want := `POST /nodes/node1/disks/loop3/swap {"size":0,"slot":0,"otherSlot":true}
POST /nodes/node1/stop null
DELETE /nodes/node9/disks/1 null`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("asked:\n%s", s)
	}
}

func TestDial(t *testing.T) {
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.URL.Path != "/dial" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		if r.URL.Query().Get("address") != "10.244.1.2:80" {
			w.WriteHeader(http.StatusBadGateway)
			_ = json.NewEncoder(w).Encode(Failure{Error: "connection refused"})
			return
		}
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		// The first bytes come with the answer: none may be lost.
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nhello ")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	}))
	conn, err := c.Dial(t.Context(), "tcp", "10.244.1.2:80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "world\n"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if err != nil || string(b) != "hello world\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := c.Dial(t.Context(), "tcp", "10.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v", err)
	}
	if _, err := c.Dial(t.Context(), "udp", "10.244.1.2:80"); err == nil {
		t.Error("udp gave no error")
	}
}
