package activate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/castellan-storage/castellan/internal/node/cephconf"
	"github.com/castellan-storage/castellan/internal/node/crypt"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/label"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/run"
	"github.com/castellan-storage/castellan/internal/node/volume"
)

// ErrKey says that a volume does not open with the key that the mons have for its OSD.
var ErrKey = errors.New("the key does not fit")

// noKey is cryptsetup's exit code for a passphrase that fits no slot.
const noKey = 2

// links are the names in an OSD's directory of its parts.
func links() map[device.Role]string {
	return map[device.Role]string{device.RoleBlock: "block", device.RoleDB: "block.db", device.RoleWAL: "block.wal"}
}

// piece is one part of an OSD on LVM: a volume, or a partition for a database.
type piece struct {
	role device.Role
	path string
	// lv is the volume; only its UUID is set for a partition (its PARTUUID). A mapping on
	// it has this uuid as its name.
	lv request.LV
	// rotational says that it lies on a spinning disk.
	rotational bool
}

// lvm writes the directory of an OSD on volumes: what `ceph-volume lvm activate` does, by
// the programs that it runs, without its Python. Where that mounts a tmpfs over the
// directory of an encrypted OSD, which is gone with this container, nothing is mounted.
func lvm(ctx context.Context, node Node, runner Runner, req Request, seen inspect.Result, data device.Found) error {
	tags, lockbox, err := readTags(ctx, runner, data)
	if err != nil {
		return err
	}
	pieces, err := find(ctx, runner, req, seen, tags)
	if err != nil {
		return err
	}
	if err := awake(ctx, runner, pieces); err != nil {
		return err
	}
	if tags["ceph.with_tpm"] == "1" {
		// Its key is in the machine's TPM, which ceph-volume knows how to ask.
		_, err := runner.Run(ctx, "ceph-volume", "lvm", "activate", "--no-systemd", "--no-tmpfs", "--bluestore", strconv.Itoa(req.ID), req.UUID)
		return err
	}
	paths := map[device.Role]string{}
	for _, p := range pieces {
		paths[p.role] = p.path
	}
	if data.Encrypted {
		if paths, err = open(ctx, node, runner, req.Dir, req.UUID, pieces, lockbox); err != nil {
			return err
		}
	}
	for _, name := range links() { // an earlier start may have had a part that is gone
		if err := unlink(filepath.Join(req.Dir, name)); err != nil {
			return err
		}
	}
	return prime(node, req, paths)
}

// readTags reads the tags of the OSD's data volume. One of them is the key to its
// lockbox, which comes apart from the others and must not be logged.
func readTags(ctx context.Context, runner Runner, data device.Found) (tags map[string]string, lockbox string, err error) {
	out, err := runner.Run(ctx, "lvs", "--noheadings", "--options", "lv_tags", data.VG+"/"+data.LV)
	if err != nil {
		return nil, "", fmt.Errorf("reading the tags of %s/%s: %w", data.VG, data.LV, err)
	}
	tags, lockbox = volume.ParseTags(string(out))
	return tags, lockbox, nil
}

// find brings the parts of the OSD together. Which there must be, the data volume's tags
// say: an OSD is not started without its database.
func find(ctx context.Context, runner Runner, req Request, seen inspect.Result, tags map[string]string) ([]piece, error) {
	var pieces []piece
	for _, role := range []device.Role{device.RoleBlock, device.RoleDB, device.RoleWAL} {
		uuid := tags["ceph."+string(role)+"_uuid"]
		i := slices.IndexFunc(seen.Found, func(f device.Found) bool {
			return f.Mode == "lvm" && f.Role == role && f.UUID == req.UUID && f.FSID == req.FSID && f.ID == req.ID
		})
		switch {
		case i >= 0:
			f := seen.Found[i]
			p := piece{role: role, path: f.Path, lv: request.LV{VG: f.VG, Name: f.LV, UUID: f.LVUUID}}
			for _, below := range f.Devices {
				if d := device.Find(seen.Devices, below); d >= 0 {
					p.rotational = p.rotational || seen.Devices[d].Rotational
				}
			}
			pieces = append(pieces, p)
		case uuid != "" && role != device.RoleBlock:
			p, err := partition(ctx, runner, role, uuid, seen.Devices)
			if err != nil {
				return nil, err
			}
			pieces = append(pieces, p)
		}
	}
	return pieces, nil
}

