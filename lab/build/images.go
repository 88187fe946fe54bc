package build

import (
	"context"
	_ "embed" // the source of pause
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/castellan-storage/castellan/lab/command"
	"github.com/castellan-storage/castellan/lab/image"
)

// The file has no .c suffix: the go command would compile it into this package.
//
//go:embed pause.c.txt
var pauseSource string

// imagePath is the PATH of containers.
const imagePath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// testLibraries are what Debian's busybox loads, and what its name lookups load
// later: files of the Ceph root.
var testLibraries = [...]string{"libc.so.6", "libresolv.so.2", "libm.so.6"}

func imagesPart() *part {
	return &part{
		name: partImages, title: "images: pause, CoreDNS, test, Ceph", lane: packages,
		recipe: []string{"images 1", pauseSource, imagePath, strings.Join(testLibraries[:], " ")},
		needs:  []string{partCoreDNS, partCeph}, space: 700 << 20,
		host: []string{"gcc", "libc6-dev"},
		make: makeImages,
	}
}

func makeImages(ctx context.Context, j *job) (err error) {
	work, err := os.MkdirTemp("", "castellan-images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	l, err := image.CreateLayout(j.dir)
	if err != nil {
		return err
	}
	pause, err := compilePause(ctx, j, work)
	if err != nil {
		return err
	}
	if _, err := l.AddImage(ImagePause, image.Config{Cmd: []string{"/pause"}}, []image.Add{{Source: pause, Destination: "/pause"}}); err != nil {
		return err
	}
	coredns := []image.Add{{Source: filepath.Join(j.deps[partCoreDNS], "coredns"), Destination: "/coredns"}}
	if _, err := l.AddImage(ImageCoreDNS, image.Config{Env: []string{imagePath}, Cmd: []string{"/coredns"}}, coredns); err != nil {
		return err
	}
	root := filepath.Join(j.deps[partCeph], cephRoot)
	test, err := testRoot(ctx, j, work, root)
	if err != nil {
		return err
	}
	if _, err := l.AddImage(ImageTest, image.Config{Env: []string{imagePath}, Cmd: []string{"/bin/sh"}}, []image.Add{{Source: test, Destination: "/", Keep: true}}); err != nil {
		return err
	}
	j.note("compressing the Ceph image")
	ceph := image.Config{Env: []string{imagePath, "LANG=C.UTF-8"}, Cmd: []string{"/bin/bash"}, Labels: map[string]string{"ceph.version": versionCeph}}
	_, err = l.AddImage(ImageCeph, ceph, []image.Add{{Source: root, Destination: "/", Keep: true}})
	return err
}

func compilePause(ctx context.Context, j *job, work string) (string, error) {
	src, out := filepath.Join(work, "pause.c"), filepath.Join(work, "pause")
	if err := os.WriteFile(src, []byte(pauseSource), 0o644); err != nil {
		return "", err
	}
	if err := command.Run(ctx, command.Cmd{Args: []string{"gcc", "-Os", "-Wall", "-static", "-s", "-o", out, src}, Log: j.log}); err != nil {
		return "", fmt.Errorf("compiling pause: %w", err)
	}
	return out, nil
}

// testRoot makes a small root with busybox's applets. Debian's static busybox
// crashes in name lookups, so this one has its libraries.
func testRoot(ctx context.Context, j *job, work, cephRoot string) (string, error) {
	deb, err := oneFile(filepath.Join(j.deps[partCeph], cephDebs, "busybox_*.deb"))
	if err != nil {
		return "", err
	}
	unpacked, root := filepath.Join(work, "deb"), filepath.Join(work, "root")
	if err := command.Run(ctx, command.Cmd{Args: []string{"dpkg-deb", "-x", deb, unpacked}, Log: j.log}); err != nil {
		return "", fmt.Errorf("unpacking busybox: %w", err)
	}
	for _, d := range []string{"usr/bin", "usr/lib64", "usr/lib/x86_64-linux-gnu", "etc", "tmp", "var/tmp", "root", "proc", "sys", "dev", "mnt"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	for _, d := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(root, d), 0o777|os.ModeSticky); err != nil {
			return "", err
		}
	}
	for _, d := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return "", err
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "sbin")); err != nil {
		return "", err
	}
	files := map[string]string{
		filepath.Join(unpacked, "usr/bin/busybox"):                "usr/bin/busybox",
		filepath.Join(cephRoot, "usr/lib64/ld-linux-x86-64.so.2"): "usr/lib64/ld-linux-x86-64.so.2",
	}
	for _, lib := range testLibraries {
		files[filepath.Join(cephRoot, "usr/lib/x86_64-linux-gnu", lib)] = "usr/lib/x86_64-linux-gnu/" + lib
	}
	for from, to := range files {
		if err := copyProgram(from, filepath.Join(root, to)); err != nil {
			return "", fmt.Errorf("making the test image: %w", err)
		}
	}
	passwd := "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644); err != nil {
		return "", err
	}
	return root, applets(ctx, j, root)
}

