package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
)

const canary = "AgARvAxrTK56ESAAWIDa4dMj1AUJ1Fx+canary"

type holder struct {
	Public  Secret
	private Secret
	nested  map[string]Secret
	list    []Secret
	ptr     *Secret
}

func TestSecretIsNeverPrinted(t *testing.T) {
	s := NewSecret(canary)
	h := holder{Public: s, private: s, nested: map[string]Secret{"k": s}, list: []Secret{s}, ptr: &s}
	cmd := Cmd("auth add", "entity", "client.x", "key", s).WithIn([]byte(canary))
	values := map[string]any{
		"secret": s, "pointer": &s, "struct": h, "struct pointer": &h, "command": cmd, "command pointer": &cmd,
		"args": cmd.Args, "wrapped error": fmt.Errorf("x: %v", s), "any": []any{s, h},
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%10v", "%t"} {
			if got := fmt.Sprintf(verb, v); leaks(got) {
				t.Errorf("%s with %s: %s", name, verb, got)
			}
		}
		if b, err := json.Marshal(v); err == nil && leaks(string(b)) {
			t.Errorf("%s as JSON: %s", name, b)
		}
		var out bytes.Buffer
		for _, l := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))} {
			l.Info("message", "value", v)
		}
		for _, opt := range []funcr.Options{{}, {Verbosity: 9}} {
			funcr.New(func(_, args string) { out.WriteString(args) }, opt).Info("message", "value", v)
			funcr.NewJSON(func(obj string) { out.WriteString(obj) }, opt).Info("message", "value", v)
		}
		// Logs of a struct with In in it are the caller's mistake in no case:
		// Command hides it by its methods.
		if leaks(out.String()) {
			t.Errorf("%s in a log: %s", name, out.String())
		}
	}
	if d := cmp.Diff(s, NewSecret("other")); leaks(d) {
		t.Errorf("cmp prints it: %s", d)
	}
}

// leaks looks for the secret as text, in hex and in base64.
func leaks(s string) bool {
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary),
		strings.Trim(string(must(json.Marshal([]byte(canary)))), `"`)} {
		if strings.Contains(s, form) {
			return true
		}
	}
	return false
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestSecret(t *testing.T) {
	s := NewSecret("x")
	if s.Reveal() != "x" || s.IsZero() || fmt.Sprint(s) != Redacted {
		t.Errorf("%q %v %v", s.Reveal(), s.IsZero(), s)
	}
	var zero Secret
	if !zero.IsZero() || zero.Reveal() != "" || fmt.Sprint(zero) != "" || !NewSecret("").IsZero() {
		t.Error("the zero value is not empty")
	}
	if !s.Equal(NewSecret("x")) || s.Equal(zero) || s.Equal(NewSecret("y")) {
		t.Error("Equal does not compare contents")
	}
	var in struct{ K Secret }
	if err := json.Unmarshal([]byte(`{"K":"y"}`), &in); err != nil || in.K.Reveal() != "y" {
		t.Errorf("%v", err)
	}
	if err := json.Unmarshal([]byte(`{"K":["`+canary+`"]}`), &in); err == nil || leaks(err.Error()) {
		t.Errorf("decoding a list: %v", err)
	}
}

func TestWire(t *testing.T) {
	cmd := Cmd("osd reweight", "id", 3, "weight", Float(1), "key", NewSecret("k"), "ids", []string{"1"}, "sure", true)
	got, err := cmd.Wire()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format":"json","id":3,"ids":["1"],"key":"k","prefix":"osd reweight","sure":true,"weight":1.0}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	cmd.Plain = true
	if got, _ = cmd.Wire(); strings.Contains(string(got), "format") {
		t.Errorf("plain: %s", got)
	}
	if _, err := Cmd("x", "weight", Float(nan())).Wire(); err == nil {
		t.Error("NaN was encoded")
	}
}

func nan() float64 { z := 0.0; return z / z }

func TestFloat(t *testing.T) {
	for in, want := range map[Float]string{0: "0.0", 1: "1.0", 0.5: "0.5", 1e-7: "0.0000001", 1e21: "1000000000000000000000.0"} {
		b, err := json.Marshal(in)
		if err != nil || string(b) != want {
			t.Errorf("%v is written %s (%v), want %s", float64(in), b, err, want)
		}
	}
}

func TestBit(t *testing.T) {
	for in, want := range map[string]Bit{"0": false, "1": true, "true": true, "false": false} {
		var b Bit
		if err := json.Unmarshal([]byte(in), &b); err != nil || b != want {
			t.Errorf("%s: %v %v", in, b, err)
		}
	}
	var b Bit
	for _, in := range []string{"2", `"1"`, "null", "{}"} {
		if err := json.Unmarshal([]byte(in), &b); err == nil {
			t.Errorf("%s was taken", in)
		}
	}
}

