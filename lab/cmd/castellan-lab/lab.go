package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
)

// labName adds the flag that says which lab is meant.
func labName(c *cobra.Command) *string {
	return c.PersistentFlags().String("name", defaultName(), "the lab that is meant (also "+state.EnvName+")")
}

func defaultName() string {
	if n := os.Getenv(state.EnvName); n != "" {
		return n
	}
	return state.DefaultName
}

// running returns the record, the directory and the supervisor of a lab that
// must run.
func running(name string) (state.Lab, string, *control.Client, error) {
	l, err := state.Running(name)
	if err != nil {
		return l, "", nil, err
	}
	dir, err := l.Dir()
	if err != nil {
		return l, "", nil, err
	}
	return l, dir, control.NewClient(dir), nil
}

// codeError makes the program exit with the code of what it ran.
type codeError int

func (codeError) Error() string   { return "" }
func (e codeError) ExitCode() int { return int(e) }
