// Package rawosd makes an OSD of a whole blank device: what `ceph-volume raw prepare`
// does, by the programs that it runs, without the Python around them. A device takes
// a fifth of the CPU time that way.
//
// An OSD's uuid is noted before Ceph hears of it, and the note is kept until the disk
// carries a finished OSD. So whatever was begun is found again after a crash, and
// undone: the id that Ceph gave is taken back, which Ceph does only for an OSD that
// has never run, and half of a store is wiped.
//
// An OSD that takes a destroyed one's place (Renew) is not noted here and nothing of it
// is taken back: its id, weight and place would go too. Package renew knows its own
// attempts by their uuids.
//
// It must not choose devices, and it must only be given those that a look right before
// has found blank. A key is never an argument, in the environment or in the log.
package rawosd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/cephconf"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/run"
)

const (
	// BootstrapKeyring is where the pod mounts the key of client.bootstrap-osd.
	BootstrapKeyring = "/var/lib/ceph/bootstrap-osd/ceph.keyring"
	// Dir is where the directories of OSDs are.
	Dir = "/var/lib/ceph/osd"
	// lockTries is how often ceph-osd is started anew when somebody else holds the
	// device's lock for a moment (udevd does); ceph-volume tries as often.
	lockTries = 5
	lockPause = time.Second
	// undoTime bounds what is done after something has failed.
	undoTime = time.Minute
	// anyID is the id of an OSD that gets the lowest free one.
	anyID = -1
)

// Runner runs Ceph's programs.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
	Feed(ctx context.Context, in []byte, name string, args ...string) ([]byte, error)
}

// Begun is an OSD that was begun and is not known to be finished.
type Begun struct {
	UUID string `json:"uuid"`
	// Path, ByID and Size are of the device: which one it is.
	Path string `json:"path"`
	ByID string `json:"byID,omitempty"`
	Size uint64 `json:"size"`
}

// is reports whether d is the device of b.
func (b Begun) is(d device.Device) bool {
	if d.Size != b.Size {
		return false
	}
	if b.ByID != "" {
		return slices.Contains(d.Links, b.ByID)
	}
	return d.Path == b.Path
}

// Notes keeps what was begun. Set replaces all of it, durably.
type Notes interface {
	Get(ctx context.Context) ([]Begun, error)
	Set(ctx context.Context, begun []Begun) error
}

// Maker makes OSDs. It may be used by several goroutines.
type Maker struct {
	Run   Runner
	Notes Notes
	// Root is "/" but for tests.
	Root string
	// FSID of the cluster.
	FSID string
	// UID and GID are of Ceph's user in this image.
	UID, GID int
	// Random makes uuids; crypto/rand's reader but for tests.
	Random io.Reader

	mu    sync.Mutex
	read  bool
	begun []Begun
}

