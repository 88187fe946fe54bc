package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/castellan-storage/castellan/lab/command"
)

// Versions of what is built from Go modules; modules/*/go.mod pin them.
const (
	versionKubernetes = "v1.37.2"
	versionContainerd = "v2.4.2"
	versionRunc       = "v1.5.3"
	versionCNI        = "v1.10.0"
	versionCoreDNS    = "v1.15.0"
)

// goModule is how a pinned module becomes binaries.
type goModule struct {
	dir      string // the module
	packages []string
	output   string // a file in the part's directory, or "" for one per package
	sub      string // the folder for them
	tags     string
	ldflags  string
	cgo      bool
}

// recipe is all that decides what the binaries are. The version of Go does not
// count: a new one is no reason to compile Kubernetes again.
func (m goModule) recipe() ([]string, error) {
	out := []string{"go module", strings.Join(m.packages, " "), m.output, m.sub, m.tags, m.ldflags, fmt.Sprint(m.cgo)}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		b, err := os.ReadFile(filepath.Join(m.dir, name))
		if os.IsNotExist(err) && name == "main.go" {
			continue // what is built is a package of a required module
		}
		if err != nil {
			return nil, fmt.Errorf("reading the pinned module: %w", err)
		}
		out = append(out, name, string(b))
	}
	return out, nil
}

func (m goModule) env() []string {
	cgo := "CGO_ENABLED=0"
	if m.cgo {
		cgo = "CGO_ENABLED=1"
	}
	return []string{cgo, "GOWORK=off", "GOFLAGS=-mod=readonly"}
}

func (m goModule) args(verb string, more ...string) []string {
	args := append([]string{goCommand(), verb}, more...)
	if m.tags != "" {
		args = append(args, "-tags", m.tags)
	}
	return append(args, m.packages...)
}

// download gets every module that the packages need.
func (m goModule) download(ctx context.Context, j *job) error {
	n := 0
	err := command.Run(ctx, command.Cmd{
		// Listing the dependencies downloads their modules and nothing else;
		// "go mod download" would also get what only tests of others need.
		Args: m.args("list", "-deps", "-f", "{{if not .Standard}}.{{end}}"), Dir: m.dir, Env: m.env(), Log: j.log,
		Line: func(s string) {
			if strings.HasPrefix(s, "go: downloading") {
				n++
				j.note(fmt.Sprintf("%d downloads", n))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("downloading Go modules: %w", err)
	}
	return nil
}

func (m goModule) build(ctx context.Context, j *job) error {
	if err := m.download(ctx, j); err != nil {
		return err
	}
	out := filepath.Join(j.dir, m.sub)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	out += "/" + m.output
	n := 0
	err := command.Run(ctx, command.Cmd{
		Args: m.args("build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", m.ldflags, "-o", out),
		Dir:  m.dir, Env: m.env(), Log: j.log,
		Line: func(s string) {
			n++
			j.note(fmt.Sprintf("package %d: %s", n, s))
		},
	})
	if err != nil {
		return fmt.Errorf("compiling: %w", err)
	}
	return nil
}

func (m goModule) part(name, title string) (*part, error) {
	r, err := m.recipe()
	if err != nil {
		return nil, err
	}
	p := &part{name: name, title: title, lane: compiler, recipe: r, space: 300 << 20, fetch: m.download, make: m.build}
	if m.cgo {
		p.host = []string{"gcc", "libc6-dev", "libseccomp-dev", "pkg-config"}
	}
	return p, nil
}

// kubernetesPrograms are what hyper can be called as.
var kubernetesPrograms = [...]string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"}

func kubernetesPart(src string) (*part, error) {
	v := strings.Split(strings.TrimPrefix(versionKubernetes, "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X "+pkg+".gitVersion="+versionKubernetes,
			"-X "+pkg+".gitMajor="+v[0], "-X "+pkg+".gitMinor="+v[1])
		if strings.Contains(pkg, "component-base") {
			flags = append(flags,
				"-X "+pkg+".gitCommit="+strings.Repeat("0", 40),
				"-X "+pkg+".gitTreeState=clean", "-X "+pkg+".buildDate=1970-01-01T00:00:00Z")
		}
	}
	m := goModule{
		dir: filepath.Join(src, "modules", "kubernetes"), packages: []string{"."}, output: "hyper",
		ldflags: "-s -w " + strings.Join(flags, " "),
	}
	p, err := m.part(partKubernetes, "Kubernetes "+versionKubernetes)
	if err != nil {
		return nil, err
	}
	p.make = func(ctx context.Context, j *job) error {
		if err := m.build(ctx, j); err != nil {
			return err
		}
		for _, name := range kubernetesPrograms {
			if err := os.Symlink("hyper", filepath.Join(j.dir, name)); err != nil {
				return err
			}
		}
		return nil
	}
	return p, nil
}

func containerdPart(src string) (*part, error) {
	const b = "github.com/containerd/containerd/v2"
	return goModule{
		dir:      filepath.Join(src, "modules", "containerd"),
		packages: []string{b + "/cmd/containerd", b + "/cmd/containerd-shim-runc-v2", b + "/cmd/ctr"},
		tags:     "no_btrfs no_devmapper no_zfs no_tracing no_grpc_tracing",
		ldflags:  "-s -w -X " + b + "/version.Version=" + versionContainerd + " -X " + b + "/version.Revision=x",
	}.part(partContainerd, "containerd "+versionContainerd)
}

func runcPart(src string) (*part, error) {
	return goModule{
		dir:      filepath.Join(src, "modules", "runc"),
		packages: []string{"github.com/opencontainers/runc"}, output: "runc",
		tags:    "seccomp netgo osusergo",
		ldflags: `-s -w -linkmode external -extldflags "-static" -X main.version=` + strings.TrimPrefix(versionRunc, "v"),
		cgo:     true,
	}.part(partRunc, "runc "+versionRunc)
}

func cniPart(src string) (*part, error) {
	const b = "github.com/containernetworking/plugins/plugins"
	return goModule{
		dir:      filepath.Join(src, "modules", "cni"),
		packages: []string{b + "/main/bridge", b + "/ipam/host-local", b + "/main/loopback"}, sub: "cni",
		ldflags: "-s -w",
	}.part(partCNI, "CNI plugins "+versionCNI)
}

func corednsPart(src string) (*part, error) {
	return goModule{
		dir:      filepath.Join(src, "modules", "coredns"),
		packages: []string{"."}, output: "coredns", ldflags: "-s -w",
	}.part(partCoreDNS, "CoreDNS "+versionCoreDNS)
}
