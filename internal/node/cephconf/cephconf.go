// Package cephconf writes the small ceph.conf that tools on a node need, with
// the user's override in it.
//
// It is pure, and it is not for daemons: they get fsid and mon_host by flag.
package cephconf

import (
	"fmt"
	"strings"
)

// Compose returns override with the cluster's identity added. ceph-volume takes
// the fsid from the file only. The identity comes last and in a section of its
// own: of two values for one key the later one counts, and an override cannot
// point a tool to another cluster.
func Compose(override, fsid, monHost string) string {
	var b strings.Builder
	b.WriteString(override)
	if override != "" && !strings.HasSuffix(override, "\n") {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "[global]\nfsid = %s\nmon_host = %s\n", fsid, monHost)
	return b.String()
}

// Keyring returns a keyring file for one entity. The result is a secret.
func Keyring(entity, key string) string {
	return fmt.Sprintf("[%s]\n\tkey = %s\n", entity, key)
}
