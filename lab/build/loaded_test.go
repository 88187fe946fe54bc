package build

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/castellan-storage/castellan/lab/image"
)

// An image is made again only when something that it is made of has changed.
func TestLoadedIsMadeOnce(t *testing.T) {
	dir, images := t.TempDir(), filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(images, 0o755); err != nil {
		t.Fatal(err)
	}
	base, err := image.CreateLayout(images)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := base.AddImage(ImageTest, image.Config{}, nil); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	write := func(content string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(program, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(program, mode); err != nil {
			t.Fatal(err)
		}
	}
	load := func(cfg image.Config, adds ...image.Add) LoadedImage {
		t.Helper()
		li, err := writeLoaded(t.Context(), dir, images, "localhost/a:1", ImageTest, cfg, adds)
		if err != nil {
			t.Fatal(err)
		}
		return li
	}
	marker := func(li LoadedImage) string { return filepath.Join(li.Dir, "marker") }
	add := image.Add{Source: program, Destination: "/bin/program"}
	write("one", 0o755)
	first := load(image.Config{}, add)
	if err := os.WriteFile(marker(first), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again := load(image.Config{}, add); again != first {
		t.Errorf("the same again: %v, was %v", again, first)
	}
	if _, err := os.Stat(marker(first)); err != nil {
		t.Errorf("it was made again: %v", err)
	}
	seen := map[string]string{first.Recipe: "the first"}
	other := func(what string, li LoadedImage) {
		t.Helper()
		if was, ok := seen[li.Recipe]; ok {
			t.Errorf("%s: as %s", what, was)
		}
		seen[li.Recipe] = what
		if _, err := os.Stat(filepath.Join(li.Dir, "image.json")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	other("another command", load(image.Config{Cmd: []string{"program"}}, add))
	other("another place", load(image.Config{}, image.Add{Source: program, Destination: "/sbin/program"}))
	write("one", 0o700)
	other("another mode", load(image.Config{}, add))
	write("two", 0o755)
	other("another content", load(image.Config{}, add))
	// What is in a directory is not looked at: such an image is always made.
	tree := load(image.Config{}, image.Add{Source: filepath.Dir(program), Destination: "/bin"})
	if tree.Recipe != "" {
		t.Errorf("a directory has the recipe %q", tree.Recipe)
	}
	if err := os.WriteFile(marker(tree), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tree = load(image.Config{}, image.Add{Source: filepath.Dir(program), Destination: "/bin"})
	if _, err := os.Stat(marker(tree)); err == nil {
		t.Error("an image with a directory was not made again")
	}
}
