package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/guest"
	"github.com/castellan-storage/castellan/lab/guest/agent"
)

// exitStatus hands on the exit code of what ran in a guest, without words: it
// has said itself what was wrong.
type exitStatus int

func (e exitStatus) Error() string { return "" }
func (e exitStatus) ExitCode() int { return int(e) }

func newGuestCmd() *cobra.Command {
	name := guest.DefaultName
	c := &cobra.Command{
		Use:   "guest",
		Short: "Run a storage guest: a kernel with LVM, dm-crypt, krbd and CephFS",
		Long: `A storage guest is a User Mode Linux kernel as a process of this machine, for
what this machine's own kernel may lack: device-mapper, dm-crypt, krbd, the
kernel's CephFS. Its disks are plugged and pulled while it runs. No packet of it
can leave the machine.`,
		Example: `  castellan-lab guest up --disks 3
  castellan-lab guest exec lsblk
  castellan-lab guest disk pull ubdb
  castellan-lab guest down`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if os.Geteuid() != 0 {
				return errors.New("storage guests belong to root: use sudo")
			}
			return nil
		},
	}
	c.PersistentFlags().StringVar(&name, "name", name, "which guest")
	c.AddCommand(newGuestUpCmd(&name), newGuestExecCmd(&name), newGuestBesideCmd(&name), newGuestPutCmd(&name),
		newGuestGetCmd(&name), newGuestDiskCmd(&name), newGuestStatusCmd(), newGuestDownCmd(&name), newGuestCephCmd(&name))
	return c
}

// guestFlags are the flags of commands that start a guest.
type guestFlags struct {
	mem, diskSize, lab string
	disks              int
	options            guest.Options
}

func (f *guestFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.mem, "mem", disk.FormatSize(guest.DefaultMemory), "memory of the guest; it takes only what it touches")
	c.Flags().IntVar(&f.disks, "disks", f.disks, "how many blank disks it starts with")
	c.Flags().StringVar(&f.diskSize, "disk-size", "8Gi", "size of each; the files are sparse")
	c.Flags().StringVar(&f.lab, "lab", "", "put the guest onto the network of this lab instead of one of its own")
	c.Flags().BoolVar(&f.options.FastLUKS, "fast-luks", false, "make luksFormat in the guest cheap (and its keys weak)")
	c.Flags().StringVar(&f.options.Kernel, "kernel", "", "a User Mode Linux kernel instead of the built one")
	c.Flags().StringVar(&f.options.Rootfs, "rootfs", "", "a root file system instead of the built one")
}

// start brings a guest up as the flags say.
func (f *guestFlags) start(c *cobra.Command, name string) (*guest.Guest, error) {
	o := f.options
	o.Name = name
	if err := guest.CheckName(name); err != nil {
		return nil, err
	}
	var err error
	if o.Memory, err = disk.ParseSize(f.mem); err != nil {
		return nil, fmt.Errorf("--mem: %w", err)
	}
	size, err := disk.ParseSize(f.diskSize)
	if err != nil {
		return nil, fmt.Errorf("--disk-size: %w", err)
	}
	if f.disks < 0 || f.disks > guest.MaxDisks {
		return nil, fmt.Errorf("--disks %d: a guest has 0 to %d", f.disks, guest.MaxDisks)
	}
	for range f.disks {
		o.Disks = append(o.Disks, guest.DiskOptions{Size: size})
	}
	if f.lab != "" {
		if o.Join, err = guest.JoinLab(f.lab); err != nil {
			return nil, err
		}
	}
	if o, err = guest.Built(c.Context(), o); err != nil {
		return nil, err
	}
	return guest.Start(c.Context(), o)
}

func newGuestUpCmd(name *string) *cobra.Command {
	var f guestFlags
	c := &cobra.Command{
		Use:   "up",
		Short: "Boot a guest",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			began := time.Now()
			g, err := f.start(c, *name)
			if err != nil {
				return err
			}
			info, err := g.Info(c.Context())
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			_, _ = fmt.Fprintf(out, "The guest %s is up after %.1f s: Linux %s, address %s, %d disks.\n",
				g.Name(), time.Since(began).Seconds(), info.Kernel, g.Address().Addr(), f.disks)
			if len(info.MissingModules) > 0 {
				_, _ = fmt.Fprintf(out, "Its kernel lacks these modules: %s.\n", strings.Join(info.MissingModules, ", "))
			}
			_, _ = fmt.Fprintf(out, "Run something in it: castellan-lab guest exec%s lsblk\n", nameFlag(*name))
			return nil
		},
	}
	f.register(c)
	return c
}

