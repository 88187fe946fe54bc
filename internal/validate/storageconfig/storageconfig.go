// Package storageconfig reads the settings of OSDs that a CephCluster gives as
// a map of strings: storage.config, the config of a node, of a device and of a
// device set. A wrong value is never taken for another one: it is a problem
// that names its key.
//
// It is pure, and must not know where a setting is used.
package storageconfig

import (
	"fmt"
	"strings"

	"github.com/castellan-storage/castellan/internal/validate"
)

// Keys of the settings.
const (
	DatabaseSizeMB  = "databaseSizeMB"
	WalSizeMB       = "walSizeMB"
	OSDsPerDevice   = "osdsPerDevice"
	EncryptedDevice = "encryptedDevice"
	MetadataDevice  = "metadataDevice"
	DeviceClass     = "deviceClass"
	InitialWeight   = "initialWeight"
	PrimaryAffinity = "primaryAffinity"
	CrushRoot       = "crushRoot"
	StoreType       = "storeType"
)

// Bounds of the settings.
const (
	// MinDatabaseSizeMB is the smallest database that holds anything, 1 GiB.
	MinDatabaseSizeMB = 1024
	// maxSizeMB is 100 TiB: larger than any disk that holds a database.
	maxSizeMB = 100 << 20
	// MaxOSDsPerDevice is far above what helps; each needs memory of its own.
	MaxOSDsPerDevice = 100
	// maxWeight is the largest CRUSH weight: it is kept as 16.16 bits.
	maxWeight = 65535
)

// Store types.
const (
	BlueStore    = "bluestore"
	BlueStoreRDR = "bluestore-rdr"
)

// Settings are the settings of an OSD as values. The zero value of each means:
// not set.
type Settings struct {
	// DatabaseSizeMB is the size of the database in MiB. 0: the whole metadata
	// device divided by the OSDs that share it.
	DatabaseSizeMB int64
	// WalSizeMB is the size of the write-ahead log in MiB. 0: within the database.
	WalSizeMB int64
	// OSDsPerDevice is how many OSDs share one disk. 0: one.
	OSDsPerDevice int
	// EncryptedDevice encrypts the disk.
	EncryptedDevice bool
	// MetadataDevice holds the databases of the node's OSDs.
	MetadataDevice string
	// DeviceClass is the CRUSH device class. Empty: what Ceph finds.
	DeviceClass string
	// InitialWeight is the CRUSH weight of a new OSD. nil: its size in TiB.
	InitialWeight *float64
	// PrimaryAffinity is how willingly the OSD serves as the first of a placement
	// group, from 0 to 1. nil: 1.
	PrimaryAffinity *float64
	// CrushRoot is the CRUSH root of the OSDs. Empty: default.
	CrushRoot string
	// StoreType is bluestore or bluestore-rdr. Empty: that of the cluster.
	StoreType string
}

// Known gives the keys of all settings.
func Known() []string {
	return []string{
		DatabaseSizeMB, WalSizeMB, OSDsPerDevice, EncryptedDevice, MetadataDevice,
		DeviceClass, InitialWeight, PrimaryAffinity, CrushRoot, StoreType,
	}
}

// Parse reads the settings, and gives the problems by key in order. A setting
// with a problem is left unset; an empty value counts as unset.
func Parse(config map[string]string) (Settings, []validate.Problem) {
	var s Settings
	var problems []validate.Problem
	for _, key := range validate.Keys(config) {
		value := strings.TrimSpace(config[key])
		if value == "" {
			continue
		}
		problem, hint, known := s.set(key, value)
		switch {
		case !known:
			problems = append(problems, validate.UnknownKey(key, Known()))
		case problem != "":
			problems = append(problems, validate.Problem{Key: key, Problem: problem, Hint: hint})
		}
	}
	return s, problems
}

// Check gives the problems that Parse finds.
func Check(config map[string]string) []validate.Problem {
	_, problems := Parse(config)
	return problems
}

func (s *Settings) set(key, value string) (problem, hint string, known bool) {
	switch key {
	case DatabaseSizeMB:
		s.DatabaseSizeMB, problem = size(value, MinDatabaseSizeMB)
		return problem, "write a size in MiB of 1024 or more, for instance 65536", true
	case WalSizeMB:
		s.WalSizeMB, problem = size(value, 1)
		return problem, "write a size in MiB, for instance 1024", true
	case OSDsPerDevice:
		var n int64
		n, problem = validate.Int(value, 1, MaxOSDsPerDevice)
		s.OSDsPerDevice = int(n)
		return problem, "write how many OSDs share a disk, for instance 2", true
	case EncryptedDevice:
		s.EncryptedDevice, problem = boolean(value)
		return problem, "write true or false", true
	case MetadataDevice:
		s.MetadataDevice, problem = device(value)
		return problem, "write a kernel name such as nvme0n1, or better a path such as /dev/disk/by-id/...", true
	case DeviceClass:
		s.DeviceClass, problem = crushName(value)
		return problem, "write letters, digits, '_', '.' and '-', for instance ssd", true
	case InitialWeight:
		s.InitialWeight, problem = number(value, maxWeight)
		return problem, "write a weight in TiB, for instance 1.0", true
	case PrimaryAffinity:
		s.PrimaryAffinity, problem = number(value, 1)
		return problem, "write a number from 0 to 1, for instance 0.5", true
	case CrushRoot:
		s.CrushRoot, problem = crushName(value)
		return problem, "write letters, digits, '_', '.' and '-', for instance default", true
	case StoreType:
		switch value {
		case BlueStore, BlueStoreRDR:
			s.StoreType = value
		default:
			problem = fmt.Sprintf("%q is no store", value)
		}
		return problem, "write bluestore or bluestore-rdr", true
	}
	return "", "", false
}

// size reads a size in MiB; 0 means unset.
func size(value string, lo int64) (int64, string) {
	if value == "0" {
		return 0, ""
	}
	return validate.Int(value, lo, maxSizeMB)
}

func boolean(value string) (bool, string) {
	switch value {
	case "true":
		return true, ""
	case "false":
		return false, ""
	}
	return false, fmt.Sprintf("%q is neither true nor false", value)
}

func number(value string, hi float64) (*float64, string) {
	f, problem := validate.Float(value, 0, hi)
	if problem != "" {
		return nil, problem
	}
	return &f, ""
}

func crushName(value string) (string, string) {
	if !validate.IsCrushName(value) {
		return "", fmt.Sprintf("%q is no name in a CRUSH map", value)
	}
	return value, ""
}

// device reads a kernel name or a path under /dev. A name with a slash and
// without /dev is below /dev, too.
func device(value string) (string, string) {
	path := value
	if strings.HasPrefix(path, "/") {
		rest, ok := strings.CutPrefix(path, "/dev/")
		if !ok {
			return "", fmt.Sprintf("%q is not under /dev", value)
		}
		path = rest
	}
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "":
			return "", fmt.Sprintf("%q has an empty part", value)
		case strings.HasPrefix(part, "."), strings.HasPrefix(part, "-"):
			return "", fmt.Sprintf("a part of %q starts with '.' or '-'", value)
		case strings.ContainsFunc(part, forbidden):
			return "", fmt.Sprintf("%q holds a blank or a character with a meaning to a shell", value)
		}
	}
	return value, ""
}

func forbidden(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(";&|<>$\"'`(){}*?!", r)
}
