// Package check says whether the request to replace an OSD's disk holds, before
// anything is changed, and whether there is room to drain it.
//
// It is pure. Each refusal says what is wrong and what the user can do, in words
// that stay the same while the cause does. What could not be read is not for this
// package: the controller does not ask it then.
package check

import (
	"fmt"
	"path"
	"strings"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/osd/replace/plan"
	"github.com/castellan-storage/castellan/internal/osd/spec"
)

// Request is all that bears on whether a request holds.
type Request struct {
	ID int
	// Metadata: the request is for the metadata device, not for the disk of the data.
	Metadata bool
	// Value of the annotation that asks: osd.rook.io/replace, or with Metadata
	// osd.rook.io/replace-metadata-device. Both: the other one is there too.
	Value string
	Both  bool
	// PVC is the Deployment's label ceph.rook.io/pvc.
	PVC string
	// Copies are other Deployments or pods with the OSD's id, such as the one that
	// kubectl's plugin makes for maintenance.
	Copies []string
	Spec   *cephv1.ClusterSpec
	// Exists and Destroyed are from the OSD map.
	Exists, Destroyed bool
	// Host is the node as spec.storage.nodes names it.
	Host string
	// Record of the OSD's disks; nil when nobody has one.
	Record *prepare.Result
	// Others are the records of all other OSDs of the node, Unrecorded those of whose
	// disks nothing is known.
	Others     []prepare.Result
	Unrecorded []int
	// Asked are OSDs of the node whose own replacement is asked for by the right value, or
	// was accepted as one of the same set; Busy says why others cannot be taken into a set.
	Asked map[int]bool
	Busy  map[int]string
	// Room is the judgement of Capacity.Fits for all OSDs that are replaced together.
	Room string
	Hint string
	// Dead: no OSD of the metadata device runs, on a node that is well.
	Dead bool
}

// Check makes the checks in the order of the design, then ours. Warnings do not
// refuse the request.
func Check(r Request) (refusal *plan.Refusal, warnings []string) {
	for _, f := range []func(Request) *plan.Refusal{confirmation, exists, hostBased, settings, unhindered, recorded, alone, together, room} {
		if refusal := f(r); refusal != nil {
			return refusal, nil
		}
	}
	return nil, references(r)
}

