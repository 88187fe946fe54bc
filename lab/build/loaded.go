package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/castellan-storage/castellan/lab/cache"
	"github.com/castellan-storage/castellan/lab/image"
)

// LoadedImage is an image that was put on top of one of the lab's, and that
// every node started from now on has.
type LoadedImage struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // of its manifest
	Dir    string `json:"-"`      // its layout, without the layers of its base
	// Recipe is all that it was made of: with the same, it need not be made again.
	Recipe string `json:"recipe,omitempty"`
}

// loadedDir holds one directory per loaded image.
const loadedDir = "loaded"

// Loaded lists the images loaded in the cache, by name.
func Loaded(cacheDir string) ([]LoadedImage, error) {
	paths, err := filepath.Glob(filepath.Join(cacheDir, loadedDir, "*", "image.json"))
	if err != nil {
		return nil, fmt.Errorf("listing the loaded images: %w", err)
	}
	var out []LoadedImage
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, fmt.Errorf("listing the loaded images: %w", err)
		}
		li := LoadedImage{Dir: filepath.Dir(p)}
		if err := json.Unmarshal(b, &li); err != nil {
			return nil, fmt.Errorf("reading %s: %w", p, err)
		}
		out = append(out, li)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// BaseImages are the short names by which --base knows the lab's images.
func BaseImages() map[string]string {
	return map[string]string{"ceph": ImageCeph, "test": ImageTest, "coredns": ImageCoreDNS, "pause": ImagePause}
}

// Load makes an image of base, a key of BaseImages, and one layer with the
// additions, and has the golden root hold it. The layout returned can be
// imported into nodes that run already; it lacks the layers of the base, which
// they have. Loading the same content again changes nothing.
func Load(ctx context.Context, name, base string, cfg image.Config, adds []image.Add, o Options) (*image.Layout, LoadedImage, error) {
	baseName, ok := BaseImages()[base]
	if !ok {
		return nil, LoadedImage{}, fmt.Errorf("no base image is named %q: there are ceph, coredns, pause and test", base)
	}
	if err := checkName(name); err != nil {
		return nil, LoadedImage{}, err
	}
	for _, a := range adds {
		if _, err := os.Stat(a.Source); err != nil {
			return nil, LoadedImage{}, fmt.Errorf("nothing to add at %s: %w", a.Source, err)
		}
	}
	p, err := Build(ctx, Options{Only: []string{partBase}, NoInstall: o.NoInstall, Out: io.Discard})
	if err != nil {
		return nil, LoadedImage{}, err
	}
	dir, err := cache.Dir()
	if err != nil {
		return nil, LoadedImage{}, err
	}
	li, err := writeLoaded(ctx, dir, p.Images, name, baseName, cfg, adds)
	if err != nil {
		return nil, LoadedImage{}, err
	}
	if _, err := Build(ctx, Options{Only: []string{partGolden}, NoInstall: o.NoInstall, Out: io.Discard}); err != nil {
		return nil, LoadedImage{}, err
	}
	l, err := image.OpenLayout(li.Dir)
	if err != nil {
		return nil, LoadedImage{}, err
	}
	return l, li, pruneGolden(ctx)
}

// Unload removes a loaded image from what new nodes start with.
func Unload(ctx context.Context, name string) error {
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	loaded, err := Loaded(dir)
	if err != nil {
		return err
	}
	for _, li := range loaded {
		if li.Name == name {
			if err := os.RemoveAll(li.Dir); err != nil {
				return fmt.Errorf("unloading %s: %w", name, err)
			}
			if _, err := Build(ctx, Options{Only: []string{partGolden}, Out: io.Discard}); err != nil {
				return err
			}
			return pruneGolden(ctx)
		}
	}
	return fmt.Errorf("no image %s is loaded", name)
}

// checkName refuses what Kubernetes would complete or pull.
func checkName(name string) error {
	repo, tag, ok := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	switch {
	case !strings.Contains(name, "/") || strings.ContainsAny(name, " @") || repo == "":
		return fmt.Errorf("%q is not a full image name: write it like localhost/castellan:dev", name)
	case !ok || tag == "" || tag == "latest":
		return fmt.Errorf("%q needs a tag other than latest: Kubernetes would try to pull it", name)
	}
	return nil
}

// writeLoaded makes the image's directory and puts it in the place of an older
// one of that name.
func writeLoaded(ctx context.Context, dir, images, name, baseName string, cfg image.Config, adds []image.Add) (LoadedImage, error) {
	fail := func(err error) (LoadedImage, error) {
		return LoadedImage{}, fmt.Errorf("making the image %s: %w", name, err)
	}
	base, err := image.OpenLayout(images)
	if err != nil {
		return fail(err)
	}
	recipe, err := loadedRecipe(base, baseName, cfg, adds)
	if err != nil {
		return fail(err)
	}
	before, err := Loaded(dir)
	if err != nil {
		return fail(err)
	}
	for _, li := range before {
		if li.Name == name && li.Recipe == recipe && recipe != "" {
			return li, nil
		}
	}
	parent := filepath.Join(dir, loadedDir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fail(err)
	}
	tmp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // gone already when it became the image's
	l, err := image.CreateLayout(tmp)
	if err != nil {
		return fail(err)
	}
	digest, err := l.AddOnTop(name, base, baseName, cfg, adds)
	if err != nil {
		return fail(err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	li := LoadedImage{Name: name, Digest: digest, Recipe: recipe, Dir: filepath.Join(parent, string(cache.NewKey(name)))}
	b, err := json.Marshal(li)
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "image.json"), b, 0o644); err != nil {
		return fail(err)
	}
	if err := os.RemoveAll(li.Dir); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, li.Dir); err != nil {
		return fail(err)
	}
	return li, nil
}

// loadedRecipe is what an image is made of, as a hash: to read files is much less than
// to compress them. It is "" where more counts than the content of plain files.
func loadedRecipe(base *image.Layout, baseName string, cfg image.Config, adds []image.Add) (string, error) {
	digest, err := base.Digest(baseName)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	settings, err := json.Marshal(cfg)
	if err != nil {
		return "", err
	}
	_, _ = fmt.Fprintf(h, "%s %d %s", digest, len(settings), settings)
	for _, a := range adds {
		info, err := os.Stat(a.Source)
		if err != nil {
			return "", err
		}
		if !info.Mode().IsRegular() || a.Skip != nil || a.Keep {
			return "", nil
		}
		_, _ = fmt.Fprintf(h, "%q %v %d\n", a.Destination, info.Mode(), info.Size())
		if err := hashFile(h, a.Source); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	_, err = io.Copy(h, f)
	return err
}
