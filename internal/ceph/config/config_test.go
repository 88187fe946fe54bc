package config

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/internal/ceph"
)

func answering(out string, err error) (Client, *ceph.Command) {
	var got ceph.Command
	return New(ceph.Func(func(_ context.Context, _ ceph.Target, cmd ceph.Command) (ceph.Reply, error) {
		got = cmd
		return ceph.Reply{Out: []byte(out)}, err
	})), &got
}

func TestDump(t *testing.T) {
	// As Ceph 20.2.4 writes it.
	c, _ := answering("\n"+`[{"section":"osd","name":"osd_max_backfills","value":"2","level":"advanced","can_update_at_runtime":true,"mask":"class:hdd"},{"section":"global","name":"mon_allow_pool_delete","value":"true","level":"advanced","can_update_at_runtime":true,"mask":""}]`, nil)
	l, err := c.Dump(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"osd/class:hdd", "global"}, []string{l[0].Who(), l[1].Who()}); d != "" {
		t.Error(d)
	}
}

func TestGetIsPlain(t *testing.T) {
	c, got := answering("939524096\n", nil)
	v, err := c.Get(t.Context(), "osd.0", "osd_memory_target")
	if err != nil || v != "939524096" || !got.Plain {
		t.Errorf("%q %v %v", v, err, got)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	c, got := answering("canary", nil)
	s := ceph.NewSecret("canary")
	if err := c.SetSecret(t.Context(), "client.rgw", "rgw_keystone_admin_password", s); err != nil || strings.Contains(fmt.Sprintf("%+v", *got), "canary") {
		t.Errorf("%+v %v", *got, err)
	}
	if err := c.SetKey(t.Context(), "k", s); err != nil || strings.Contains(fmt.Sprintf("%+v", *got), "canary") || string(got.In) != "canary" {
		t.Errorf("%+v %v", *got, err)
	}
	if v, err := c.GetKey(t.Context(), "k"); err != nil || strings.Contains(fmt.Sprint(v), "canary") || v.Reveal() != "canary" {
		t.Errorf("%v %v", v, err)
	}
	if err := c.SetKey(t.Context(), "k", ceph.Secret{}); err == nil {
		t.Error("an empty value was sent")
	}
}

func TestHasKey(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
		fail bool
	}{
		{nil, true, false},
		{&ceph.Error{Errno: syscall.ENOENT}, false, false},
		{&ceph.Error{Errno: syscall.EACCES}, false, true},
		{&ceph.UnreachableError{Err: syscall.ENOENT}, false, true},
	} {
		c, _ := answering("", tc.err)
		got, err := c.HasKey(t.Context(), "k")
		if got != tc.want || (err != nil) != tc.fail {
			t.Errorf("%v: %v %v", tc.err, got, err)
		}
	}
}
