package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// EnvSource names the environment variable that says where the lab's source is,
// for a program that runs outside of it.
const EnvSource = "CASTELLAN_LAB_SOURCE"

// marker is a file that only the lab's source directory has.
const marker = "modules/kubernetes/go.mod"

// Source finds the lab's source directory, whose modules/ holds what is built
// from Go modules: $CASTELLAN_LAB_SOURCE, or the lab directory seen from the
// working directory or the program upwards, or where this package was compiled.
func Source() (string, error) {
	if d := os.Getenv(EnvSource); d != "" {
		ok, err := hasMarker(d)
		if err != nil {
			return "", err
		}
		if !ok {
			return "", fmt.Errorf("%s=%s is not the lab's source: it has no %s", EnvSource, d, marker)
		}
		return filepath.Abs(d)
	}
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	// Not with -trimpath, when the path is no path of this machine.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, s := range starts {
		d, ok, err := upwards(s)
		if err != nil {
			return "", err
		}
		if ok {
			return d, nil
		}
	}
	return "", fmt.Errorf("the lab's source was not found from here: run inside the repository or set %s to its lab directory", EnvSource)
}

func upwards(dir string) (string, bool, error) {
	for {
		for _, d := range []string{dir, filepath.Join(dir, "lab")} {
			ok, err := hasMarker(d)
			if err != nil || ok {
				return d, ok, err
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", false, nil
		}
		dir = up
	}
}

func hasMarker(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, marker))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return false, nil
	default:
		return false, fmt.Errorf("looking for the lab's source: %w", err)
	}
}
