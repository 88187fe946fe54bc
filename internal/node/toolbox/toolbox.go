// Package toolbox keeps the files that the tools of Ceph read (/etc/ceph/ceph.conf
// and /etc/ceph/keyring) as the cluster's Secret and list of mons say, so that
// `ceph`, `rbd` and `rados` work in the pod that users run them in, also after a
// mon has moved or the key has changed.
//
// It must not talk to Ceph or to Kubernetes: Kubernetes keeps the mounted files
// fresh, and this package copies them. It prints no key.
package toolbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/node/cephconf"
)

// Files says where things are.
type Files struct {
	// Secret is where the Secret rook-ceph-mon is mounted: fsid, ceph-username and
	// ceph-secret (or secret.keyring, as older manifests name it).
	Secret string
	// Endpoints is the file with the key "data" of the ConfigMap
	// rook-ceph-mon-endpoints.
	Endpoints string
	// Override is the user's ceph.conf; it may be missing.
	Override string
	// Out is the directory to write to.
	Out string
}

// Default is where the manifest of the toolbox mounts them.
func Default() Files {
	return Files{
		Secret: "/var/lib/rook-ceph-mon", Endpoints: "/etc/rook/mon-endpoints",
		Override: "/etc/castellan/override/ceph.conf", Out: "/etc/ceph",
	}
}

// Run writes the files at once and whenever what they are made from has changed,
// looking at each tick, until ctx ends. say gets a line for each change, and one
// for a problem when it comes up.
func (f Files) Run(ctx context.Context, ticks <-chan time.Time, say func(string)) {
	last := ""
	for {
		changed, err := f.Sync()
		switch {
		case err != nil && err.Error() != last:
			last = err.Error()
			say(last)
		case err == nil && (changed || last != ""):
			last = ""
			say("the configuration of Ceph's tools is up to date in " + f.Out)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// Sync makes the files as they should be and says whether one has changed.
func (f Files) Sync() (changed bool, err error) {
	conf, keyring, err := f.wanted()
	if err != nil {
		return false, err
	}
	// The key first: who sees the new mons finds a key that they know.
	for _, w := range []struct {
		name string
		data string
		mode fs.FileMode
	}{{"keyring", keyring, 0o600}, {"ceph.conf", conf, 0o644}} {
		c, err := replace(filepath.Join(f.Out, w.name), []byte(w.data), w.mode)
		if err != nil {
			return changed, err
		}
		changed = changed || c
	}
	return changed, nil
}

func (f Files) wanted() (conf, keyring string, err error) {
	data, err := read(f.Endpoints, true)
	if err != nil {
		return "", "", err
	}
	list, err := endpoints.Parse(map[string]string{"data": data})
	if err != nil {
		return "", "", fmt.Errorf("reading the list of mons from %s: %w", f.Endpoints, err)
	}
	user, err := read(filepath.Join(f.Secret, "ceph-username"), false)
	if err != nil {
		return "", "", err
	}
	key, err := read(filepath.Join(f.Secret, "ceph-secret"), false)
	if err == nil && key == "" {
		key, err = read(filepath.Join(f.Secret, "secret.keyring"), true)
	}
	if err != nil {
		return "", "", err
	}
	fsid, err := read(filepath.Join(f.Secret, "fsid"), false)
	if err != nil {
		return "", "", err
	}
	override, err := read(f.Override, false)
	if err != nil {
		return "", "", err
	}
	user = cmp.Or(user, "client.admin")
	for what, v := range map[string]string{"user": user, "key": key, "fsid": fsid} {
		if strings.ContainsAny(v, "\n[]") {
			return "", "", fmt.Errorf("the %s in %s is not one word", what, f.Secret)
		}
	}
	conf = cephconf.Compose(override, fsid, list.MonHost()) + fmt.Sprintf("[%s]\nkeyring = %s\n", user, filepath.Join(f.Out, "keyring"))
	if fsid == "" {
		conf = strings.Replace(conf, "fsid = \n", "", 1)
	}
	return conf, cephconf.Keyring(user, key), nil
}

// read gives the content of a file. One that is missing is empty, unless it is
// needed.
func read(path string, needed bool) (string, error) {
	b, err := os.ReadFile(path) //nolint:gosec // mounted by the pod's spec
	if errors.Is(err, fs.ErrNotExist) && !needed {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the cluster's access: %w", err)
	}
	s := strings.TrimSpace(string(b))
	if s == "" && needed {
		return "", fmt.Errorf("reading the cluster's access: %s is empty", path)
	}
	return s, nil
}

// replace writes a file at once or not at all, and only if it changes.
func replace(path string, data []byte, mode fs.FileMode) (bool, error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) { //nolint:gosec // as above
		return false, nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	return true, nil
}
