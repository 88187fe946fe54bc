package main

import (
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/disk"
)

func newDiskCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "disk",
		Short: "Add, pull, swap and list the disks of nodes",
		Long: `Handle disks as a person in front of a machine would. DISK is a slot number, a
serial number or a device name such as loop3; castellan-lab disk list shows them.`,
		Args: cobra.NoArgs,
	}
	name := labName(c)
	c.AddCommand(newDiskListCmd(name), newDiskAddCmd(name), newDiskPullCmd(name), newDiskSwapCmd(name))
	return c
}

func newDiskListCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "list [NODE]", Short: "List disks with size, serial number, slot, and what is on them", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, client, err := running(*name)
			if err != nil {
				return err
			}
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			nodes := s.Nodes
			if len(args) == 1 {
				nodes = nil
				for _, n := range s.Nodes {
					if n.Name == args[0] {
						nodes = append(nodes, n)
					}
				}
				if nodes == nil {
					return fmt.Errorf("no node %s: there are node1 to node%d", args[0], len(s.Nodes))
				}
			}
			return printDisks(nodes)
		},
	}
}

func printDisks(nodes []control.Node) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "NODE\tSLOT\tDEVICE\tSERIAL\tSIZE\tCONTENT")
	for _, n := range nodes {
		for _, d := range n.Disks {
			_, _ = fmt.Fprintf(w, "%s\t%d\t/dev/%s\t%s\t%s\t%s\n", n.Name, d.Slot, d.Name(), d.Serial, disk.FormatSize(d.Size), d.Content)
		}
	}
	return w.Flush()
}

func newDiskAddCmd(name *string) *cobra.Command {
	var size string
	var slot int
	c := &cobra.Command{
		Use: "add NODE", Short: "Plug a blank disk into a node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := disk.ParseSize(size)
			if err != nil {
				return fmt.Errorf("--size: %w", err)
			}
			if slot < 0 {
				return fmt.Errorf("--slot %d: slots count from 1", slot)
			}
			_, _, client, err := running(*name)
			if err != nil {
				return err
			}
			d, err := client.AddDisk(cmd.Context(), args[0], control.NewDisk{Size: n, Slot: slot})
			if err != nil {
				return err
			}
			fmt.Printf("%s: disk %s in slot %d is /dev/%s\n", args[0], d.Serial, d.Slot, d.Name())
			return nil
		},
	}
	c.Flags().StringVar(&size, "size", "10Gi", "how large it is")
	c.Flags().IntVar(&slot, "slot", 0, "the slot it goes into; the first free one if not given")
	return c
}

func newDiskPullCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use: "pull NODE DISK", Short: "Pull a disk out of a node, for good",
		Long: `Pull a disk out of a node. Its device, its links and its udev data disappear from
the node's /dev. For programs that have the device open it shrinks to one sector,
as the kernel cannot break a loop device in use: writes beyond fail with "no space
left on device" (through a file system with an I/O error) and reads meet the end
of the device. What was on the disk is gone.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, client, err := running(*name)
			if err != nil {
				return err
			}
			d, err := client.PullDisk(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			fmt.Printf("%s: disk %s is out of slot %d; /dev/%s is gone, and fails for who has it open\n", args[0], d.Serial, d.Slot, d.Name())
			return nil
		},
	}
}

func newDiskSwapCmd(name *string) *cobra.Command {
	var size, slot string
	c := &cobra.Command{
		Use: "swap NODE DISK", Short: "Put a blank disk in the place of another",
		Long: `Pull a disk and plug in a blank one with another serial number, of the same size
and in the same slot if not told otherwise.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sw control.Swap
			var err error
			if size != "" {
				if sw.Size, err = disk.ParseSize(size); err != nil {
					return fmt.Errorf("--size: %w", err)
				}
			}
			switch slot {
			case "same", "":
			case "other":
				sw.OtherSlot = true
			default:
				if sw.Slot, err = strconv.Atoi(slot); err != nil || sw.Slot < 1 {
					return fmt.Errorf("--slot %s: say same, other or a number from 1", slot)
				}
			}
			_, _, client, err := running(*name)
			if err != nil {
				return err
			}
			d, err := client.SwapDisk(cmd.Context(), args[0], args[1], sw)
			if err != nil {
				return err
			}
			fmt.Printf("%s: blank disk %s in slot %d is /dev/%s\n", args[0], d.Serial, d.Slot, d.Name())
			return nil
		},
	}
	c.Flags().StringVar(&slot, "slot", "same", "where the new disk goes: same, other, or a slot number")
	c.Flags().StringVar(&size, "size", "", "how large it is; the old one's size if not given")
	return c
}
