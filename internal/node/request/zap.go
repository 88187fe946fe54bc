package request

// Zap asks a node to remove volumes that a purged OSD has left on a device that it
// shared. A volume is removed only if its own uuid and its tags say that it is the
// OSD's.
type Zap struct {
	OSD  int    `json:"osd"`
	UUID string `json:"uuid"`
	LVs  []LV   `json:"lvs,omitempty"`
}
