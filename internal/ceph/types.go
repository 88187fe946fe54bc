package ceph

import (
	"fmt"
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

// IDStrings writes OSD ids as the CephString lists of Ceph's command tables
// want them.
func IDStrings(ids []int) []string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = fmt.Sprint(id)
	}
	return s
}

// Discard drops the reply of a command that is sent for its effect.
func Discard(_ Reply, err error) error { return err }