// nameFlag is what to write after a command so that it means this guest.
func nameFlag(name string) string {
	if name == guest.DefaultName {
		return ""
	}
	return " --name " + name
}

func newGuestExecCmd(name *string) *cobra.Command {
	var dir string
	var env []string
	var stdin bool
	c := &cobra.Command{
		Use:   "exec [flags] COMMAND [ARGUMENT...]",
		Short: "Run a command in a guest and hand on its output and exit code",
		Long: `Run a command in a guest, without a shell, and hand on its standard output, its
standard error and its exit code. 126 says that it could not be run at all.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			var in io.Reader
			if stdin {
				in = c.InOrStdin()
			}
			exit, err := g.Run(c.Context(), agent.Command{
				Argv: args, Env: env, Dir: dir, Stdin: in, Stdout: c.OutOrStdout(), Stderr: c.ErrOrStderr(),
			})
			if err != nil {
				return notRun{err}
			}
			return exitCode(exit.Code)
		},
	}
	c.Flags().StringVar(&dir, "dir", "/", "working directory in the guest")
	c.Flags().StringArrayVar(&env, "env", nil, "KEY=value for the command; may be repeated")
	c.Flags().BoolVarP(&stdin, "stdin", "i", false, "feed the standard input to the command")
	c.Flags().SetInterspersed(false)
	return c
}

func exitCode(code int) error {
	if code == 0 {
		return nil
	}
	return exitStatus(code)
}

// notRun is a command that could not be run, as shells count.
type notRun struct{ error }

func (notRun) ExitCode() int { return 126 }

func (e notRun) Error() string { return "castellan-lab: " + e.error.Error() }
func (e notRun) Unwrap() error { return e.error }

func newGuestBesideCmd(name *string) *cobra.Command {
	c := &cobra.Command{
		Use:   "beside COMMAND [ARGUMENT...]",
		Short: "Run a command of this machine on a guest's network",
		Long: `Run a command of this machine in the network namespace of a guest, where it
reaches the guest's address, such as a mon that runs there, and nothing else.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			cmd := exec.CommandContext(c.Context(), args[0], args[1:]...) // the user's own command, without a shell
			cmd.Stdin, cmd.Stdout, cmd.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
			if err := g.StartBeside(cmd); err != nil {
				return notRun{fmt.Errorf("running %s: %w", args[0], err)}
			}
			err = cmd.Wait()
			var ended *exec.ExitError
			if errors.As(err, &ended) && ended.Exited() {
				return exitCode(ended.ExitCode())
			}
			return err
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

func newGuestPutCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "put FILE PATH",
		Short: "Copy a file into a guest",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			st, err := f.Stat()
			if err != nil {
				return err
			}
			if !st.Mode().IsRegular() {
				return fmt.Errorf("%s is not a regular file", args[0])
			}
			return g.Put(c.Context(), args[1], st.Mode().Perm(), f)
		},
	}
}

func newGuestGetCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "get PATH FILE",
		Short: "Copy a file out of a guest; - writes it to the standard output",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			if args[1] == "-" {
				return g.Get(c.Context(), args[0], c.OutOrStdout())
			}
			// Beside the target, so that a failed copy leaves what was there.
			tmp, err := os.CreateTemp(filepath.Dir(args[1]), ".get-*")
			if err != nil {
				return err
			}
			defer func() { _ = os.Remove(tmp.Name()) }() // gone already after the rename
			if err := errors.Join(g.Get(c.Context(), args[0], tmp), tmp.Close()); err != nil {
				return err
			}
			return os.Rename(tmp.Name(), args[1])
		},
	}
}

func newGuestStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the guests of this machine",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := guest.List()
			if err != nil {
				return err
			}
			if len(all) == 0 {
				_, _ = fmt.Fprintln(c.OutOrStdout(), "No guest is up.")
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "NAME\tSTATE\tAGE\tPID\tMEMORY\tTAKEN\tNETWORK\tADDRESS\tDISKS")
			for _, s := range all {
				network := "own"
				if s.Lab != "" {
					network = "lab " + s.Lab
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\n", s.Name, s.State, age(s.Created), s.Pid,
					disk.FormatSize(s.Memory), disk.FormatSize(s.Resident), network, s.Address, s.Disks)
			}
			return w.Flush()
		},
	}
}

func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Round(time.Second).String()
}

func newGuestDownCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a guest and remove all of it, its disks included",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return guest.Down(c.Context(), *name)
		},
	}
}

func newGuestDiskCmd(name *string) *cobra.Command {
	c := &cobra.Command{
		Use:   "disk",
		Short: "Plug, pull and list the disks of a guest",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newGuestDiskAddCmd(name), newGuestDiskPullCmd(name), newGuestDiskPlugCmd(name),
		newGuestDiskDropCmd(name), newGuestDiskListCmd(name))
	return c
}

func newGuestDiskAddCmd(name *string) *cobra.Command {
	var o guest.DiskOptions
	var size string
	c := &cobra.Command{
		Use:   "add",
		Short: "Plug a new blank disk into a running guest",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Size, err = disk.ParseSize(size); err != nil {
				return fmt.Errorf("--size: %w", err)
			}
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			d, err := g.AddDiskIn(c.Context(), o)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.OutOrStdout(), "%s  serial %s  slot %d  %s\n", d.Path(), d.Serial, d.Slot, disk.FormatSize(d.Size))
			return nil
		},
	}
	c.Flags().StringVar(&size, "size", "8Gi", "size of the disk; the file is sparse")
	c.Flags().StringVar(&o.Serial, "serial", "", "serial number; a random one when not given")
	c.Flags().IntVar(&o.Slot, "slot", 0, fmt.Sprintf("slot, 1 to %d; the lowest free one when not given", guest.MaxDisks))
	return c
}

func newGuestDiskPullCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "pull DISK",
		Short: "Pull a disk (by name or serial number) out of a running guest",
		Long: `Pull a disk out of a running guest. LVM and dm-crypt devices on it answer with
I/O errors from then on. A disk that is mounted, or that a process has open
itself, cannot be pulled; the error says by whom. The content is kept:
"disk plug" puts the disk back, "disk drop" throws it away.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			d, err := g.PullDisk(c.Context(), args[0])
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.OutOrStdout(), "pulled the disk with serial %s\n", d.Serial)
			return nil
		},
	}
}

func newGuestDiskPlugCmd(name *string) *cobra.Command {
	var slot int
	c := &cobra.Command{
		Use:   "plug SERIAL",
		Short: "Plug a disk that was pulled, with what is on it",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			d, err := g.PlugDisk(c.Context(), args[0], slot)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.OutOrStdout(), "%s  serial %s  slot %d\n", d.Path(), d.Serial, d.Slot)
			return nil
		},
	}
	c.Flags().IntVar(&slot, "slot", 0, fmt.Sprintf("slot, 1 to %d; the lowest free one when not given", guest.MaxDisks))
	return c
}

func newGuestDiskDropCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "drop SERIAL",
		Short: "Throw away a disk that was pulled",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			return g.DropDisk(args[0])
		},
	}
}

func newGuestDiskListCmd(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the disks of a guest and what stands on them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := guest.Open(*name)
			if err != nil {
				return err
			}
			disks, err := g.Disks(c.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "SLOT\tDEVICE\tSERIAL\tSIZE\tHELD BY")
			for _, d := range disks {
				if d.Slot == 0 {
					_, _ = fmt.Fprintf(w, "-\tpulled\t%s\t%s\t\n", d.Serial, disk.FormatSize(d.Size))
					continue
				}
				_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", d.Slot, d.Path(), d.Serial, disk.FormatSize(d.Size), strings.Join(d.Holders, ", "))
			}
			return w.Flush()
		},
	}
}