func refuse(reason, format string, args ...any) *plan.Refusal {
	return &plan.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func confirmation(r Request) *plan.Refusal {
	want := spec.Confirmation(r.ID)
	switch {
	case r.Both:
		return refuse("TwoRequests", "both %s and %s are set on osd.%d; replace one after the other", spec.ReplaceAnnotation, spec.MetadataAnnotation, r.ID)
	case r.Metadata && r.Value != spec.MetadataConfirmation(r.ID) && r.Value != spec.LossConfirmation(r.ID):
		return refuse("WrongConfirmation", "the annotation %s of osd.%d is %q; it is confirmed by %s, or by %s if its device is dead and what is only on it may be lost",
			spec.MetadataAnnotation, r.ID, short(r.Value), spec.MetadataConfirmation(r.ID), spec.LossConfirmation(r.ID))
	case r.Metadata, r.Value == want:
		return nil
	}
	return refuse("WrongConfirmation", "the annotation %s of osd.%d is %q; the only value that confirms it is %s", spec.ReplaceAnnotation, r.ID, short(r.Value), want)
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

func exists(r Request) *plan.Refusal {
	switch {
	case !r.Exists:
		return refuse("NoSuchOSD", "Ceph has no osd.%d; delete its Deployment if nothing else needs it", r.ID)
	case r.Destroyed:
		return refuse("AlreadyDestroyed", "osd.%d is destroyed already, and not by a replacement of this operator, so its disk is not known; purge it with: ceph osd purge %d --yes-i-really-mean-it, and let the new disk become a new OSD", r.ID, r.ID)
	}
	return nil
}

func hostBased(r Request) *plan.Refusal {
	if r.PVC == "" {
		return nil
	}
	return refuse("OnPVC", "osd.%d is on the PersistentVolumeClaim %s; only OSDs on devices of a host are replaced", r.ID, r.PVC)
}

func settings(r Request) *plan.Refusal {
	switch {
	case r.Spec.RemoveOSDsIfOutAndSafeToRemove:
		return refuse("ConflictingSetting", "spec.removeOSDsIfOutAndSafeToRemove is true, which takes away the Deployment of an OSD that is out; set it to false for the time of the replacement")
	case r.Spec.HealthCheck.DaemonHealth.ObjectStorageDaemon.Disabled:
		return refuse("ConflictingSetting", "spec.healthCheck.daemonHealth.osd.disabled is true, and replacements are part of that check; set it to false for the time of the replacement")
	}
	return nil
}

func unhindered(r Request) *plan.Refusal {
	if len(r.Copies) == 0 {
		return nil
	}
	return refuse("UnderMaintenance", "osd.%d is also used by %s; end that first", r.ID, strings.Join(r.Copies, ", "))
}

func recorded(r Request) *plan.Refusal {
	if r.Record == nil || r.Record.UUID == "" || r.Record.Data.Path == "" {
		return refuse("DiskUnknown", "no node has reported the disk of osd.%d, so the disk to pull and its place could not be named; make the nodes look again by changing the annotation castellan.ceph.io/rescan of the CephCluster", r.ID)
	}
	return nil
}

// SameDisk reports whether two parts lie on one disk, by the strongest name that
// both have.
func SameDisk(a, b prepare.Part) bool {
	switch {
	case a.Serial != "" && b.Serial != "":
		return a.Serial == b.Serial && a.WWN == b.WWN
	case a.WWN != "" && b.WWN != "":
		return a.WWN == b.WWN
	case a.Disk != "" && b.Disk != "":
		return a.Disk == b.Disk
	}
	return a.Path == b.Path
}

func names(ids []int) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprintf("osd.%d", id)
	}
	return strings.Join(parts, ", ")
}

func room(r Request) *plan.Refusal {
	switch {
	case r.Room == "" || r.lossy():
		return nil
	case r.Metadata && r.Dead:
		return refuse("NoRoom", "%s can never become safe to destroy: %s; %s; or, since the device seems dead, confirm that what is only on it may be lost: %s=%s", r.all(), r.Room, r.Hint, spec.MetadataAnnotation, spec.LossConfirmation(r.ID))
	}
	return refuse("NoRoom", "%s can never become safe to destroy: %s; %s", r.all(), r.Room, r.Hint)
}

// lossy: a loss is accepted, and the device is dead.
func (r Request) lossy() bool { return r.Metadata && r.Dead && r.Value == spec.LossConfirmation(r.ID) }

func (r Request) all() string {
	if set := Set(r); set != nil {
		return names(set.IDs())
	}
	return names([]int{r.ID})
}

// references warns of names in spec.storage that will not name the new disk. They
// do not matter for the replacement, which goes by the recorded disk and the proof
// of the swap; they matter afterwards.
func references(r Request) []string {
	if r.Metadata {
		return metadataReferences(r)
	}
	var out []string
	data := r.Record.Data
	for i, n := range r.Spec.Storage.Nodes {
		if n.Name != r.Host || r.Spec.Storage.UseAllNodes {
			continue
		}
		out = append(out, ofSelection(fmt.Sprintf("spec.storage.nodes[%d].", i), n.Selection, data)...)
	}
	return append(out, ofSelection("spec.storage.", r.Spec.Storage.Selection, data)...)
}

