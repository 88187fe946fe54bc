package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Layout says how OSDs are put onto disks.
type Layout struct {
	// Data are the data disks, one OSD each.
	Data []string
	// DB is a disk that the OSDs share for their DBs; LVM only.
	DB string
	// LVM makes logical volumes; otherwise OSDs take the disks as they are.
	LVM bool
	// Encrypted puts dm-crypt below the OSDs; LVM only.
	Encrypted bool
}

func (l Layout) check() error {
	switch {
	case len(l.Data) == 0:
		return errors.New("no data disks given")
	case !l.LVM && l.DB != "":
		return errors.New("a shared DB disk needs LVM")
	case !l.LVM && l.Encrypted:
		return errors.New("encryption needs LVM here")
	}
	return nil
}

// OSD is an OSD that is prepared on disks of the guest.
type OSD struct {
	ID int
	// UUID is the OSD's own (osd_fsid), new with every preparation.
	UUID string
	LVM  bool
	// Device is the data device: a disk, or /dev/VG/LV.
	Device string
	// Volumes are the logical volumes of the OSD, by what they are for:
	// "block", "db", "wal". Empty without LVM.
	Volumes map[string]Volume
}

// Volume is a logical volume of an OSD.
type Volume struct {
	VG   string `json:"vg_name"`
	LV   string `json:"lv_name"`
	Path string `json:"lv_path"`
	// UUID is the LV's; a dm-crypt mapping on it has it as its name.
	UUID string `json:"lv_uuid"`
	Type string `json:"type"`
	// Tags are the LV's tags of Ceph, without the secret that is one of them.
	Tags map[string]string `json:"tags"`
	// Devices are the disks that it lies on.
	Devices []string `json:"devices"`
}