// applets links every applet's name to busybox.
func applets(ctx context.Context, j *job, root string) error {
	list, err := command.Output(ctx, command.Cmd{Args: []string{"chroot", root, "/usr/bin/busybox", "--list"}, Log: j.log})
	if err != nil {
		return fmt.Errorf("running the test image's busybox: %w", err)
	}
	for _, name := range strings.Fields(list) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "usr/bin", name)); err != nil {
			return fmt.Errorf("making the test image: %w", err)
		}
	}
	return nil
}

// copyProgram copies the file that from leads to.
func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

func binPart() *part {
	return &part{
		name: partBin, title: "binaries of a node, in one place", lane: compiler,
		recipe: []string{"bin 1"}, needs: []string{partKubernetes, partContainerd, partRunc, partCNI},
		host: labPackages[:],
		make: func(_ context.Context, j *job) error {
			for _, n := range []string{partKubernetes, partContainerd, partRunc, partCNI} {
				if err := linkEntries(j.deps[n], j.dir); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// linkEntries hard-links what is in src into dst.
func linkEntries(src, dst string) error {
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	for _, e := range entries {
		s, d := filepath.Join(src, e.Name()), filepath.Join(dst, e.Name())
		if e.IsDir() {
			err = image.LinkTree(s, d, nil)
		} else {
			err = os.Link(s, d) // does not follow symbolic links
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// goldenRoot is the containerd root in the golden part's entry.
const goldenRoot = "containerd"

func basePart() *part {
	return &part{
		name: partBase, title: "containerd root with the lab's images", lane: packages,
		recipe: []string{"base 2"}, needs: []string{partContainerd, partImages}, space: 1500 << 20,
		make: func(ctx context.Context, j *job) error {
			root := filepath.Join(j.dir, goldenRoot)
			if err := os.Mkdir(root, 0o711); err != nil {
				return err
			}
			l, err := image.OpenLayout(j.deps[partImages])
			if err != nil {
				return err
			}
			j.note("importing")
			return image.Containerd{Bin: j.deps[partContainerd], Log: j.log}.ImportInto(ctx, root, l)
		},
	}
}

// goldenPart is the base plus what was loaded on top.
func goldenPart(loaded []LoadedImage) *part {
	recipe := []string{"loaded 1"}
	for _, l := range loaded {
		recipe = append(recipe, l.Name, l.Digest)
	}
	return &part{
		name: partGolden, title: "containerd root that nodes start from", lane: packages,
		recipe: recipe, needs: []string{partContainerd, partBase}, space: 100 << 20,
		make: func(ctx context.Context, j *job) error {
			root := filepath.Join(j.dir, goldenRoot)
			if err := image.SeedRoot(filepath.Join(j.deps[partBase], goldenRoot), root); err != nil {
				return err
			}
			if len(loaded) == 0 {
				return nil
			}
			var layouts []*image.Layout
			for _, li := range loaded {
				l, err := image.OpenLayout(li.Dir)
				if err != nil {
					return err
				}
				layouts = append(layouts, l)
			}
			j.note("importing")
			return image.Containerd{Bin: j.deps[partContainerd], Log: j.log}.ImportInto(ctx, root, layouts...)
		},
	}
}