// partition finds a database or WAL that is no volume: by udev's link, and where udev has
// made none by reading all disks, of which one may hang.
func partition(ctx context.Context, runner Runner, role device.Role, uuid string, devices []device.Device) (piece, error) {
	if i := device.FindPartition(devices, uuid); i >= 0 {
		return piece{role: role, path: devices[i].Path, lv: request.LV{UUID: uuid}}, nil
	}
	out, err := runner.Run(ctx, "blkid", "-t", "PARTUUID="+uuid, "-o", "device")
	found := strings.Fields(string(out))
	if err != nil || len(found) != 1 {
		return piece{}, errors.Join(fmt.Errorf("the %s of the OSD, a volume or partition with the uuid %s, is not on this node", role, uuid), err)
	}
	return piece{role: role, path: found[0], lv: request.LV{UUID: uuid}}, nil
}

// awake makes the volumes devices: after a restart of the node nobody may have done so.
// Others in their groups are left as they are, since one that is broken must not keep
// this OSD down.
func awake(ctx context.Context, runner Runner, pieces []piece) error {
	var volumes []string
	for _, p := range pieces {
		if p.lv.Name != "" {
			volumes = append(volumes, p.lv.VG+"/"+p.lv.Name)
		}
	}
	if _, err := runner.Run(ctx, "lvchange", append([]string{"--activate", "y"}, volumes...)...); err != nil {
		return fmt.Errorf("activating the volumes: %w", err)
	}
	return nil
}

// open opens the dm-crypt mappings of the parts and returns the paths to use. A mapping
// that is open already serves as it is; then no mon is asked for the key.
func open(ctx context.Context, node Mappings, runner Runner, dir, uuid string, pieces []piece, lockbox string) (map[device.Role]string, error) {
	paths := map[device.Role]string{}
	key := ""
	for _, p := range pieces {
		there, err := node.Open([]request.LV{p.lv})
		if err != nil {
			return nil, err
		}
		if len(there) > 0 {
			paths[p.role] = "/dev/mapper/" + there[0].Name
			continue
		}
		if key == "" {
			if key, err = fetchKey(ctx, runner, dir, uuid, lockbox); err != nil {
				return nil, err
			}
		}
		args := []string{"--key-file", "-", "--allow-discards", "luksOpen", p.path, p.lv.UUID}
		if !p.rotational {
			args = append(args, "--perf-no_read_workqueue", "--perf-no_write_workqueue")
		}
		if _, err := runner.Feed(ctx, []byte(key), "cryptsetup", args...); err != nil {
			return nil, fmt.Errorf("opening %s with its key: %w", p.path, fits(err))
		}
		if there, err = node.Open([]request.LV{p.lv}); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(there, func(m crypt.Mapping) bool { return m.Name == p.lv.UUID }) {
			return nil, fmt.Errorf("opening %s: cryptsetup has ended well, and there is no mapping", p.path)
		}
		paths[p.role] = "/dev/mapper/" + p.lv.UUID
	}
	return paths, nil
}

// Unlock opens the mapping of an encrypted OSD's data volume with the key that the mons
// have for the OSD, and returns its path; dir is for a file with a key meanwhile. ErrKey
// says that this key does not open it.
func Unlock(ctx context.Context, node Mappings, runner Runner, dir string, data device.Found) (string, error) {
	_, lockbox, err := readTags(ctx, runner, data)
	if err != nil {
		return "", err
	}
	pieces := []piece{{role: device.RoleBlock, path: data.Path, lv: request.LV{VG: data.VG, Name: data.LV, UUID: data.LVUUID}}}
	if err := awake(ctx, runner, pieces); err != nil {
		return "", err
	}
	paths, err := open(ctx, node, runner, dir, data.UUID, pieces, lockbox)
	return paths[device.RoleBlock], err
}