func TestErrors(t *testing.T) {
	e := fmt.Errorf("marking osd.5 out: %w", &Error{Prefix: "osd out", Errno: syscall.EBUSY, Status: "no"})
	if !errors.Is(e, syscall.EBUSY) || !Busy(e) || NotFound(e) || Errno(e) != syscall.EBUSY {
		t.Errorf("%v", e)
	}
	if d := cmp.Diff("marking osd.5 out: ceph osd out: no (EBUSY)", e.Error()); d != "" {
		t.Error(d)
	}
	if got := (&Error{Prefix: "x", Errno: 9999}).Error(); got != "ceph x: errno 9999" {
		t.Error(got)
	}
	gone := &UnreachableError{Prefix: "status", Err: syscall.ENOENT}
	if errors.Is(gone, syscall.ENOENT) || errors.Is(gone, fs.ErrNotExist) || NotFound(gone) || Errno(gone) != 0 {
		t.Error("an unreachable cluster reads as ENOENT")
	}
	if !errors.Is(gone, syscall.ETIMEDOUT) || !Unreachable(gone) {
		t.Errorf("%v is not ETIMEDOUT", gone)
	}
	late := &UnreachableError{Err: context.DeadlineExceeded}
	if !errors.Is(late, context.DeadlineExceeded) || !errors.Is(late, syscall.ETIMEDOUT) {
		t.Errorf("%v", late)
	}
	stopped := &UnreachableError{Err: context.Canceled}
	if !errors.Is(stopped, context.Canceled) || errors.Is(stopped, syscall.ETIMEDOUT) {
		t.Errorf("%v", stopped)
	}
}

func TestDecode(t *testing.T) {
	type v struct{ A int }
	ok, err := Decode[v]("x", []byte("\n{\"A\":1}\n\n"))
	if err != nil || ok.A != 1 {
		t.Errorf("%v %v", ok, err)
	}
	for _, in := range []string{"", "\n", `{"A":1`, `{"A":1}{"A":2}`, `{"A":1} x`, `[]`, `{"A":"` + canary + `"}`} {
		got, err := Decode[v]("x", []byte(in))
		var de *DecodeError
		if !errors.As(err, &de) || got != (v{}) {
			t.Errorf("%q: %v %v", in, got, err)
		}
		if leaks(err.Error()) {
			t.Errorf("the error repeats the reply: %v", err)
		}
	}
}

func TestFuncAndDo(t *testing.T) {
	var got []Target
	f := Func(func(_ context.Context, to Target, _ Command) (Reply, error) {
		got = append(got, to)
		return Reply{}, nil
	})
	for _, to := range []Target{ToMon, ToMgr, "osd.3"} {
		if _, err := Do(t.Context(), f, to, Cmd("x")); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]Target{ToMon, ToMgr, "osd.3"}, got); d != "" {
		t.Error(d)
	}
}

func TestObserve(t *testing.T) {
	fails := &Error{Prefix: "x", Errno: syscall.EPERM}
	var got []Sent
	c := Observe(Func(func(context.Context, Target, Command) (Reply, error) { return Reply{Status: "s"}, fails }),
		func(_ context.Context, s Sent) { got = append(got, s) })
	r, err := c.Tell(t.Context(), "osd.1", Cmd("x"))
	if !errors.Is(err, syscall.EPERM) || r.Status != "s" || len(got) != 1 || got[0].To != "osd.1" || !errors.Is(got[0].Err, syscall.EPERM) {
		t.Errorf("%v %v %v", r, err, got)
	}
}

func TestBound(t *testing.T) {
	ctx, cancel := Cmd("x").WithTimeout(time.Minute).Bound(t.Context())
	defer cancel()
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > time.Minute || time.Until(d) < 50*time.Second {
		t.Errorf("%v %v", d, ok)
	}
}

func TestAddrs(t *testing.T) {
	a := Addrs{Vec: []Addr{{Type: "v2", Addr: "10.0.0.1:3300"}, {Type: "v1", Addr: "10.0.0.1:6789"}}}
	if a.String() != "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]" || a.Of("v1") != "10.0.0.1:6789" || a.Of("any") != "" {
		t.Errorf("%v", a)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"osd":1,"up":1}`, `{"up":true}`, `[]`, ``, `{"public_addrs":{"addrvec":[{"type":"v2"}]}}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		type v struct {
			Up    Bit
			Key   Secret
			Addrs Addrs
		}
		got, err := Decode[v]("x", in)
		if err == nil {
			if fmt.Sprint(got.Key) != "" && fmt.Sprint(got.Key) != Redacted {
				t.Errorf("printed %v", got.Key)
			}
			_ = got.Addrs.String()
		}
	})
}
