package request

// ReplacedKey of the status ConfigMap holds the Replaced of the last replacement on
// the node, as JSON.
const ReplacedKey = "replace"

// Result is how a replacement on a node ended.
type Result string

// The results.
const (
	// Done: the new OSD is on the disk and in data.osds.
	Done Result = "done"
	// Refused: a check before the claim failed; nothing was changed, in Ceph or on a
	// disk, and the slot is as it was.
	Refused Result = "refused"
	// Failed: something was changed and the OSD was not made. Slot and DBLeft say what
	// is left.
	Failed Result = "failed"
)

// Reason says why a replacement was refused or failed; stable words.
type Reason string

// The reasons.
const (
	DiskMissing    Reason = "DiskMissing"    // no such device
	WrongDisk      Reason = "WrongDisk"      // another serial than the one asked for, or no whole disk
	DiskInUse      Reason = "DiskInUse"      // holds something: OSD, file system, partitions, volumes, a holder
	DiskTooSmall   Reason = "DiskTooSmall"   //
	DiskBroken     Reason = "DiskBroken"     // cannot be read or written at its head, middle or tail
	MappingOpen    Reason = "MappingOpen"    // a dm-crypt mapping of the old volumes is open and cannot be closed
	DBMissing      Reason = "DBMissing"      // the database's volume group is not on this node
	DBForeign      Reason = "DBForeign"      // the database's volume is another OSD's, or of another size
	SlotLive       Reason = "SlotLive"       // Ceph has a live OSD under this id
	SlotClaimed    Reason = "SlotClaimed"    // claimed by an attempt that left nothing whole: destroy the id again
	SiblingChanged Reason = "SiblingChanged" // a sibling's volume is missing or not as it was
	PrepareFailed  Reason = "PrepareFailed"  // ceph-volume
	NotProven      Reason = "NotProven"      // ceph-volume succeeded, and the disks do not show it
	NodeUnreadable Reason = "NodeUnreadable" // the node or Ceph could not be looked at
)

// Slot is what Ceph's map has under the OSD's id.
type Slot string

// The states of a slot.
const (
	// SlotDestroyed: free for the next attempt, with its CRUSH place and weight.
	SlotDestroyed Slot = "destroyed"
	// SlotNew: claimed by a new uuid that has never been up.
	SlotNew Slot = "new"
	// SlotGone: the id is not in the map any more, nor its CRUSH place and weight.
	SlotGone Slot = "gone"
	// SlotUsed: an OSD that is or has been up.
	SlotUsed Slot = "used"
	// SlotUnknown: Ceph did not answer.
	SlotUnknown Slot = "unknown"
)

// Replaced is what a node reports of a replacement.
type Replaced struct {
	OSD     int    `json:"osd"`
	OldUUID string `json:"oldUUID"`
	// Attempt is the request's; 0 from a node that does not know of it.
	Attempt int `json:"attempt,omitempty"`
	// UUID is the new OSD's; empty unless one was made.
	UUID    string `json:"uuid,omitempty"`
	Device  string `json:"device"`
	Serial  string `json:"serial,omitempty"`
	Result  Result `json:"result"`
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Slot is what Ceph has under the id now, SlotUUID the uuid that claims it.
	Slot     Slot   `json:"slot"`
	SlotUUID string `json:"slotUUID,omitempty"`
	// DB and WAL are the volumes as they are now; the uuid differs from the request's
	// when one had to be made again.
	DB  *LV `json:"db,omitempty"`
	WAL *LV `json:"wal,omitempty"`
	// Remade are the volumes (vg/lv) that ceph-volume's rollback had removed, or that
	// were missing, and that were made again with the same size.
	Remade []string `json:"remade,omitempty"`
	// Siblings says for each volume of another OSD that it is as it was, or how it is not.
	Siblings []SiblingLV `json:"siblings,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
	// Seconds that the steps took, for those who want to know.
	Seconds map[string]float64 `json:"seconds,omitempty"`
}

// SiblingLV is a volume of another OSD in the same volume group.
type SiblingLV struct {
	OSD int    `json:"osd"`
	VG  string `json:"vg"`
	LV  string `json:"lv"`
	// Changed says what is not as it was before; empty when all is.
	Changed string `json:"changed,omitempty"`
}
