// Command fuzz runs the fuzz tests of a tree one after another, each for a given
// time, and says how many there were.
//
//	go run ./hack/fuzz -time 30s ./api
//
// On a loaded machine Go's fuzzer can miss its own deadline while it stops and then
// reports "context deadline exceeded" without an input that fails. Such a run is
// repeated once; a run that left a failing input behind never is.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	each := flag.Duration("time", 30*time.Second, "how long each fuzz test runs")
	flag.Parse()
	n, err := run(context.Background(), *each, flag.Args())
	fmt.Printf("%d fuzz tests ran for %v each\n", n, *each)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
	if n == 0 {
		fmt.Fprintln(os.Stderr, "fuzz: no fuzz test found")
		os.Exit(1)
	}
}

// target is one fuzz test.
type target struct{ dir, name string }

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// targets finds the fuzz tests below dirs.
func targets(dirs []string) ([]target, error) {
	var found []target
	for _, root := range dirs {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, "_test.go") {
				return err
			}
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			for _, m := range declaration.FindAllSubmatch(b, -1) {
				found = append(found, target{filepath.Dir(p), string(m[1])})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("looking for fuzz tests below %s: %w", root, err)
		}
	}
	return found, nil
}

func run(ctx context.Context, each time.Duration, dirs []string) (int, error) {
	list, err := targets(dirs)
	if err != nil {
		return 0, err
	}
	for i, t := range list {
		fmt.Printf("%d of %d: %s in %s\n", i+1, len(list), t.name, t.dir)
		out, err := t.fuzz(ctx, each)
		if err != nil && onlyLate(out) {
			fmt.Println("  the fuzzer missed its own deadline; once more")
			out, err = t.fuzz(ctx, each)
		}
		if err != nil && !onlyLate(out) {
			return i, fmt.Errorf("%s in %s: %w\n%s", t.name, t.dir, err, out)
		}
	}
	return len(list), nil
}

func (t target) fuzz(ctx context.Context, each time.Duration) ([]byte, error) {
	dir := t.dir
	if !filepath.IsAbs(dir) {
		dir = "./" + filepath.ToSlash(dir)
	}
	cmd := exec.CommandContext(ctx, "go", "test", dir, "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String())
	return cmd.CombinedOutput()
}

// onlyLate says that a run failed for want of time alone.
func onlyLate(out []byte) bool {
	return bytes.Contains(out, []byte("context deadline exceeded")) && !bytes.Contains(out, []byte("Failing input written to"))
}
