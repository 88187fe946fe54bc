package main

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castellan-storage/castellan/lab/cluster/state"
)

func TestLeadingName(t *testing.T) {
	t.Setenv(state.EnvName, "fromenv")
	tests := map[string]struct {
		args []string
		name string
		rest []string
	}{
		"none":            {[]string{"get", "pods"}, "fromenv", []string{"get", "pods"}},
		"two words":       {[]string{"--name", "a", "get"}, "a", []string{"get"}},
		"one word":        {[]string{"--name=a", "get"}, "a", []string{"get"}},
		"kubectl's later": {[]string{"get", "--name=a"}, "fromenv", []string{"get", "--name=a"}},
		"nothing":         {nil, "fromenv", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, rest := leadingName(tt.args)
			if got != tt.name {
				t.Errorf("name %q", got)
			}
			if d := cmp.Diff(tt.rest, rest); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSkipTo(t *testing.T) {
	const log = "one\ntwo\nthree\nhal"
	for lines, want := range map[int]string{0: "", 1: "hal", 2: "three\nhal", 4: log, 9: log} {
		r := strings.NewReader(log)
		if err := skipTo(r, lines); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != want {
			t.Errorf("last %d lines: %q, want %q", lines, b, want)
		}
	}
}
