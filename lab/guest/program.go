package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cache"
	"github.com/castellan-storage/castellan/lab/command"
)

// agentName is the program's file name, and its part in the cache.
const (
	agentName = "castellan-guest-agent"
	agentPart = "guest-agent"
)

// Built fills in where the built kernel, root file system and agent are. The
// agent is compiled when it is not in the cache yet, which takes seconds; the
// other parts are an error that names the command to run.
func Built(ctx context.Context, o Options) (Options, error) {
	if o.Kernel == "" || o.Rootfs == "" {
		paths, err := build.Lookup(build.PartsGuest()...)
		if err != nil {
			return o, err
		}
		if o.Kernel == "" {
			o.Kernel = paths.GuestKernel
		}
		if o.Rootfs == "" {
			o.Rootfs = paths.GuestRoot
		}
	}
	if o.Agent == "" {
		var err error
		if o.Agent, err = agentProgram(ctx); err != nil {
			return o, err
		}
	}
	return o, nil
}

// agentProgram is the agent beside this program, where it was installed, or
// compiled from the source.
func agentProgram(ctx context.Context) (string, error) {
	if exe, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(exe), agentName)
		_, err := os.Stat(beside)
		if err == nil {
			return beside, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking for the guest's agent: %w", err)
		}
	}
	src, err := build.Source()
	if err != nil {
		return "", fmt.Errorf("finding the guest's agent: %w", err)
	}
	key, err := agentKey(src)
	if err != nil {
		return "", fmt.Errorf("reading the source of the guest's agent: %w", err)
	}
	dir, err := cache.Dir()
	if err != nil {
		return "", err
	}
	path, _, err := cache.Open(dir).Build(ctx, agentPart, key, nil, func(ctx context.Context, dir, _ string) error {
		return command.Run(ctx, command.Cmd{
			Args: []string{goProgram(), "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
				"-o", filepath.Join(dir, agentName), "./cmd/" + agentName},
			Dir: src, Env: []string{"CGO_ENABLED=0", "GOWORK=off"},
		})
	})
	if err != nil {
		return "", fmt.Errorf("compiling the guest's agent: %w", err)
	}
	return filepath.Join(path, agentName), nil
}

// goProgram is go from the PATH, or from where its archive installs it, which
// the PATH of sudo lacks.
func goProgram() string {
	const usual = "/usr/local/go/bin/go"
	if _, err := exec.LookPath("go"); err != nil {
		if _, err := os.Stat(usual); err == nil {
			return usual
		}
	}
	return "go"
}

// agentKey hashes what the agent is made of.
func agentKey(src string) (cache.Key, error) {
	files := []string{filepath.Join(src, "go.sum")}
	for _, dir := range []string{"cmd/" + agentName, "guest/agent", "guest/pid1"} {
		found, err := filepath.Glob(filepath.Join(src, dir, "*.go"))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	parts := []string{runtime.Version()}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		parts = append(parts, filepath.Base(f), string(b))
	}
	return cache.NewKey(parts...), nil
}
