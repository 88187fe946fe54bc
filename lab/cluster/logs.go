package cluster

import (
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"github.com/castellan-storage/castellan/lab/node"
)

// Log is the log file of one program.
type Log struct {
	Name string // "etcd", "node1/kubelet"
	Path string
}

// Logs lists the logs of the lab in dir, running or not.
func Logs(dir string) ([]Log, error) {
	var out []Log
	add := func(prefix, pattern string) error {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("listing logs: %w", err)
		}
		for _, p := range paths {
			out = append(out, Log{Name: prefix + strings.TrimSuffix(filepath.Base(p), ".log"), Path: p})
		}
		return nil
	}
	if err := add("", filepath.Join(logDir(dir), "*.log")); err != nil {
		return nil, err
	}
	nodes, err := filepath.Glob(nodeDir(dir, "*"))
	if err != nil {
		return nil, fmt.Errorf("listing logs: %w", err)
	}
	for _, n := range nodes {
		for _, f := range node.LogFiles() {
			if err := add(filepath.Base(n)+"/", filepath.Join(n, f)); err != nil {
				return nil, err
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}
