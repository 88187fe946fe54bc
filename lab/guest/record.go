package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotUp says that there is no such guest.
var ErrNotUp = errors.New("not up")

// record is what is kept of a guest in its directory. The file is readable by
// root only: it holds the agent's token.
type record struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Memory  int64     `json:"memory"`
	Rootfs  string    `json:"rootfs"`
	Kernel  string    `json:"kernel"`
	Lab     string    `json:"lab,omitempty"`
	// LabProcess is in the network namespace of that lab.
	LabProcess process      `json:"labProcess"`
	Address    netip.Prefix `json:"address"`
	Gateway    netip.Addr   `json:"gateway"`
	Token      string       `json:"token"`
	// Process is the guest's kernel; the zero value until it was started.
	Process process `json:"process"`
	// Ready says that the guest has booted.
	Ready bool         `json:"ready"`
	Disks []diskRecord `json:"disks,omitempty"`
}

// diskRecord is a disk that is plugged, or was pulled and kept.
type diskRecord struct {
	Serial string `json:"serial"`
	Size   int64  `json:"size"`
	// Slot is 0 while the disk is pulled.
	Slot int `json:"slot,omitempty"`
}

const recordFile = "guest.json"

func (r *record) save(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("recording the guest %s: %w", r.Name, err)
	}
	tmp := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("recording the guest %s: %w", r.Name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, recordFile)); err != nil {
		return fmt.Errorf("recording the guest %s: %w", r.Name, err)
	}
	return nil
}

// load reads a guest's record; ErrNotUp when there is no guest of that name.
func load(dir string) (*record, error) {
	name := filepath.Base(dir)
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the guest %s is %w: start it with castellan-lab guest up --name %s", name, ErrNotUp, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of the guest %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("reading the record of the guest %s: %w", name, err)
	}
	return &r, nil
}

// slotOf is the slot for a new disk: the wanted one if it is free, or the
// lowest free one.
func (r *record) slotOf(wanted int) (int, error) {
	used := map[int]string{}
	for _, d := range r.Disks {
		if d.Slot != 0 {
			used[d.Slot] = d.Serial
		}
	}
	if wanted != 0 {
		if serial, taken := used[wanted]; taken {
			return 0, fmt.Errorf("slot %d holds the disk %s", wanted, serial)
		}
		return wanted, nil
	}
	for slot := 1; slot <= MaxDisks; slot++ {
		if _, taken := used[slot]; !taken {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("all %d slots hold a disk", MaxDisks)
}

// find looks a disk up by serial number or, when it is plugged, by the
// kernel's name with or without /dev.
func (r *record) find(what string) (int, error) {
	name := strings.TrimPrefix(what, "/dev/")
	for i, d := range r.Disks {
		if d.Serial == what || d.Slot != 0 && kernelName(d.Slot) == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the guest %s has no disk %q: see castellan-lab guest disk list", r.Name, what)
}

// kernelName is what the kernel calls the disk in a slot.
func kernelName(slot int) string { return "ubd" + string(rune('a'+slot)) }

// lockWait is how long a command waits for another one on the same guest.
const lockWait = 30 * time.Second

// lock makes the caller the only one that changes the guest. The kernel frees
// it when the holder dies, however it dies. The directory must exist; that it
// is still the same once the lock is held shows that nobody removed it.
func lock(dir string, patience time.Duration) (func(), error) {
	deadline := time.Now().Add(patience)
	for {
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, dir) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("another command is at work on the guest %s", filepath.Base(dir))
		}
		<-time.After(50 * time.Millisecond)
	}
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// names lists the guests that there is anything of.
func names() ([]string, error) {
	r, err := root()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing guests: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}