// Make makes an OSD of a blank device, in the device class, or in the one that Ceph
// finds when that is empty.
func (m *Maker) Make(ctx context.Context, d device.Device, class string) error {
	uuid, err := newUUID(m.Random)
	if err != nil {
		return err
	}
	b := Begun{UUID: uuid, Path: d.Path, ByID: d.ByID(), Size: d.Size}
	if err := m.note(ctx, func(list []Begun) []Begun { return append(list, b) }); err != nil {
		return err
	}
	if err = m.make(ctx, d, anyID, b.UUID, class); err == nil {
		return m.forget(ctx, b)
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	return errors.Join(err, m.undo(undo, b, d.Path))
}

// Renew makes an OSD of a blank device under the id of a destroyed one, with a uuid by
// which the caller knows it again. After an error the id may be claimed by that uuid and
// half a store may be on the device; both are left as they are.
func (m *Maker) Renew(ctx context.Context, d device.Device, id int, uuid, class string) error {
	if id < 0 {
		return fmt.Errorf("making an OSD anew: %d is no id", id)
	}
	return m.make(ctx, d, id, uuid, class)
}

// newUUID is a random uuid (RFC 9562, version 4).
func newUUID(random io.Reader) (string, error) {
	var u [16]byte
	if _, err := io.ReadFull(random, u[:]); err != nil {
		return "", fmt.Errorf("making a uuid: %w", err)
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), nil
}

// make makes the OSD with a given id, or with the one that Ceph gives (anyID).
func (m *Maker) make(ctx context.Context, d device.Device, want int, uuid, class string) error {
	out, err := m.Run.Run(ctx, "ceph-authtool", "--gen-print-key")
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	key := strings.TrimSpace(string(out))
	id, err := m.register(ctx, uuid, want, key, class)
	if err != nil {
		return err
	}
	dir, err := m.directory(d, id, key)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it holds the key
	if err := m.mkfs(ctx, id, uuid, key, want != anyID); err != nil {
		return err
	}
	l, err := m.label(d.Path)
	switch {
	case err != nil:
		return fmt.Errorf("reading back what was made: %w", err)
	case l.UUID != uuid || l.ID != id || l.FSID != m.FSID || !l.Ready:
		return fmt.Errorf("reading back what was made: the label is of osd.%d, uuid %s, cluster %s, finished %v", l.ID, l.UUID, l.FSID, l.Ready)
	}
	return nil
}

// ceph runs a command as the user that may make OSDs, and nothing else.
func (m *Maker) ceph(ctx context.Context, in []byte, args ...string) ([]byte, error) {
	base := []string{"--name", "client.bootstrap-osd", "--keyring", BootstrapKeyring}
	if in != nil {
		base = append(base, "-i", "-")
	}
	return m.Run.Feed(ctx, in, "ceph", append(base, args...)...)
}

// register tells Ceph of the OSD, and gives the id that it gets: the same for the same
// uuid, and the one that is wanted unless that is anyID. It does so without a key too.
func (m *Maker) register(ctx context.Context, uuid string, want int, key, class string) (int, error) {
	var in []byte
	if key != "" {
		secrets := map[string]string{"cephx_secret": key}
		if class != "" {
			secrets["crush_device_class"] = class
		}
		var err error
		if in, err = json.Marshal(secrets); err != nil {
			return 0, fmt.Errorf("encoding the OSD's secrets: %w", err)
		}
	}
	args := []string{"osd", "new", uuid}
	if want != anyID {
		args = append(args, strconv.Itoa(want))
	}
	out, err := m.ceph(ctx, in, args...)
	if err != nil {
		return 0, fmt.Errorf("registering OSD %s: %w", uuid, err)
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || id < 0 {
		return 0, fmt.Errorf("registering OSD %s: the answer is no id", uuid)
	}
	if want != anyID && id != want {
		return 0, fmt.Errorf("registering OSD %s: Ceph gave it the id %d, not %d", uuid, id, want)
	}
	return id, nil
}

// directory makes the OSD's directory as mkfs wants it, and gives the device to
// Ceph's user.
func (m *Maker) directory(d device.Device, id int, key string) (string, error) {
	name := "osd." + strconv.Itoa(id)
	dir := filepath.Join(m.Root, Dir, "ceph-"+strconv.Itoa(id))
	if err := os.RemoveAll(dir); err != nil {
		return dir, fmt.Errorf("making the directory of %s: %w", name, err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return dir, fmt.Errorf("making the directory of %s: %w", name, err)
	}
	keyring, block := filepath.Join(dir, "keyring"), filepath.Join(dir, "block")
	if err := os.WriteFile(keyring, []byte(cephconf.Keyring(name, key)), 0o600); err != nil {
		return dir, fmt.Errorf("writing the key of %s: %w", name, err)
	}
	if err := os.Symlink(d.Path, block); err != nil {
		return dir, fmt.Errorf("linking the device of %s: %w", name, err)
	}
	for _, p := range []string{dir, keyring, filepath.Join(m.Root, d.Path)} {
		if err := os.Chown(p, m.UID, m.GID); err != nil {
			return dir, fmt.Errorf("giving %s to Ceph's user: %w", p, err)
		}
	}
	return dir, nil
}

// mkfs writes the store. Only one that takes a destroyed OSD's place is checked at once
// (Ceph's own default): that is two thirds of what mkfs costs, all disks of a node are
// made at the same time, and a new OSD that cannot open its store only does not come up.
func (m *Maker) mkfs(ctx context.Context, id int, uuid, key string, check bool) error {
	n := strconv.Itoa(id)
	args := []string{
		"--cluster", "ceph", "--osd-objectstore", "bluestore", "--mkfs", "-i", n, "--keyfile", "-",
		"--osd-data", Dir + "/ceph-" + n + "/", "--osd-uuid", uuid, "--setuser", "ceph", "--setgroup", "ceph",
	}
	if !check {
		args = append(args, "--bluestore-fsck-on-mkfs=false")
	}
	for try := 1; ; try++ {
		_, err := m.Run.Feed(ctx, []byte(key), "ceph-osd", args...)
		if err == nil {
			return nil
		}
		if run.Exit(err) != int(syscall.EWOULDBLOCK) || try == lockTries {
			return fmt.Errorf("making the store of osd.%d: %w", id, err)
		}
		timer := time.NewTimer(lockPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("making the store of osd.%d: %w", id, ctx.Err())
		}
	}
}

func (m *Maker) label(path string) (label.Label, error) {
	f, err := os.Open(filepath.Join(m.Root, path)) //nolint:gosec // a device that the kernel lists
	if err != nil {
		return label.Label{}, err
	}
	defer func() { _ = f.Close() }()
	return label.Read(f)
}

// Settle ends what earlier runs have begun and not finished. devices are the node's,
// as they are now. What cannot be ended yet stays noted, and is told.
func (m *Maker) Settle(ctx context.Context, devices []device.Device) []string {
	begun, err := m.noted(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for _, b := range begun {
		i := slices.IndexFunc(devices, b.is)
		if i < 0 {
			problems = append(problems, fmt.Sprintf("an OSD with uuid %s was begun on %s, which is not there; it is left as it is", b.UUID, b.Path))
			continue
		}
		if err := m.undo(ctx, b, devices[i].Path); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// Unsettled says whether there is anything to settle.
func (m *Maker) Unsettled(ctx context.Context) (bool, error) {
	begun, err := m.noted(ctx)
	return len(begun) > 0, err
}

// undo takes back what was begun on the device at path, unless it has been finished.
func (m *Maker) undo(ctx context.Context, b Begun, path string) error {
	fail := func(err error) error {
		return fmt.Errorf("undoing what was begun on %s (OSD %s): %w", path, b.UUID, err)
	}
	l, err := m.label(path)
	blank := errors.Is(err, label.ErrNone)
	switch {
	case err != nil && !blank:
		return fail(err)
	case !blank && l.UUID == b.UUID && l.Ready:
		return m.forget(ctx, b) // it was finished
	}
	id, err := m.register(ctx, b.UUID, anyID, "", "")
	if err != nil {
		return fail(err)
	}
	if _, err := m.ceph(ctx, nil, "osd", "purge-new", "osd."+strconv.Itoa(id), "--yes-i-really-mean-it"); err != nil {
		return fail(err)
	}
	if !blank && l.UUID == b.UUID {
		if err := m.wipe(path, b); err != nil {
			return fail(err)
		}
	}
	return m.forget(ctx, b)
}

// wipe takes the label of an unfinished OSD from its device, with its copies. Nobody
// may have the device open, and each is read before it is written over.
func (m *Maker) wipe(path string, b Begun) error {
	f, err := os.OpenFile(filepath.Join(m.Root, path), os.O_RDWR|unix.O_EXCL, 0) //nolint:gosec // the device that the note of this very attempt names
	if err != nil {
		return fmt.Errorf("opening it for ourselves: %w", err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, label.Size)
	// The label itself goes last: it is what the next look sees.
	places := append([]int64{0}, label.Copies()...)
	for _, at := range slices.Backward(places) {
		if uint64(at)+label.Size > b.Size {
			continue
		}
		if _, err := f.ReadAt(block, at); err != nil {
			return fmt.Errorf("reading its label at %d: %w", at, err)
		}
		l, err := label.Parse(block)
		if errors.Is(err, label.ErrNone) || err == nil && l.UUID != b.UUID {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading its label at %d: %w", at, err)
		}
		if _, err := f.WriteAt(make([]byte, label.Size), at); err != nil {
			return fmt.Errorf("wiping its label at %d: %w", at, err)
		}
	}
	if err := f.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("wiping its label: %w", err)
	}
	return nil
}

// noted reads the notes, once.
func (m *Maker) noted(ctx context.Context) ([]Begun, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readNotes(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(m.begun), nil
}

func (m *Maker) readNotes(ctx context.Context) error {
	if m.read {
		return nil
	}
	begun, err := m.Notes.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading which OSDs were begun: %w", err)
	}
	m.begun, m.read = begun, true
	return nil
}

// note changes the notes, durably.
func (m *Maker) note(ctx context.Context, change func([]Begun) []Begun) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readNotes(ctx); err != nil {
		return err
	}
	next := change(slices.Clone(m.begun))
	if err := m.Notes.Set(ctx, next); err != nil {
		return fmt.Errorf("noting which OSDs were begun: %w", err)
	}
	m.begun = next
	return nil
}

// forget drops a note.
func (m *Maker) forget(ctx context.Context, b Begun) error {
	return m.note(ctx, func(list []Begun) []Begun {
		return slices.DeleteFunc(list, func(o Begun) bool { return o.UUID == b.UUID })
	})
}
