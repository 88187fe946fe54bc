package cluster

import (
	"strings"
	"testing"
)

func TestOptionsCheck(t *testing.T) {
	good := Options{Name: "lab", Nodes: 3, Disks: 2, DiskSize: 10 << 30}
	if err := good.Check(); err != nil {
		t.Errorf("good options: %v", err)
	}
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"no name":        {func(o *Options) { o.Name = "" }, "no name for a lab"},
		"a path":         {func(o *Options) { o.Name = "../../etc" }, "no name for a lab"},
		"no nodes":       {func(o *Options) { o.Nodes = 0 }, "0 nodes"},
		"too many nodes": {func(o *Options) { o.Nodes = 1000 }, "1000 nodes"},
		"negative disks": {func(o *Options) { o.Disks = -1 }, "-1 disks"},
		"tiny disks":     {func(o *Options) { o.DiskSize = 4096 }, "at least 1Mi"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := good
			tt.change(&o)
			if err := o.Check(); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestMemAvailable(t *testing.T) {
	got, err := memAvailable(strings.NewReader("MemTotal:  100 kB\nMemAvailable:   2048 kB\n"))
	if err != nil || got != 2<<20 {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "MemAvailable: many kB\n"} {
		if _, err := memAvailable(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestPreflightTooLittle(t *testing.T) {
	if err := checkMemory(Options{Nodes: 1 << 30}); err == nil || !strings.Contains(err.Error(), "too little memory") {
		t.Errorf("memory: %v", err)
	}
	if err := checkDisk(Options{Nodes: 1 << 20, Disks: 64, DiskSize: 1 << 40}); err == nil || !strings.Contains(err.Error(), "too little disk") {
		t.Errorf("disk: %v", err)
	}
}
