package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
)

// Media types and annotations of the OCI image specification 1.1, and the
// annotation by which containerd names an image that it imports.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+zstd"
	annRefName    = "org.opencontainers.image.ref.name"
	annImageName  = "io.containerd.image.name"
)

// Config is how containers of an image run.
type Config struct {
	Env        []string          `json:"Env,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	Cmd        []string          `json:"Cmd,omitempty"`
	WorkingDir string            `json:"WorkingDir,omitempty"`
	User       string            `json:"User,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type imageConfig struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Created      string `json:"created"`
	Config       Config `json:"config"`
	RootFS       rootFS `json:"rootfs"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// Layout is an OCI image layout: a directory with an index and blobs named by
// their digests. The layers of an image's base may be missing in it, when they
// are known to be where it is imported.
type Layout struct {
	dir string
	idx index
}

// CreateLayout starts an empty layout in dir, which must exist.
func CreateLayout(dir string) (*Layout, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("making an image layout: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644); err != nil {
		return nil, fmt.Errorf("making an image layout: %w", err)
	}
	l := &Layout{dir: dir, idx: index{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{}}}
	return l, l.writeIndex()
}

// OpenLayout reads the layout in dir.
func OpenLayout(dir string) (*Layout, error) {
	l := &Layout{dir: dir}
	b, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, fmt.Errorf("reading an image layout: %w", err)
	}
	if err := json.Unmarshal(b, &l.idx); err != nil {
		return nil, fmt.Errorf("reading the image index of %s: %w", dir, err)
	}
	return l, nil
}

// Dir is the directory of the layout.
func (l *Layout) Dir() string { return l.dir }

// Names are the names of the images in the layout, sorted.
func (l *Layout) Names() []string {
	var out []string
	for _, m := range l.idx.Manifests {
		out = append(out, m.Annotations[annImageName])
	}
	sort.Strings(out)
	return out
}

// Digest is the digest of the manifest of the named image.
func (l *Layout) Digest(name string) (string, error) {
	d, err := l.find(name)
	return d.Digest, err
}

func (l *Layout) find(name string) (descriptor, error) {
	for _, m := range l.idx.Manifests {
		if m.Annotations[annImageName] == name {
			return m, nil
		}
	}
	return descriptor{}, fmt.Errorf("no image %s in %s (it has: %s)", name, l.dir, strings.Join(l.Names(), ", "))
}

// AddImage adds an image whose one layer holds the additions, and returns the
// digest of its manifest.
func (l *Layout) AddImage(name string, cfg Config, adds []Add) (string, error) {
	return l.addImage(name, imageConfig{Config: cfg}, nil, adds)
}

// AddOnTop adds an image that is the named image of another layout plus one
// layer with the additions, and returns the digest of its manifest. The base's
// layers are not copied. Fields of cfg that are set replace the base's; Env is
// added to it.
func (l *Layout) AddOnTop(name string, base *Layout, baseName string, cfg Config, adds []Add) (string, error) {
	d, err := base.find(baseName)
	if err != nil {
		return "", err
	}
	var m manifest
	if err := base.readBlob(d.Digest, &m); err != nil {
		return "", err
	}
	var c imageConfig
	if err := base.readBlob(m.Config.Digest, &c); err != nil {
		return "", err
	}
	c.Config = merge(c.Config, cfg)
	return l.addImage(name, c, m.Layers, adds)
}

func merge(base, over Config) Config {
	base.Env = append(append([]string{}, base.Env...), over.Env...)
	if over.Entrypoint != nil {
		base.Entrypoint, base.Cmd = over.Entrypoint, nil
	}
	if over.Cmd != nil {
		base.Cmd = over.Cmd
	}
	if over.WorkingDir != "" {
		base.WorkingDir = over.WorkingDir
	}
	if over.User != "" {
		base.User = over.User
	}
	labels := map[string]string{}
	for k, v := range base.Labels {
		labels[k] = v
	}
	for k, v := range over.Labels {
		labels[k] = v
	}
	if len(labels) > 0 {
		base.Labels = labels
	}
	return base
}

func (l *Layout) addImage(name string, c imageConfig, below []descriptor, adds []Add) (string, error) {
	layer, err := l.addLayer(adds)
	if err != nil {
		return "", fmt.Errorf("making the layer of %s: %w", name, err)
	}
	c.Architecture, c.OS, c.Created = runtime.GOARCH, "linux", "1970-01-01T00:00:00Z"
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = append(append([]string{}, c.RootFS.DiffIDs...), layer.DiffID)
	cd, err := l.writeBlob(mediaConfig, c)
	if err != nil {
		return "", fmt.Errorf("writing the config of %s: %w", name, err)
	}
	m := manifest{SchemaVersion: 2, MediaType: mediaManifest, Config: cd}
	m.Layers = append(append(m.Layers, below...), descriptor{MediaType: mediaLayer, Digest: layer.Digest, Size: layer.Size})
	md, err := l.writeBlob(mediaManifest, m)
	if err != nil {
		return "", fmt.Errorf("writing the manifest of %s: %w", name, err)
	}
	md.Platform = &platform{Architecture: c.Architecture, OS: c.OS}
	md.Annotations = map[string]string{annImageName: name, annRefName: name}
	kept := l.idx.Manifests[:0:0]
	for _, old := range l.idx.Manifests {
		if old.Annotations[annImageName] != name {
			kept = append(kept, old)
		}
	}
	l.idx.Manifests = append(kept, md)
	return md.Digest, l.writeIndex()
}

func (l *Layout) addLayer(adds []Add) (Layer, error) {
	f, err := os.CreateTemp(l.dir, "layer-")
	if err != nil {
		return Layer{}, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // gone already when it became a blob
	}()
	layer, err := writeLayer(f, adds)
	if err != nil {
		return Layer{}, err
	}
	if err := f.Chmod(0o644); err != nil {
		return Layer{}, err
	}
	if err := f.Close(); err != nil {
		return Layer{}, err
	}
	return layer, os.Rename(f.Name(), l.blob(layer.Digest))
}

func (l *Layout) blob(digest string) string {
	return filepath.Join(l.dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

func (l *Layout) readBlob(digest string, into any) error {
	b, err := os.ReadFile(l.blob(digest))
	if err != nil {
		return fmt.Errorf("reading a blob of an image: %w", err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("reading the blob %s of an image: %w", digest, err)
	}
	return nil
}

func (l *Layout) writeBlob(media string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	sum := sha256.Sum256(b)
	d := descriptor{MediaType: media, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(b))}
	return d, os.WriteFile(l.blob(d.Digest), b, 0o644)
}

func (l *Layout) writeIndex() error {
	b, err := json.Marshal(l.idx)
	if err != nil {
		return fmt.Errorf("writing an image index: %w", err)
	}
	tmp := filepath.Join(l.dir, "index.json.new")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("writing an image index: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(l.dir, "index.json")); err != nil {
		return fmt.Errorf("writing an image index: %w", err)
	}
	return nil
}

// Stream writes the layout as one archive, the form in which containerd imports
// images.
func (l *Layout) Stream(w io.Writer) error {
	tw := tar.NewWriter(w)
	names := []string{"oci-layout", "index.json"}
	blobs, err := os.ReadDir(filepath.Join(l.dir, "blobs", "sha256"))
	if err != nil {
		return fmt.Errorf("reading an image layout: %w", err)
	}
	for _, b := range blobs {
		names = append(names, "blobs/sha256/"+b.Name())
	}
	for _, name := range names {
		if err := streamFile(tw, filepath.Join(l.dir, name), name); err != nil {
			return fmt.Errorf("streaming %s: %w", name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("ending an image archive: %w", err)
	}
	return nil
}

func streamFile(tw *tar.Writer, p, name string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: epoch}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}
