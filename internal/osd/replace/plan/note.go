package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// Note is what has to be remembered of a replacement and cannot be read again from
// anywhere else. It lies on the OSD's Deployment, from the moment the request is
// accepted until the OSD is up on its new disk.
type Note struct {
	// UUID of the OSD whose disk is replaced. It is the identity of the replacement:
	// nothing is destroyed that has another uuid.
	UUID string `json:"uuid"`
	// Record of its disks, as the node has reported them.
	Record prepare.Result `json:"record"`
	// Node is the Kubernetes node, Host its hostname label.
	Node string `json:"node"`
	Host string `json:"host"`
	// Accepted is when the request was found to hold.
	Accepted time.Time `json:"accepted"`
	Before   Before    `json:"before"`
	// Set are the OSDs that are replaced together with this one; nil for one that has its
	// disk to itself. It is written before anything is changed and never afterwards.
	Set *Set `json:"set,omitempty"`
	// Drain is how it was when the OSD was marked out; nil before.
	Drain *Drain `json:"drain,omitempty"`
	// Dead is since when the OSD, and with it all others on its metadata device, is down
	// although its Deployment wants it to run; nil unless the loss of its data was
	// accepted.
	Dead *time.Time `json:"dead,omitempty"`
	// Disks of the node when the slot had become free, as swap.Pending.Before wants them:
	// what tells a spare that was there all along from the new disk. nil before.
	Disks []string `json:"disks,omitempty"`
	// Whole is the size in bytes of the disk to pull, where its node had reported it; 0
	// where it had not. The record has the sizes of volumes.
	Whole uint64 `json:"whole,omitempty"`
	// Attempt is the last disk that was to become the OSD; nil before there was one.
	Attempt *Attempt `json:"attempt,omitempty"`
	// Unclosed and Unzapped count the Jobs that could not close mappings, or not wipe
	// volumes; nil before one has failed.
	Unclosed *Failures `json:"unclosed,omitempty"`
	Unzapped *Failures `json:"unzapped,omitempty"`
	// Told is what the user has been told last of a disk that is not taken.
	Told string `json:"told,omitempty"`
	// CancelRefused: the user has been told that it is too late to cancel.
	CancelRefused bool `json:"cancelRefused,omitempty"`
	// SlotLost: the user has been told that ceph-volume has taken the id back.
	SlotLost bool `json:"slotLost,omitempty"`
	// Replaced is the uuid of the new OSD, once its disk has been found and the
	// Deployment was given back; it is up to the new OSD to come up now.
	Replaced string `json:"replaced,omitempty"`
}

// Failures of one kind of Job. They lie here and not on the Job, which is deleted before
// the next try: the pause between two tries grows with their number.
type Failures struct {
	Count int `json:"count"`
	// Job is the uid of the last one that was counted.
	Job string `json:"job"`
}

// Tries is how many have failed; 0 for nil.
func (f *Failures) Tries() int {
	if f == nil {
		return 0
	}
	return f.Count
}

// Counted reports whether a Job is the last one that was counted.
func (f *Failures) Counted(job string) bool { return f != nil && f.Job == job }

// Next is the count with another Job.
func (f *Failures) Next(job string) *Failures { return &Failures{Count: f.Tries() + 1, Job: job} }

// Before is how the OSD was before anything was changed.
type Before struct {
	In bool `json:"in"`
	// Reweight is the override weight, 0 to 1.
	Reweight    float64           `json:"reweight"`
	CrushWeight float64           `json:"crushWeight"`
	Class       string            `json:"class,omitempty"`
	Location    map[string]string `json:"location,omitempty"`
	Replicas    int32             `json:"replicas"`
	// Bytes that Ceph counted as its size, 0 where it did not say.
	Bytes int64 `json:"bytes,omitempty"`
}

// Drain is the beginning of the draining.
type Drain struct {
	Since time.Time `json:"since"`
	// PGs and Bytes that were on the OSD.
	PGs   int   `json:"pgs"`
	Bytes int64 `json:"bytes"`
}

// Attempt is one disk that was to become the OSD.
type Attempt struct {
	Number int    `json:"number"`
	Device string `json:"device"`
	Serial string `json:"serial,omitempty"`
	Proof  string `json:"proof,omitempty"`
	// Set are the old uuids of the OSDs that get a share of this disk, this one's
	// included; empty for one that gets all of it.
	Set []string `json:"set,omitempty"`
	// VG is the volume group whose place the one on this metadata device takes, for an OSD
	// that joins others there: theirs. "" for its own.
	VG string `json:"vg,omitempty"`
	// With is how the user had named the disk when it was claimed; "" where nobody had.
	With string `json:"with,omitempty"`
	// Faults is how many attempts on this disk have failed in a row through the disk, as far
	// as the node can tell, after they had changed something. What keeps an attempt from
	// beginning, or from telling, does not count.
	Faults int `json:"faults,omitempty"`
	// Recognized: no attempt of ours is known, and the disk was found with the new OSD on it.
	Recognized bool `json:"recognized,omitempty"`
	// Failed is why it did not; empty while it is not known.
	Failed string `json:"failed,omitempty"`
	// Unproven is the uuid by which the failed attempt has claimed the id, where the node
	// says that the OSD is not whole: that a look finds it on a disk is no proof then.
	Unproven string `json:"unproven,omitempty"`
	// Proven is the uuid of the new OSD, once the node has proven that it is whole, where its
	// Deployment has to wait for others: the node's report may be another's by then.
	Proven string `json:"proven,omitempty"`
}

// maxFaults is how many attempts on one disk may fail through the disk before it is given
// up. With the pauses between them that takes eight minutes, which is longer than what
// passes by itself; each of them changes Ceph's map.
const maxFaults = 5

