package main

import "github.com/spf13/cobra"

// commands is what the program can do; each command group adds its line.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newBuildCmd(),
		newAssetsCmd(),
		newCacheCmd(),
		newImageCmd(),
		newGuestCmd(),
		newUpCmd(),
		newDownCmd(),
		newStatusCmd(),
		newKubectlCmd(),
		newExecCmd(),
		newLogsCmd(),
		newDiskCmd(),
		newNodeCmd(),
		newOperatorCmd(),
		newCephCmd(),
		newSuperviseCmd(),
		newNodeInitCmd(),
	}
}
