// Package pid1 is the first process of a storage guest. Boot runs from the
// initial RAM file system: it puts an overlay over the read-only root file
// system and moves into it. Init then mounts the rest, sets up the network,
// starts udev and loads modules. It stays as process 1 and reaps orphans,
// with the agent as a child of its own, started again if it ends; so reaping
// never takes the exit status of a command from the agent.
//
// It must not know what the guest is used for, beyond the modules and files
// that its configuration names.
package pid1

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
)

// ConfigPath is where the configuration lies, in the initial RAM file system
// and in the guest.
const ConfigPath = "/etc/castellan-guest.json"

// AgentPath is where the program lies in the guest; in the initial RAM file
// system it is /init.
const AgentPath = "/usr/sbin/castellan-guest-agent"

// ReadyMark begins the console line that says that the guest serves requests,
// FailMark the one that says why it does not.
const (
	ReadyMark = "castellan-guest: ready"
	FailMark  = "castellan-guest: cannot start: "
)

// Config is what the machine tells a guest. It travels in the initial RAM
// file system, so that the token is in no command line and no environment.
type Config struct {
	Hostname string `json:"hostname"`
	// Rootfs is the directory of the machine that becomes the read-only root.
	Rootfs string `json:"rootfs"`
	// OverlaySize bounds the memory that changes to the root may take, in the
	// syntax of tmpfs ("1G").
	OverlaySize string `json:"overlaySize"`
	// Address is the guest's own, with the length of the network's prefix.
	Address netip.Prefix `json:"address"`
	// Gateway is the machine's side of the link.
	Gateway netip.Addr `json:"gateway"`
	// Token is what clients of the agent must know.
	Token string `json:"token"`
	// Modules are loaded at boot. One that cannot be loaded is reported by the
	// agent and is no reason not to boot.
	Modules []string `json:"modules"`
	// FastLUKS puts a wrapper in the place of cryptsetup that makes
	// luksFormat derive keys cheaply. For tests only: such keys are weak.
	FastLUKS bool `json:"fastLuks"`
}

// ReadConfig reads the configuration at path.
func ReadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// environment is what the guest's programs get.
func environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "TERM=dumb",
	}
}
