package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const v1 = `22 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
23 22 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
24 22 0:23 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
25 22 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
26 22 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
27 22 0:26 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
28 22 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
29 22 0:24 /docker/x /mnt/part rw - cgroup cgroup rw,memory
30 22 0:24 / /mnt/again rw - cgroup cgroup rw,memory
`

func TestParse(t *testing.T) {
	tests := map[string]struct {
		mountinfo string
		want      []Hierarchy
		err       string
	}{
		"v1": {v1, []Hierarchy{
			{Mount: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
			{Mount: "/sys/fs/cgroup/cpuset", Controllers: []string{"cpuset"}},
			{Mount: "/sys/fs/cgroup/memory", Controllers: []string{"memory"}},
			{Mount: "/sys/fs/cgroup/pids", Controllers: []string{"pids"}},
			{Mount: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
		}, ""},
		"v2":              {"30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", []Hierarchy{{Mount: "/sys/fs/cgroup", V2: true}}, ""},
		"no memory in v1": {strings.ReplaceAll(v1, "rw,memory", "rw"), nil, "memory is not mounted"},
		"none":            {"1 0 8:1 / / rw - ext4 /dev/sda rw\n", nil, "no cgroup hierarchy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.NewReader(tt.mountinfo))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestJoinDirs(t *testing.T) {
	v1 := []Hierarchy{
		{Mount: "/cg/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
		{Mount: "/cg/memory", Controllers: []string{"memory"}},
		{Mount: "/cg/systemd", Controllers: []string{"name=systemd"}},
	}
	got := joinDirs(v1, "4:memory:/lab/node1\n2:cpu,cpuacct:/lab/node1\n1:name=systemd:/lab/node1\n7:blkio:/\n0::/\n")
	if d := cmp.Diff([]string{"/cg/memory/lab/node1", "/cg/cpu,cpuacct/lab/node1", "/cg/systemd/lab/node1"}, got); d != "" {
		t.Error(d)
	}
	got = joinDirs([]Hierarchy{{Mount: "/cg", V2: true}}, "0::/lab/node1/init\n")
	if d := cmp.Diff([]string{"/cg/lab/node1/init"}, got); d != "" {
		t.Error(d)
	}
}
