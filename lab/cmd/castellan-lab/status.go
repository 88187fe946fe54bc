package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/disk"
)

func newStatusCmd() *cobra.Command {
	var asJSON bool
	var watch time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show a lab's nodes and disks, and what it takes of the machine",
		Args:  cobra.NoArgs,
	}
	name := labName(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, without measurements")
	c.Flags().DurationVar(&watch, "watch", 2*time.Second, "how long to watch the use of processors")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		_, _, client, err := running(*name)
		if err != nil {
			return err
		}
		s, err := client.Status(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			e := json.NewEncoder(os.Stdout)
			e.SetIndent("", "  ")
			return e.Encode(s)
		}
		return printStatus(cmd.Context(), s, watch)
	}
	return c
}

func printStatus(ctx context.Context, s control.Status, watch time.Duration) error {
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	usage, err := cluster.Measure(ctx, s.Name, names, watch)
	if err != nil {
		return err
	}
	fmt.Printf("lab %s, up for %s, %s\nexport KUBECONFIG=%s\n\n", s.Name, time.Since(s.Started).Round(time.Second), s.Server, s.Kubeconfig)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PART\tSTATE\tADDRESS\tDISKS\tPROCESSES\tMEMORY\tCPU\tNOTE")
	var total cluster.Usage
	for i, u := range usage {
		state, addr, disks, note := control.Running, "", "", exitedComponents(s)
		if i > 0 {
			n := s.Nodes[i-1]
			state, addr, disks, note = n.State, n.Addr, fmt.Sprint(len(n.Disks)), strings.Join(n.Exited, ", ")
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", u.Part, state, addr, disks, u.Processes, disk.FormatSize(u.Memory), percent(u.CPU, watch), note)
		total.Processes += u.Processes
		total.Memory += u.Memory
		total.CPU += u.CPU
	}
	_, _ = fmt.Fprintf(w, "total\t\t\t\t%d\t%s\t%s\t\n", total.Processes, disk.FormatSize(total.Memory), percent(total.CPU, watch))
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	return printDisks(s.Nodes)
}

// percent is of one core.
func percent(used, of time.Duration) string {
	return fmt.Sprintf("%.1f%%", 100*used.Seconds()/of.Seconds())
}

func exitedComponents(s control.Status) string {
	var out []string
	for _, c := range s.Components {
		if c.Exited != "" {
			out = append(out, c.Exited)
		}
	}
	return strings.Join(out, ", ")
}
