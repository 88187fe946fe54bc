package ceph

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bit is a yes or no that Ceph writes as 0 and 1 in some replies and as false
// and true in others.
type Bit bool

// UnmarshalJSON takes 0, 1, true and false, and nothing else.
func (b *Bit) UnmarshalJSON(in []byte) error {
	switch string(in) {
	case "0", "false":
		*b = false
	case "1", "true":
		*b = true
	default:
		return fmt.Errorf("%.20q is not 0, 1, true or false", in)
	}
	return nil
}

// MarshalJSON writes 0 or 1.
func (b Bit) MarshalJSON() ([]byte, error) {
	if b {
		return []byte("1"), nil
	}
	return []byte("0"), nil
}

// Float is an argument of type CephFloat. Ceph tells integers from reals by how
// they are written and refuses 1 where it wants 1.0, so this always writes a
// decimal point.
type Float float64

// MarshalJSON writes the number with a decimal point and no exponent.
func (f Float) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return nil, fmt.Errorf("%v is no number Ceph takes", float64(f))
	}
	b := strconv.AppendFloat(nil, float64(f), 'f', -1, 64)
	if !bytes.ContainsRune(b, '.') {
		b = append(b, '.', '0')
	}
	return b, nil
}

// Addr is one address of a daemon.
type Addr struct {
	// Type is "v1" (legacy messenger), "v2" (msgr2) or "any".
	Type string `json:"type"`
	// Addr is host:port, with brackets around an IPv6 host.
	Addr string `json:"addr"`
	// Nonce tells apart daemons that used the same address one after another.
	Nonce uint32 `json:"nonce"`
}

// Addrs are all addresses of a daemon.
type Addrs struct {
	Vec []Addr `json:"addrvec"`
}

// Of gives the host:port of one messenger type ("v1", "v2"), or "".
func (a Addrs) Of(messenger string) string {
	for _, x := range a.Vec {
		if x.Type == messenger {
			return x.Addr
		}
	}
	return ""
}

// String writes the addresses the way mon_host takes them:
// "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]".
func (a Addrs) String() string {
	parts := make([]string, len(a.Vec))
	for i, x := range a.Vec {
		parts[i] = x.Type + ":" + x.Addr
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// OSDName is how CRUSH and the auth database name an OSD.
func OSDName(id int) string { return fmt.Sprintf("osd.%d", id) }

// IDStrings writes OSD ids for arguments that are lists of CephString ("ids").
// Arguments of type CephOsdName ("id", "osd") are plain ints instead: Ceph
// refuses the one where it wants the other.
func IDStrings(ids []int) []string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = fmt.Sprint(id)
	}
	return s
}

// Discard drops the reply of a command that is sent for its effect.
func Discard(_ Reply, err error) error { return err }