// Fits proves that the key which the mons have for an encrypted OSD opens the volumes at
// paths: ErrKey says of which it does not. Nothing is opened, and a mapping that is open
// proves nothing: it may be of an older key that Ceph has thrown away.
func Fits(ctx context.Context, runner Runner, dir string, data device.Found, paths ...string) error {
	_, lockbox, err := readTags(ctx, runner, data)
	if err != nil {
		return err
	}
	key, err := fetchKey(ctx, runner, dir, data.UUID, lockbox)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if _, err := runner.Feed(ctx, []byte(key), "cryptsetup", "--key-file", "-", "--test-passphrase", "luksOpen", p); err != nil {
			return fmt.Errorf("trying the key of %s: %w", p, fits(err))
		}
	}
	return nil
}

// fits gives cryptsetup's failure its meaning.
func fits(err error) error {
	if run.Exit(err) == noKey {
		return fmt.Errorf("%w: %w", ErrKey, err)
	}
	return err
}

// fetchKey asks the mons for the key of an encrypted OSD's volumes, as its lockbox: a
// user that may do nothing else, whose own key is with the volume. That key is in a file
// in dir meanwhile.
func fetchKey(ctx context.Context, runner Runner, dir, uuid, lockbox string) (string, error) {
	if lockbox == "" {
		return "", errors.New("the OSD is encrypted, and its data volume does not carry the key to its lockbox")
	}
	user := "client.osd-lockbox." + uuid
	ring, err := os.CreateTemp(dir, "lockbox-")
	if err != nil {
		return "", fmt.Errorf("writing the key of %s: %w", user, err)
	}
	defer func() { _ = os.Remove(ring.Name()) }()
	_, err = ring.WriteString(cephconf.Keyring(user, lockbox))
	if err = errors.Join(err, ring.Close()); err != nil {
		return "", fmt.Errorf("writing the key of %s: %w", user, err)
	}
	out, err := runner.Run(ctx, "ceph", "--name", user, "--keyring", ring.Name(), "--connect-timeout", "60", "config-key", "get", "dm-crypt/osd/"+uuid+"/luks")
	if err != nil {
		return "", fmt.Errorf("asking the mons for the key of OSD %s: %w", uuid, err)
	}
	key := strings.TrimSpace(string(out))
	if key == "" {
		return "", fmt.Errorf("asking the mons for the key of OSD %s: the answer is empty", uuid)
	}
	return key, nil
}

// prime writes the directory from the label of the data and links the parts. Whose it is
// the label says: what led here, such as tags, can be wrong.
func prime(node Node, req Request, paths map[device.Role]string) error {
	dev, err := node.Device(paths[device.RoleBlock])
	if err != nil {
		return fmt.Errorf("opening the OSD's device: %w", err)
	}
	defer func() { _ = dev.Close() }()
	if err := label.WriteDir(dev, req.Dir, req.own); err != nil {
		return fmt.Errorf("%s: %w", paths[device.RoleBlock], err)
	}
	for role, path := range paths {
		if err := relink(path, filepath.Join(req.Dir, links()[role])); err != nil {
			return err
		}
	}
	return nil
}

// own says that a label is of the OSD that is asked for.
func (req Request) own(l label.Label) error {
	if l.ID != req.ID || l.UUID != req.UUID || l.FSID != req.FSID {
		return fmt.Errorf("the label is of another OSD: osd.%d, uuid %s, cluster %s", l.ID, l.UUID, l.FSID)
	}
	return nil
}

// unlink removes a link, and nothing else.
func unlink(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clearing the OSD's directory: %w", err)
	}
	if st.Mode()&os.ModeSymlink == 0 {
		return fmt.Errorf("clearing the OSD's directory: %s is not a link; it is left alone", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("clearing the OSD's directory: %w", err)
	}
	return nil
}