// ofSelection warns of the devices that are named, and of filters that are no more than a
// name. Of a filter for many disks nobody can tell whether the new one will be among them.
func ofSelection(field string, s cephv1.Selection, data prepare.Part) []string {
	out := ofDevices(field+"devices", s.Devices, data)
	for _, f := range []struct{ name, filter string }{{"deviceFilter", s.DeviceFilter}, {"devicePathFilter", s.DevicePathFilter}} {
		if ref := strings.TrimSuffix(strings.TrimPrefix(f.filter, "^"), "$"); isNamed(ref, data) {
			out = append(out, warnOf(field+f.name, ref, data))
		}
	}
	return out
}

// metadataReferences is the same for a metadata device: new OSDs would look for one that is
// not there any more.
func metadataReferences(r Request) []string {
	device := Metadata(*r.Record)
	if device == nil {
		return nil
	}
	var out []string
	at := func(field string, config map[string]string) {
		if ref := config["metadataDevice"]; isNamed(ref, *device) {
			out = append(out, warnOf(field+"[metadataDevice]", ref, *device))
		}
	}
	list := func(field string, devices []cephv1.Device) {
		for i, d := range devices {
			at(fmt.Sprintf("%s[%d].config", field, i), d.Config)
		}
	}
	at("spec.storage.config", r.Spec.Storage.Config)
	list("spec.storage.devices", r.Spec.Storage.Devices)
	for i, n := range r.Spec.Storage.Nodes {
		if n.Name == r.Host && !r.Spec.Storage.UseAllNodes {
			field := fmt.Sprintf("spec.storage.nodes[%d]", i)
			at(field+".config", n.Config)
			list(field+".devices", n.Devices)
		}
	}
	return out
}

func ofDevices(field string, devices []cephv1.Device, data prepare.Part) []string {
	var out []string
	for i, d := range devices {
		ref := d.FullPath
		if ref == "" {
			ref = d.Name
		}
		if isNamed(ref, data) || ofContent(ref) {
			out = append(out, warnOf(fmt.Sprintf("%s[%d]", field, i), ref, data))
		}
	}
	return out
}

// ofContent says that a link names what is on a device, and not the device: nobody can tell
// whether it is the old disk's, and after the swap it names nothing.
func ofContent(ref string) bool {
	for _, dir := range []string{"by-uuid", "by-partuuid", "by-label", "by-partlabel"} {
		if strings.HasPrefix(ref, "/dev/disk/"+dir+"/") {
			return true
		}
	}
	return false
}

// warnOf says what becomes of a reference to a part's disk, and what to write instead.
func warnOf(field, ref string, p prepare.Part) string {
	better := p.ByPath
	if better == "" {
		better = "the disk's path below /dev/disk/by-path"
	}
	switch {
	case strings.HasPrefix(ref, "/dev/disk/by-path/"):
		return fmt.Sprintf("%s is the slot %s: the new disk must go into the same slot", field, ref)
	case ofContent(ref):
		return fmt.Sprintf("%s (%s) names what is on a disk; if that is the old one, it will name nothing after the swap; write %s instead", field, ref, better)
	case strings.HasPrefix(ref, "/dev/disk/"):
		return fmt.Sprintf("%s names the old disk itself (%s) and will name nothing after the swap; write %s instead", field, ref, better)
	}
	return fmt.Sprintf("%s is a kernel name (%s), which the new disk may not get; write %s instead", field, ref, better)
}

// isNamed reports whether a reference of the spec names the disk of a part.
func isNamed(ref string, p prepare.Part) bool {
	if ref == "" {
		return false
	}
	full := ref
	if !strings.HasPrefix(ref, "/") {
		full = "/dev/" + ref
	}
	switch full = path.Clean(full); {
	case full == p.Path, full == p.ByID, full == p.ByPath, p.Disk != "" && full == "/dev/"+p.Disk:
		return true
	case strings.HasPrefix(full, "/dev/disk/by-id/"):
		// A disk has several such links; all but the opaque ones end in its serial.
		return p.Serial != "" && strings.Contains(full, p.Serial) || p.WWN != "" && strings.Contains(full, strings.TrimPrefix(p.WWN, "0x"))
	}
	return false
}
