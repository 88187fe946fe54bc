// Package state is what is kept on disk of a lab, and how what belongs to a lab
// is told from everything else on the machine: its processes by a recorded pid
// with start time and by a mark in their environment, its loop devices and
// mounts by the lab's directory.
//
// It must not start anything.
package state

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// EnvRoot names the environment variable that says where labs are kept.
const EnvRoot = "CASTELLAN_LAB_STATE"

// EnvName names the environment variable that says which lab is meant where no
// --name is given.
const EnvName = "CASTELLAN_LAB_NAME"

// EnvID marks the processes of a lab: its value is Lab.ID.
const EnvID = "CASTELLAN_LAB_ID"

// DefaultName is the lab that is meant when none is named.
const DefaultName = "lab"

// defaultRoot is where labs are kept: below it everything is root's, and it is
// not a tmpfs, as images are hard links and disks are large.
const defaultRoot = "/var/lib/castellan-lab"

// Lab is what is recorded of a lab.
type Lab struct {
	ID      string    `json:"id"` // of this run; another run of the same name has another
	Name    string    `json:"name"`
	Boot    string    `json:"boot"` // the machine's boot that its processes belong to
	Pid     int       `json:"pid,omitempty"`
	Start   uint64    `json:"start,omitempty"` // clock ticks after boot at which the supervisor began
	Server  string    `json:"server,omitempty"`
	Created time.Time `json:"created"`
}

// Errors that tell how a lab is.
var (
	ErrNotUp = errors.New("not up")
	ErrInUse = errors.New("in use")
)

// CheckRoot says in one line that a lab is root's, to who is not.
func CheckRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root, for namespaces and loop devices: run this with sudo")
	}
	return nil
}

// Root is the directory that holds the labs.
func Root() (string, error) {
	d := os.Getenv(EnvRoot)
	if d == "" {
		return defaultRoot, nil
	}
	abs, err := filepath.Abs(d)
	if err != nil {
		return "", fmt.Errorf("resolving %s=%q: %w", EnvRoot, d, err)
	}
	return abs, nil
}

// CheckName says in one line what is wrong with a lab's name. It is part of
// paths and cgroup names.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[a-z][a-z0-9-]{0,29}$`).MatchString(name) {
		return fmt.Errorf("%q is no name for a lab: use 1 to 30 small letters, digits and hyphens, beginning with a letter", name)
	}
	return nil
}

// Dir is the directory of the lab with this name.
func Dir(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, name), nil
}

// Dir is the lab's directory. The name of a recorded lab is a sound one.
func (l Lab) Dir() (string, error) { return Dir(l.Name) }

// Create records a new lab. It fails with ErrInUse when there is one of that
// name, running or left behind: of two that try, one gets it.
func Create(name string, now time.Time) (Lab, error) {
	dir, err := Dir(name)
	if err != nil {
		return Lab{}, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return Lab{}, fmt.Errorf("making room for labs: %w", err)
	}
	boot, err := BootID()
	if err != nil {
		return Lab{}, err
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return Lab{}, inUse(name)
	} else if err != nil {
		return Lab{}, fmt.Errorf("making room for the lab %s: %w", name, err)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	l := Lab{ID: hex.EncodeToString(id[:]), Name: name, Boot: boot, Created: now}
	if err := l.Save(); err != nil {
		return Lab{}, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

func inUse(name string) error {
	l, err := Load(name)
	if err == nil && l.Alive() {
		return inUseError(fmt.Sprintf("the lab %s is up already: use it, or take it down with castellan-lab down --name %[1]s, or give this one another --name", name))
	}
	return inUseError(fmt.Sprintf("an earlier run left the lab %s behind: clear it away with castellan-lab down --name %[1]s", name))
}

// inUseError is an ErrInUse that says what to do.
type inUseError string

func (e inUseError) Error() string        { return string(e) }
func (e inUseError) Is(target error) bool { return target == ErrInUse }

// stateFile is in the lab's directory.
const stateFile = "lab.json"

// Save writes the record in one step.
func (l Lab) Save() error {
	dir, err := l.Dir()
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("recording the lab %s: %w", l.Name, err)
	}
	tmp := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("recording the lab %s: %w", l.Name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, stateFile)); err != nil {
		return fmt.Errorf("recording the lab %s: %w", l.Name, err)
	}
	return nil
}

// Load reads the record of a lab. It fails with ErrNotUp when there is no lab
// of that name.
func Load(name string) (Lab, error) {
	dir, err := Dir(name)
	if err != nil {
		return Lab{}, err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return Lab{}, fmt.Errorf("the lab %s is %w: start it with castellan-lab up --name %s", name, ErrNotUp, name)
	}
	l := Lab{Name: name}
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return l, fmt.Errorf("reading the record of the lab %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return Lab{Name: name}, fmt.Errorf("reading the record of the lab %s: %w", name, err)
	}
	l.Name = name
	return l, nil
}

// Running is Load for a lab whose supervisor runs; otherwise the error says
// what to do.
func Running(name string) (Lab, error) {
	if err := CheckRoot(); err != nil {
		return Lab{}, err
	}
	l, err := Load(name)
	if err != nil {
		return l, err
	}
	if !l.Alive() {
		return l, fmt.Errorf("the lab %s has crashed or was killed: clear it away with castellan-lab down --name %s", name, name)
	}
	return l, nil
}

// List names all labs that there is anything of.
func List() ([]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing labs: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			out = append(out, e.Name())
		}
	}
	sort.Strings(out)
	return out, nil
}

// BootID tells this boot of the machine from others: pids of another mean
// nothing.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