// PrepareOSDs makes OSDs on blank disks and returns the new ones by id.
func (c *Cluster) PrepareOSDs(ctx context.Context, l Layout) ([]OSD, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	before, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	var fresh []OSD
	name := fmt.Sprintf("prepare %d OSDs", len(l.Data))
	err = c.timed(ctx, name, func(ctx context.Context) error {
		for _, argv := range l.commands() {
			if _, err := c.run(ctx, argv...); err != nil {
				return err
			}
		}
		// Each start of ceph-volume takes seconds in a guest: ask for the one
		// kind only.
		list := c.rawOSDs
		if l.LVM {
			list = c.lvmOSDs
		}
		after, err := list(ctx)
		if err != nil {
			return err
		}
		fresh = slices.DeleteFunc(after, func(o OSD) bool { return slices.Contains(before, o.UUID) })
		sortByID(fresh)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(fresh) != len(l.Data) {
		return fresh, fmt.Errorf("ceph-volume made %d OSDs on %d disks", len(fresh), len(l.Data))
	}
	return fresh, nil
}

// known are the UUIDs of the OSDs in the OSDMap.
func (c *Cluster) known(ctx context.Context) ([]string, error) {
	var dump osdDump
	if err := c.JSON(ctx, &dump, "osd", "dump"); err != nil {
		return nil, err
	}
	var out []string
	for _, o := range dump.OSDs {
		out = append(out, o.UUID)
	}
	return out, nil
}

// commands are the programs that prepare OSDs in this layout.
func (l Layout) commands() [][]string {
	if !l.LVM {
		var out [][]string
		for _, d := range l.Data {
			out = append(out, []string{"ceph-volume", "raw", "prepare", "--bluestore", "--data", d})
		}
		return out
	}
	argv := append([]string{"ceph-volume", "lvm", "batch", "--prepare", "--bluestore", "--yes", "--no-systemd"}, l.Data...)
	if l.Encrypted {
		argv = append(argv, "--dmcrypt")
	}
	if l.DB != "" {
		argv = append(argv, "--db-devices", l.DB)
	}
	return [][]string{argv}
}

// OSDs lists what ceph-volume finds on the guest's disks, by id. While an old
// disk is still plugged in, its OSD is listed beside the one that replaced it.
func (c *Cluster) OSDs(ctx context.Context) ([]OSD, error) {
	out, err := c.lvmOSDs(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := c.rawOSDs(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range raw {
		// raw list shows the devices of encrypted LVM OSDs too.
		if !slices.ContainsFunc(out, func(l OSD) bool { return l.UUID == o.UUID }) {
			out = append(out, o)
		}
	}
	sortByID(out)
	return out, nil
}

func sortByID(osds []OSD) {
	slices.SortStableFunc(osds, func(a, b OSD) int { return a.ID - b.ID })
}

func (c *Cluster) lvmOSDs(ctx context.Context) ([]OSD, error) {
	list, err := c.run(ctx, "ceph-volume", "lvm", "list", "--format", "json")
	if err != nil {
		return nil, err
	}
	out, err := parseLVMList([]byte(list))
	if err != nil {
		return nil, fmt.Errorf("reading ceph-volume lvm list: %w", err)
	}
	return out, nil
}

func (c *Cluster) rawOSDs(ctx context.Context) ([]OSD, error) {
	list, err := c.run(ctx, "ceph-volume", "raw", "list", "--format", "json")
	if err != nil {
		return nil, err
	}
	out, err := parseRawList([]byte(list), c.FSID)
	if err != nil {
		return nil, fmt.Errorf("reading ceph-volume raw list: %w", err)
	}
	return out, nil
}

func parseLVMList(b []byte) ([]OSD, error) {
	var list map[string][]Volume
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	byUUID := map[string]*OSD{}
	for id, volumes := range list {
		n, err := strconv.Atoi(id)
		if err != nil {
			return nil, fmt.Errorf("%q is no OSD id", id)
		}
		for _, v := range volumes {
			delete(v.Tags, "ceph.cephx_lockbox_secret")
			uuid := v.Tags["ceph.osd_fsid"]
			o := byUUID[uuid]
			if o == nil {
				o = &OSD{ID: n, UUID: uuid, LVM: true, Volumes: map[string]Volume{}}
				byUUID[uuid] = o
			}
			o.Volumes[v.Type] = v
			if v.Type == "block" {
				o.Device = v.Path
			}
		}
	}
	var out []OSD
	for _, uuid := range slices.Sorted(maps.Keys(byUUID)) {
		out = append(out, *byUUID[uuid])
	}
	return out, nil
}

func parseRawList(b []byte, fsid string) ([]OSD, error) {
	var list map[string]struct {
		Cluster string `json:"ceph_fsid"`
		Device  string `json:"device"`
		ID      int    `json:"osd_id"`
		UUID    string `json:"osd_uuid"`
		Type    string `json:"type"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	var out []OSD
	for _, key := range slices.Sorted(maps.Keys(list)) {
		// An entry without a device or of another cluster is not an OSD of
		// ours; parts of dm-crypt ones are listed like that.
		if e := list[key]; e.Cluster == fsid && e.Device != "" && e.Type == "bluestore" {
			out = append(out, OSD{ID: e.ID, UUID: e.UUID, Device: e.Device})
		}
	}
	return out, nil
}

func dataDir(id int) string { return "/var/lib/ceph/osd/ceph-" + strconv.Itoa(id) }

// StartOSD activates an OSD, opening its mappings when it is encrypted, and
// starts its daemon.
func (c *Cluster) StartOSD(ctx context.Context, o OSD) error {
	return c.timed(ctx, fmt.Sprintf("start osd.%d", o.ID), func(ctx context.Context) error {
		// prepare leaves a tmpfs there, and so does an earlier activation.
		if err := c.UnmountOSD(ctx, o.ID); err != nil {
			return err
		}
		id := strconv.Itoa(o.ID)
		activate := []string{"ceph-volume", "raw", "activate", "--osd-id", id, "--osd-uuid", o.UUID, "--no-systemd"}
		if o.LVM {
			activate = []string{"ceph-volume", "lvm", "activate", "--no-systemd", id, o.UUID}
		}
		if _, err := c.run(ctx, activate...); err != nil {
			return err
		}
		return c.startDaemon(ctx, o.ID)
	})
}

func (c *Cluster) startDaemon(ctx context.Context, id int) error {
	_, err := c.run(ctx, "ceph-osd", "-i", strconv.Itoa(id), "--setuser", "ceph", "--setgroup", "ceph")
	return err
}

// startAll is StartOSD for all OSDs of a guest that has no others: LVM ones
// are activated by one command, which saves a start of ceph-volume for each.
func (c *Cluster) startAll(ctx context.Context, osds []OSD) error {
	if slices.ContainsFunc(osds, func(o OSD) bool { return !o.LVM }) {
		for _, o := range osds {
			if err := c.StartOSD(ctx, o); err != nil {
				return err
			}
		}
		return nil
	}
	return c.timed(ctx, fmt.Sprintf("start %d OSDs", len(osds)), func(ctx context.Context) error {
		for _, o := range osds {
			if err := c.UnmountOSD(ctx, o.ID); err != nil {
				return err
			}
		}
		if _, err := c.run(ctx, "ceph-volume", "lvm", "activate", "--all", "--no-systemd"); err != nil {
			return err
		}
		for _, o := range osds {
			if err := c.startDaemon(ctx, o.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// UnmountOSD unmounts the data directory of an OSD whose daemon does not run;
// it is no error when nothing is mounted there.
func (c *Cluster) UnmountOSD(ctx context.Context, id int) error {
	for {
		res, err := c.guest.Exec(ctx, "mountpoint", "-q", dataDir(id))
		if err != nil {
			return err
		}
		if res.ExitCode != 0 {
			return nil
		}
		if _, err := c.run(ctx, "umount", dataDir(id)); err != nil {
			return err
		}
	}
}

// CloseMappings closes the dm-crypt mappings of an OSD that is stopped and
// unmounted.
func (c *Cluster) CloseMappings(ctx context.Context, o OSD) error {
	for _, kind := range slices.Sorted(maps.Keys(o.Volumes)) {
		v := o.Volumes[kind]
		if v.Tags["ceph.encrypted"] != "1" {
			continue
		}
		res, err := c.guest.Exec(ctx, "dmsetup", "info", v.UUID)
		if err != nil {
			return err
		}
		if res.ExitCode != 0 {
			continue // not open
		}
		if _, err := c.run(ctx, "cryptsetup", "close", v.UUID); err != nil {
			return err
		}
	}
	return nil
}

// stopLimit bounds how long an OSD may take to shut down.
const stopLimit = 60 * time.Second

// StopOSD ends the daemon of an OSD and waits until it is gone. kill ends it
// without a chance to shut down.
func (c *Cluster) StopOSD(ctx context.Context, id int, kill bool) error {
	var pid bytes.Buffer
	if err := c.Get(ctx, fmt.Sprintf("/run/ceph/osd.%d.pid", id), &pid); err != nil {
		return fmt.Errorf("looking for the daemon of osd.%d: %w", id, err)
	}
	p := strings.TrimSpace(pid.String())
	signal := "-TERM"
	if kill {
		signal = "-KILL"
	}
	if _, err := c.run(ctx, "kill", signal, p); err != nil {
		return fmt.Errorf("stopping osd.%d: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	return c.poll(ctx, fmt.Sprintf("osd.%d to end", id), func() (bool, error) {
		res, err := c.guest.Exec(ctx, "kill", "-0", p)
		return res.ExitCode != 0, err
	})
}

// WaitUp waits until the OSDs are up in the OSDMap.
func (c *Cluster) WaitUp(ctx context.Context, ids ...int) error {
	return c.timed(ctx, fmt.Sprintf("%d OSDs up", len(ids)), func(ctx context.Context) error {
		return c.poll(ctx, fmt.Sprintf("the OSDs %v to be up", ids), func() (bool, error) {
			var dump osdDump
			err := c.JSON(ctx, &dump, "osd", "dump")
			return dump.up(ids), err
		})
	})
}

// osdDump is what of "ceph osd dump" is looked at.
type osdDump struct {
	OSDs []osdEntry `json:"osds"`
}

type osdEntry struct {
	ID   int    `json:"osd"`
	UUID string `json:"uuid"`
	Up   int    `json:"up"`
}

// up reports whether all the OSDs with these ids are up.
func (d osdDump) up(ids []int) bool {
	for _, id := range ids {
		if !slices.ContainsFunc(d.OSDs, func(o osdEntry) bool { return o.ID == id && o.Up == 1 }) {
			return false
		}
	}
	return true
}

// Up prepares the first OSDs of a cluster, starts them and waits until they
// are up and all PGs are clean. It makes a pool named rbd, so that there are
// PGs.
func (c *Cluster) Up(ctx context.Context, l Layout) ([]OSD, error) {
	osds, err := c.PrepareOSDs(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := c.startAll(ctx, osds); err != nil {
		return nil, err
	}
	var ids []int
	for _, o := range osds {
		ids = append(ids, o.ID)
	}
	if err := c.WaitUp(ctx, ids...); err != nil {
		return nil, err
	}
	err = c.timed(ctx, "pool", func(ctx context.Context) error { return c.CreatePool(ctx, "rbd", "rbd") })
	if err != nil {
		return nil, err
	}
	return osds, c.WaitClean(ctx)
}
