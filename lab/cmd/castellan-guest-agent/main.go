// Command castellan-guest-agent is the one program of ours in a storage
// guest: its /init, its process 1, the agent that runs commands for the
// machine, and the wrapper of cryptsetup when a test asks for one. It must be
// linked statically (CGO_ENABLED=0): as /init it has no libraries.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/castellan-storage/castellan/lab/guest/pid1"
)

func main() {
	name, role := filepath.Base(os.Args[0]), ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch {
	case name == "init" && os.Getpid() == 1:
		// The kernel's arguments, whatever they are, are not for us.
		pid1.Fail(pid1.Boot())
	case name == "cryptsetup":
		fmt.Fprintln(os.Stderr, "cryptsetup wrapper:", pid1.Cryptsetup(os.Args[1:]))
	case role == "init" && os.Getpid() == 1:
		pid1.Fail(pid1.Init())
	case role == "serve":
		fmt.Fprintln(os.Stderr, "castellan-guest: the agent ends:", pid1.Serve())
	default:
		fmt.Fprintln(os.Stderr, "castellan-guest-agent runs in a storage guest, which castellan-lab guest up starts")
	}
	os.Exit(1)
}
