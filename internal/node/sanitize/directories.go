package sanitize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
)

// directories cleans the host's dataDir. All paths are resolved below it: no link
// leads out.
func (h Host) directories(ctx context.Context, req task.Request) []task.Item {
	root, err := os.OpenRoot(h.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []task.Item{{What: "directory", Where: req.DataDir, Outcome: task.Failed, Message: err.Error()}}
	}
	defer func() { _ = root.Close() }()
	free, err := alone(ctx, root)
	if err != nil {
		return []task.Item{{What: "directory", Where: req.DataDir, Outcome: task.Failed, Message: err.Error()}}
	}
	defer free()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return []task.Item{{What: "directory", Where: req.DataDir, Outcome: task.Failed, Message: err.Error()}}
	}
	there := map[string]bool{}
	var items []task.Item
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), "mon-"); ok && id != "" && e.IsDir() {
			there[id] = true
			items = append(items, h.mon(ctx, root, req, id))
		}
	}
	for _, id := range req.Mons {
		if !there[id] {
			items = append(items, task.Item{What: "mon." + id, Outcome: task.Absent, Message: "it has no store on this host"})
		}
	}
	items = append(items, namespace(root, req)...)
	return append(items, sockets(root, h.Root, req)...)
}

// turnWithin bounds the wait for another run to end with the directories: it looks into a
// few stores, which takes seconds.
const turnWithin = 2 * time.Minute

