package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/guest/agent"
	"github.com/castellan-storage/castellan/lab/guest/mconsole"
)

// plugLimit bounds how long the guest may take to notice a disk or to let go
// of one.
const plugLimit = 20 * time.Second

// Disk is a disk of a guest.
type Disk struct {
	// Name is the kernel's: "ubdb". Empty while the disk is pulled.
	Name string
	// Slot is where it is plugged, 1 to MaxDisks; 0 while it is pulled.
	Slot   int
	Serial string
	// Size in bytes, and the file of this machine that holds the content.
	Size int64
	File string
	// Links are udev's names for the disk, Holders what stands on it. Both
	// come from the guest and are empty while the disk is pulled.
	Links, Holders []string
}

// Path is the device in the guest: "/dev/ubdb".
func (d Disk) Path() string { return "/dev/" + d.Name }

// ByID is udev's link with the serial number, which the disk keeps in every
// slot.
func (d Disk) ByID() string { return "/dev/disk/by-id/ubd-UBD_" + d.Serial }

// ByPath is udev's link with the slot, which names whatever disk is there.
func (d Disk) ByPath() string { return fmt.Sprintf("/dev/disk/by-path/platform-uml-blkdev.%d", d.Slot) }

func (g *Guest) diskFile(serial string) string {
	return filepath.Join(g.dir, diskDir, serial+".img")
}

func (g *Guest) disk(r diskRecord) Disk {
	d := Disk{Slot: r.Slot, Serial: r.Serial, Size: r.Size, File: g.diskFile(r.Serial)}
	if r.Slot != 0 {
		d.Name = kernelName(r.Slot)
	}
	return d
}

// AddDisk plugs a new blank disk of size bytes into the lowest free slot of
// the running guest, with a serial number of its own when serial is empty. It
// returns when udev has named it.
func (g *Guest) AddDisk(ctx context.Context, size int64, serial string) (Disk, error) {
	return g.AddDiskIn(ctx, DiskOptions{Size: size, Serial: serial})
}

// AddDiskIn is AddDisk with a choice of the slot.
func (g *Guest) AddDiskIn(ctx context.Context, o DiskOptions) (Disk, error) {
	if err := o.check(); err != nil {
		return Disk{}, err
	}
	unlock, err := lock(g.dir, lockWait)
	if err != nil {
		return Disk{}, g.lost(err)
	}
	defer unlock()
	return g.plugNew(ctx, o)
}

// plugNew is AddDiskIn for who holds the lock.
func (g *Guest) plugNew(ctx context.Context, o DiskOptions) (Disk, error) {
	rec, err := load(g.dir)
	if err != nil {
		return Disk{}, err
	}
	if o.Serial == "" {
		o.Serial = disk.NewSerial()
	}
	if slices.ContainsFunc(rec.Disks, func(d diskRecord) bool { return d.Serial == o.Serial }) {
		return Disk{}, fmt.Errorf("the guest %s has a disk %s already", rec.Name, o.Serial)
	}
	slot, err := rec.slotOf(o.Slot)
	if err != nil {
		return Disk{}, fmt.Errorf("the guest %s: %w", rec.Name, err)
	}
	if err := createSparse(g.diskFile(o.Serial), o.Size); err != nil {
		return Disk{}, fmt.Errorf("making the disk %s: %w", o.Serial, err)
	}
	// Recorded first: a disk that is plugged and not recorded could not be
	// pulled again.
	rec.Disks = append(rec.Disks, diskRecord{Serial: o.Serial, Size: o.Size, Slot: slot})
	if err := rec.save(g.dir); err != nil {
		return Disk{}, err
	}
	d := g.disk(rec.Disks[len(rec.Disks)-1])
	if err := g.plug(ctx, d); err != nil {
		rec.Disks = rec.Disks[:len(rec.Disks)-1]
		return Disk{}, errors.Join(err, rec.save(g.dir), os.Remove(d.File))
	}
	return d, nil
}

// PlugDisk plugs a disk that was pulled, with what is on it, into a slot; the
// lowest free one when slot is 0.
func (g *Guest) PlugDisk(ctx context.Context, serial string, slot int) (Disk, error) {
	if err := (DiskOptions{Size: 1 << 20, Serial: serial, Slot: slot}).check(); err != nil {
		return Disk{}, err
	}
	unlock, err := lock(g.dir, lockWait)
	if err != nil {
		return Disk{}, g.lost(err)
	}
	defer unlock()
	rec, err := load(g.dir)
	if err != nil {
		return Disk{}, err
	}
	i, err := rec.find(serial)
	if err != nil {
		return Disk{}, err
	}
	if rec.Disks[i].Slot != 0 {
		return Disk{}, fmt.Errorf("the disk %s is plugged already, as %s", serial, kernelName(rec.Disks[i].Slot))
	}
	free, err := rec.slotOf(slot)
	if err != nil {
		return Disk{}, fmt.Errorf("the guest %s: %w", rec.Name, err)
	}
	rec.Disks[i].Slot = free
	if err := rec.save(g.dir); err != nil {
		return Disk{}, err
	}
	d := g.disk(rec.Disks[i])
	if err := g.plug(ctx, d); err != nil {
		rec.Disks[i].Slot = 0
		return Disk{}, errors.Join(err, rec.save(g.dir))
	}
	return d, nil
}

