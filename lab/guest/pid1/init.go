package pid1

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/castellan-storage/castellan/lab/guest/agent"
	"golang.org/x/sys/unix"
)

// toolTimeout bounds each program that setting up the guest runs.
const toolTimeout = 30 * time.Second

// udevRules name the ubd disks by serial number as udev's own rules name real
// ones. Their slot needs no rule: udev's path_id gives it as
// platform-uml-blkdev.N.
const udevRules = `SUBSYSTEM!="block", GOTO="castellan_end"
KERNEL!="ubd*", GOTO="castellan_end"
ENV{DEVTYPE}=="disk", ENV{ID_BUS}="ubd", ENV{ID_MODEL}="UBD", ENV{ID_TYPE}="disk"
ENV{DEVTYPE}=="disk", ATTR{serial}=="?*", ENV{ID_SERIAL}="UBD_$attr{serial}", ENV{ID_SERIAL_SHORT}="$attr{serial}"
ENV{DEVTYPE}=="partition", IMPORT{parent}="ID_*"
ENV{DEVTYPE}=="disk", ENV{ID_SERIAL}=="?*", SYMLINK+="disk/by-id/ubd-$env{ID_SERIAL}"
ENV{DEVTYPE}=="partition", ENV{ID_SERIAL}=="?*", SYMLINK+="disk/by-id/ubd-$env{ID_SERIAL}-part%n"
LABEL="castellan_end"
`

// stateFile carries what Init found out to the agent.
const stateFile = "/run/castellan-guest.missing-modules"

// Init runs as process 1 in the guest's root. It returns only when it fails.
func Init() error {
	cfg, err := ReadConfig(ConfigPath)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	steps := []struct {
		name string
		do   func(Config) error
	}{
		{"mounting", mountAll},
		{"naming the guest", setNames},
		{"setting up the network", setNetwork},
		{"loading modules", loadModules},
		{"starting udev", startUdev},
	}
	for _, s := range steps {
		if err := s.do(cfg); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return supervise()
}

func mountAll(Config) error {
	for _, m := range []mountPoint{
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devpts", "/dev/pts", "devpts", 0, "gid=5,mode=620,ptmxmode=666"},
		{"shm", "/dev/shm", "tmpfs", 0, ""},
		{"run", "/run", "tmpfs", 0, "mode=755"},
		{"tmp", "/tmp", "tmpfs", 0, "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
	} {
		if err := m.mount(); err != nil {
			return err
		}
	}
	for _, d := range []string{"/run/lock", "/run/lvm", "/run/udev", "/run/ceph"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func setNames(cfg Config) error {
	if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
		return err
	}
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", cfg.Address.Addr(), cfg.Hostname)
	return errors.Join(
		os.WriteFile("/etc/hostname", []byte(cfg.Hostname+"\n"), 0o644),
		os.WriteFile("/etc/hosts", []byte(hosts), 0o644))
}

func setNetwork(cfg Config) error {
	dev, err := linkName()
	if err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "add", cfg.Address.String(), "dev", dev},
		{"ip", "link", "set", dev, "up"},
		{"ip", "route", "add", "default", "via", cfg.Gateway.String()},
	} {
		if err := run(argv...); err != nil {
			return err
		}
	}
	return nil
}

// linkName is the one interface that is not the loopback: which name the
// kernel gives it depends on its version.
func linkName() (string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		if strings.HasPrefix(l.Name, "vec") || strings.HasPrefix(l.Name, "eth") {
			return l.Name, nil
		}
	}
	return "", errors.New("the kernel has no network interface")
}

func loadModules(cfg Config) error {
	var missing []string
	for _, m := range cfg.Modules {
		if err := run("modprobe", m); err != nil {
			fmt.Printf("castellan-guest: %v\n", err)
			missing = append(missing, m)
		}
	}
	return os.WriteFile(stateFile, []byte(strings.Join(missing, "\n")), 0o600)
}

func startUdev(Config) error {
	rules := "/etc/udev/rules.d/59-castellan-ubd.rules"
	if err := os.MkdirAll(filepath.Dir(rules), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(rules, []byte(udevRules), 0o644); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"/usr/lib/systemd/systemd-udevd", "--daemon"},
		{"udevadm", "trigger", "--action=add", "--type=subsystems"},
		{"udevadm", "trigger", "--action=add", "--type=devices", "--subsystem-match=block"},
		{"udevadm", "settle", "--timeout=20"},
	} {
		if err := run(argv...); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program to its end. Its output goes to a file and not to a pipe:
// a daemon that it leaves behind would hold the pipe open.
func run(argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	out, err := os.CreateTemp("", "out")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // fixed argv of this file, without a shell
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}

// supervise keeps the agent running and reaps everything else. A crash loop
// of the agent is slowed by nothing: it would show on the console, and the
// machine gives up on a guest that is not ready in time.
func supervise() error {
	for {
		p, err := os.StartProcess(AgentPath, []string{AgentPath, "serve"}, &os.ProcAttr{
			Dir: "/", Env: environment(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		})
		if err != nil {
			return fmt.Errorf("starting the agent: %w", err)
		}
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, 0, nil)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("waiting for children: %w", err)
			}
			if pid == p.Pid {
				fmt.Printf("castellan-guest: the agent ended (status %#x), starting it again\n", uint32(ws))
				break
			}
		}
	}
}

// Serve runs the agent until it fails.
func Serve() error {
	cfg, err := ReadConfig(ConfigPath)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	missing, err := os.ReadFile(stateFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(cfg.Address.Addr(), agent.Port).String())
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	host := &agent.Linux{Root: "/", Env: environment(), MissingModules: strings.Fields(string(missing))}
	info, err := host.Info()
	if err != nil {
		return err
	}
	host.BootTime = info.Uptime
	fmt.Println(ReadyMark + " after " + strconv.FormatFloat(info.Uptime.Seconds(), 'f', 1, 64) + " s")
	return agent.NewServer(cfg.Token, environment(), host).Serve(context.Background(), listener)
}

// Fail reports on the console why the guest cannot start and stops the
// machine, so that nobody waits for it.
func Fail(err error) {
	fmt.Println(FailMark + strings.ReplaceAll(err.Error(), "\n", "; "))
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