// alone keeps other runs on this host away from the dataDir until free is called: the pod
// of a Job that was replaced while it still ran, and the Jobs of other clusters with the
// same dataDir. All look into stores in one place (scratch), and what one has put there must
// not be taken for what another looks at.
func alone(ctx context.Context, root *os.Root) (free func(), err error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	if err = flock(f, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		// The goroutine has the file for itself: one that is given up still waits on it.
		return wait(ctx, f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking the directory: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

func wait(ctx context.Context, f *os.File) (free func(), err error) {
	free = func() { _ = f.Close() }
	_, err = inspect.InTime(ctx, "waiting for another cleanup on this host", turnWithin, func() (struct{}, error) {
		err := flock(f, unix.LOCK_EX)
		if err != nil {
			free()
		}
		return struct{}{}, err
	}, func(struct{}) { free() })
	if err != nil {
		return nil, err
	}
	return free, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mon removes the store of one mon if it is the cluster's.
func (h Host) mon(ctx context.Context, root *os.Root, req task.Request, id string) task.Item {
	dir := "mon-" + id
	item := task.Item{What: "mon." + id, Where: path.Join(req.DataDir, dir), Outcome: task.Failed}
	fsid, err := h.fsidOf(ctx, root, id)
	switch {
	case errors.Is(err, errEmpty):
	case err != nil:
		item.Message = "making sure whose store it is: " + err.Error()
		return item
	case fsid != req.FSID:
		item.Outcome, item.Message = task.Left, "it belongs to cluster "+fsid
		return item
	}
	if err := remove(root, dir); err != nil {
		item.Message = err.Error()
		return item
	}
	item.Outcome = task.Cleaned
	return item
}

// errEmpty says that a directory holds no file at all, so nothing can be lost.
var errEmpty = errors.New("it is empty")

// uuid is the pattern of one. Expressions are compiled where they are used: what this
// program does most often has no use for them.
const uuid = `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`

// fsidOf asks Ceph's own tools for the cluster in whose monmap a store is. Nothing
// outside the store tells it for certain: keys are rotated and ids are used again by
// other clusters.
func (h Host) fsidOf(ctx context.Context, root *os.Root, id string) (string, error) {
	data := path.Join("mon-"+id, "data")
	_, err := root.Stat(path.Join(data, "store.db"))
	if errors.Is(err, fs.ErrNotExist) {
		if empty, err := noFiles(root, "mon-"+id); err != nil || empty {
			return "", errors.Join(err, errEmpty)
		}
		return "", errors.New("there are files but no store; remove the directory by hand if it is not needed")
	}
	if err != nil {
		return "", err
	}
	if err := unlocked(root, path.Join(data, "store.db/LOCK")); err != nil {
		return "", err
	}
	copied, err := snapshot(root, data)
	if err != nil {
		return "", fmt.Errorf("copying it to look into it: %w", err)
	}
	defer func() { _ = root.RemoveAll(scratch) }()
	dir := filepath.Join(h.Root, copied)
	file := filepath.Join(dir, "monmap")
	if _, err := h.Run.Run(ctx, "ceph-mon", "--id="+id, "--mon-data="+dir, "--extract-monmap="+file,
		"--setuser=ceph", "--setgroup=ceph", "--setuser-match-path="+filepath.Join(dir, "store.db"),
		"--mon-data-avail-crit=0", "--default-log-to-file=false", "--default-log-to-stderr=true"); err != nil {
		return "", err
	}
	out, err := h.Run.Run(ctx, "monmaptool", "--print", file)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^fsid (` + uuid + `)$`).FindSubmatch(out)
	if found == nil {
		return "", errors.New("its monmap names no fsid")
	}
	return string(found[1]), nil
}

// scratch is where a store is looked into, on the same file system as the stores.
const scratch = ".castellan-cleanup"

// snapshot makes a copy of a mon's data, since ceph-mon writes to what it opens, and
// the store may be somebody else's. RocksDB never changes a table once it is written,
// so tables are linked; what else there is, is small and is copied.
func snapshot(root *os.Root, data string) (dir string, err error) {
	if err := root.RemoveAll(scratch); err != nil {
		return "", err
	}
	dir = path.Join(scratch, "data")
	err = fs.WalkDir(root.FS(), data, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		to := path.Join(dir, strings.TrimPrefix(p, data))
		switch {
		case d.IsDir():
			err = root.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		case strings.HasSuffix(p, ".sst"):
			if err = root.Link(p, to); err == nil {
				return nil
			}
			err = duplicate(root, p, to) // on a file system of its own
		default:
			err = duplicate(root, p, to)
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok && err == nil {
			err = root.Chown(to, int(sys.Uid), int(sys.Gid)) // ceph-mon becomes the owner
		}
		return err
	})
	if err == nil {
		err = root.Chmod(scratch, 0o711) // the owner has to get through
	}
	return dir, err
}

func duplicate(root *os.Root, from, to string) error {
	in, err := root.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := root.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}

// unlocked refuses a store that a mon has open.
func unlocked(root *os.Root, name string) error {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return fmt.Errorf("looking whether a mon has it open: %w", err)
	}
	if lock.Type != unix.F_UNLCK {
		return errors.New("a mon still has it open")
	}
	return nil
}

// noFiles says that below a directory are directories only.
func noFiles(root *os.Root, dir string) (bool, error) {
	empty := true
	err := fs.WalkDir(root.FS(), dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			empty = false
			return fs.SkipAll
		}
		return err
	})
	return empty, err
}

// remove removes a directory with all that is in it. One that is a mount point
// itself stays, empty.
func remove(root *os.Root, dir string) error {
	err := root.RemoveAll(dir)
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	entries, readErr := fs.ReadDir(root.FS(), dir)
	if readErr == nil && len(entries) == 0 {
		return nil
	}
	return err
}

// namespace removes the cluster's own directory: the OSDs' directories, logs and
// crash reports. OSDs of an earlier cluster in a namespace of this name stay.
func namespace(root *os.Root, req task.Request) []task.Item {
	where := path.Join(req.DataDir, req.Namespace)
	entries, err := fs.ReadDir(root.FS(), req.Namespace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	item := task.Item{What: "directory", Where: where, Outcome: task.Cleaned}
	if err != nil {
		item.Outcome, item.Message = task.Failed, err.Error()
		return []task.Item{item}
	}
	var items []task.Item
	osdDir := regexp.MustCompile(`^(` + uuid + `)_[0-9a-f-]{36}$`) // <fsid>_<uuid>
	for _, e := range entries {
		if m := osdDir.FindStringSubmatch(e.Name()); m != nil && m[1] != req.FSID {
			items = append(items, task.Item{What: "directory", Where: path.Join(where, e.Name()), Outcome: task.Left, Message: "it belongs to cluster " + m[1]})
			continue
		}
		if err := remove(root, path.Join(req.Namespace, e.Name())); err != nil {
			item.Outcome, item.Message = task.Failed, err.Error()
		}
	}
	if len(items) == 0 && item.Outcome == task.Cleaned {
		if err := root.Remove(req.Namespace); err != nil && !errors.Is(err, syscall.EBUSY) {
			item.Outcome, item.Message = task.Failed, err.Error()
		}
	}
	return append(items, item)
}

// sockets removes the admin sockets on which nobody answers any more. Other
// clusters with the same dataDir keep theirs in the same place.
func sockets(root *os.Root, host string, req task.Request) []task.Item {
	const dir = "exporter"
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	item := task.Item{What: "directory", Where: path.Join(req.DataDir, dir), Outcome: task.Cleaned}
	kept := 0
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 && answers(filepath.Join(host, dir, e.Name())) {
			kept++
			continue
		}
		err = errors.Join(err, remove(root, path.Join(dir, e.Name())))
	}
	if err == nil && kept == 0 {
		if err = root.Remove(dir); errors.Is(err, syscall.EBUSY) {
			err = nil
		}
	}
	switch {
	case err != nil:
		item.Outcome, item.Message = task.Failed, err.Error()
	case kept > 0:
		item.Outcome, item.Message = task.Left, fmt.Sprintf("daemons of others answer on %d sockets in it", kept)
	}
	return []task.Item{item}
}

// answers says that a process listens on a socket. Only a refusal says that none
// does.
func answers(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = c.Close()
		return true
	}
	return !errors.Is(err, syscall.ECONNREFUSED)
}