// Counts gives the number of faults that an attempt on a disk begins with: those of the
// last one, if that was on the same disk and nobody has asked for it anew.
func (a *Attempt) Counts(m swap.Match, with string) int {
	if a == nil || !a.on(m) || a.renamed(with) {
		return 0
	}
	return a.Faults
}

// on reports whether a disk is that of the attempt, also when it has another name by now.
func (a *Attempt) on(m swap.Match) bool {
	if a.Serial != "" {
		return a.Serial == m.Serial
	}
	return m.Serial == "" && a.Device == m.Device
}

// renamed reports whether the user has named the disk since the attempt, or in another way.
func (a *Attempt) renamed(with string) bool { return with != "" && with != a.With }

// Encode gives the note as the value of its annotation.
func (n Note) Encode() string {
	b, err := json.Marshal(n)
	if err != nil {
		// A note is made of plain values; the only thing JSON cannot hold is a weight
		// that is no number, and Ceph's JSON cannot hold that either.
		panic("encoding the note of a replacement: " + err.Error())
	}
	return string(b)
}

// ReadNote reads the annotation. A note that cannot be read, or that lacks what
// identifies the OSD, is an error and never "no note".
func ReadNote(value string, id int) (*Note, error) {
	if value == "" {
		return nil, nil
	}
	var n Note
	if err := json.Unmarshal([]byte(value), &n); err != nil {
		return nil, fmt.Errorf("reading the note of the replacement: %w", err)
	}
	if n.UUID == "" || n.Record.UUID != n.UUID || n.Record.ID != id || n.Node == "" {
		return nil, fmt.Errorf("reading the note of the replacement: it is not about osd.%d", id)
	}
	if n.Set != nil && !n.Set.Has(id, n.UUID) {
		return nil, fmt.Errorf("reading the note of the replacement: osd.%d is not in its own set", id)
	}
	return &n, nil
}

// Pull is the part whose disk is replaced: the data, or the database where the metadata
// device is.
func (n Note) Pull() prepare.Part {
	if n.Set == nil || n.Set.Kind != OnMetadata {
		return n.Record.Data
	}
	for _, p := range []*prepare.Part{n.Record.DB, n.Record.WAL} {
		if p != nil {
			return *p
		}
	}
	return prepare.Part{}
}

// Old is the disk to pull, as the node compares it with others.
func (n Note) Old() swap.Disk {
	d := n.Pull()
	old := swap.Disk{Serial: d.Serial, WWN: d.WWN, ByPath: d.ByPath, ByID: d.ByID, Size: d.Size, Rotational: d.Rotational}
	switch {
	case n.Whole > 0:
		old.Size = n.Whole
	case n.Set != nil, d.LV != "" && d.Serial == "" && d.WWN == "":
		// What is recorded is the size of a volume. Where nothing else tells disks apart, it
		// must not: the old disk itself, wiped, has another size.
		old.Size = 0
	}
	return old
}

// Pending is the slot as the node must know it while it waits for a disk.
func (n Note) Pending(with string) swap.Pending {
	p := swap.Pending{
		OSD: n.Record.ID, UUID: n.UUID, Old: n.Old(), Class: n.Before.Class, With: with,
		DBLV: n.Record.DB != nil || n.Record.WAL != nil, Before: n.Disks,
	}
	if n.Set != nil && n.Set.Kind == OnMetadata {
		d := n.Record.Data
		p.Metadata, p.Keep = true, swap.Disk{Serial: d.Serial, WWN: d.WWN, ByPath: d.ByPath, ByID: d.ByID}
	}
	return p
}

// LVs are the OSD's volumes, data first.
func (n Note) LVs() []request.LV {
	var lvs []request.LV
	for _, p := range []*prepare.Part{&n.Record.Data, n.Record.DB, n.Record.WAL} {
		if v := LV(p); v != nil {
			lvs = append(lvs, *v)
		}
	}
	return lvs
}

// Left are the volumes that stay in the node when the disk is pulled, or may: the
// database and WAL; and the data, where its disk stays, or is shared.
func (n Note) Left() []request.LV {
	lvs := n.LVs()
	if n.Set == nil && LV(&n.Record.Data) != nil {
		return lvs[1:]
	}
	return lvs
}

// LV is a part's volume; nil where it is none.
func LV(p *prepare.Part) *request.LV {
	if p == nil || p.LV == "" {
		return nil
	}
	device := p.ByID
	if device == "" {
		device = p.ByPath
	}
	return &request.LV{VG: p.VG, Name: p.LV, UUID: p.LVUUID, Size: p.Size, Device: device}
}

// DataDevice is the path of the disk that the OSD's data is made on: the claimed one, or its old
// one, where only the metadata device is replaced. "" where none is claimed yet.
func (n Note) DataDevice() string {
	if n.Set == nil || n.Set.Kind != OnMetadata {
		if n.Attempt == nil {
			return ""
		}
		return n.Attempt.Device
	}
	d := n.Record.Data
	for _, path := range []string{d.ByID, d.ByPath} {
		if path != "" {
			return path
		}
	}
	if d.Disk != "" {
		return "/dev/" + d.Disk
	}
	return d.Path
}

// Disk names the disk to pull for a person: serial, path and slot, as far as known.
func (n Note) Disk() string {
	d := n.Pull()
	path := d.ByPath
	if path == "" {
		path = d.ByID
	}
	if path == "" && d.LV != "" && d.Disk != "" {
		path = "/dev/" + d.Disk
	}
	if path == "" {
		path = d.Path
	}
	s := path
	if d.Serial != "" {
		s = "serial " + d.Serial + ", " + path
	}
	if d.Slot != "" {
		s += ", slot " + d.Slot
	}
	return s + " on node " + n.Node
}