// plug tells the kernel about a disk and waits until udev has named it. When
// that fails the disk is out of the kernel again.
func (g *Guest) plug(ctx context.Context, d Disk) error {
	// "d": take the file as it is, without looking for a copy-on-write header
	// in what the guest has written there.
	config := fmt.Sprintf("config ubd%dd=%s,,%s", d.Slot, d.File, d.Serial)
	if _, err := g.console(ctx, config); err != nil {
		return fmt.Errorf("plugging the disk %s: %w", d.Serial, err)
	}
	ctx, cancel := context.WithTimeout(ctx, plugLimit)
	defer cancel()
	err := g.poll(ctx, func() error {
		disks, err := g.client.Disks(ctx, false)
		if err != nil {
			return err
		}
		for _, seen := range disks {
			if seen.Name == d.Name && slices.Contains(seen.Links, d.ByID()) {
				return nil
			}
		}
		return fmt.Errorf("udev has not named %s", d.Name)
	})
	if err != nil {
		out, cancel := context.WithTimeout(context.WithoutCancel(ctx), plugLimit)
		defer cancel()
		_, removeErr := g.console(out, fmt.Sprintf("remove ubd%d", d.Slot))
		return errors.Join(fmt.Errorf("plugging the disk %s: %w", d.Serial, err), removeErr)
	}
	return nil
}

// PullDisk takes a disk, named by serial number or by the kernel's name, out
// of the running guest. Whatever device-mapper devices stand on it answer with
// I/O errors from then on, as after a real pull. A disk that a process has
// open itself, or that is mounted, cannot be pulled: the kernel's driver does
// not let go of it; the error says who has it. The content is kept for
// PlugDisk.
func (g *Guest) PullDisk(ctx context.Context, what string) (Disk, error) {
	unlock, err := lock(g.dir, lockWait)
	if err != nil {
		return Disk{}, g.lost(err)
	}
	defer unlock()
	rec, err := load(g.dir)
	if err != nil {
		return Disk{}, err
	}
	i, err := rec.find(what)
	if err != nil {
		return Disk{}, err
	}
	if rec.Disks[i].Slot == 0 {
		return Disk{}, fmt.Errorf("the disk %s is pulled already", rec.Disks[i].Serial)
	}
	if err := g.unplug(ctx, g.disk(rec.Disks[i])); err != nil {
		return Disk{}, err
	}
	rec.Disks[i].Slot = 0
	return g.disk(rec.Disks[i]), rec.save(g.dir)
}

func (g *Guest) unplug(ctx context.Context, d Disk) error {
	ctx, cancel := context.WithTimeout(ctx, plugLimit)
	defer cancel()
	remove := fmt.Sprintf("remove ubd%d", d.Slot)
	_, err := g.console(ctx, remove)
	var refused *mconsole.CommandError
	if err == nil {
		return nil
	}
	if !errors.As(err, &refused) {
		return fmt.Errorf("pulling the disk %s: %w", d.Serial, err)
	}
	if err := g.client.CutHolders(ctx, d.Name); err != nil {
		return fmt.Errorf("pulling the disk %s: %w", d.Serial, err)
	}
	// udev opens a disk whose users have closed it to look at it: that passes.
	short, cancelShort := context.WithTimeout(ctx, 5*time.Second)
	defer cancelShort()
	err = g.poll(short, func() error {
		_, err := g.console(ctx, remove)
		return err
	})
	if err == nil {
		return nil
	}
	disks, listErr := g.client.Disks(ctx, true)
	for _, seen := range disks {
		if seen.Name == d.Name && len(seen.Holders) > 0 {
			return fmt.Errorf("pulling the disk %s: %s is %s: end that first", d.Serial, d.Name, strings.Join(seen.Holders, ", "))
		}
	}
	return errors.Join(fmt.Errorf("pulling the disk %s: %w", d.Serial, err), listErr)
}

// DropDisk removes a pulled disk and what is on it for good.
func (g *Guest) DropDisk(serial string) error {
	unlock, err := lock(g.dir, lockWait)
	if err != nil {
		return g.lost(err)
	}
	defer unlock()
	rec, err := load(g.dir)
	if err != nil {
		return err
	}
	i, err := rec.find(serial)
	if err != nil {
		return err
	}
	if rec.Disks[i].Slot != 0 {
		return fmt.Errorf("the disk %s is plugged: pull it first", serial)
	}
	if err := os.Remove(g.diskFile(rec.Disks[i].Serial)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the disk %s: %w", serial, err)
	}
	rec.Disks = slices.Delete(rec.Disks, i, i+1)
	return rec.save(g.dir)
}

// Disks lists the guest's disks by slot, pulled ones last.
func (g *Guest) Disks(ctx context.Context) ([]Disk, error) {
	rec, err := load(g.dir)
	if err != nil {
		return nil, err
	}
	seen, err := g.client.Disks(ctx, true)
	if err != nil {
		return nil, err
	}
	return joinDisks(rec.Disks, seen, g.disk), nil
}

func joinDisks(recorded []diskRecord, seen []agent.Disk, make func(diskRecord) Disk) []Disk {
	var out []Disk
	for _, r := range recorded {
		d := make(r)
		if i := slices.IndexFunc(seen, func(s agent.Disk) bool { return s.Name == d.Name }); i >= 0 {
			d.Links, d.Holders = seen[i].Links, seen[i].Holders
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b Disk) int {
		rank := func(d Disk) int { return (d.Slot + MaxDisks) % (MaxDisks + 1) } // slot 0 comes last
		return rank(a) - rank(b)
	})
	return out
}

// console sends a command to the guest's kernel.
func (g *Guest) console(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, plugLimit)
	defer cancel()
	return mconsole.Call(ctx, filepath.Join(g.dir, socketDir, umid, "mconsole"), command)
}

// poll repeats f until it succeeds or ctx ends; the error is then f's last.
func (g *Guest) poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// lost explains an error that comes from the guest's directory being gone.
func (g *Guest) lost(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the guest %s is %w", g.rec.Name, ErrNotUp)
	}
	return err
}

// createSparse makes an empty file of the given size that takes no room yet.
func createSparse(path string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}
